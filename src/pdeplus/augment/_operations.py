"""The operations that augmentations choose from, how strengths become their values, and mixtures of their chains."""

from collections.abc import Callable, Mapping
from typing import Literal, NamedTuple, cast

import torch
from torch import Tensor
from torch.nn import functional as F

from ..errors import UserError
from ._geometry import Interpolation, affine, rotation, shear, shift
from .base import integers, simplex, uniform


def autocontrast(x: Tensor, value: Tensor) -> Tensor:
    """Stretch each channel to the full range; `value` plays no part."""
    low, high = x.amin((2, 3), keepdim=True), x.amax((2, 3), keepdim=True)
    flat = low == high
    low, high = low.masked_fill_(flat, 0), high.masked_fill_(flat, 255)
    factor = 255 / (high - low)
    # The small number keeps the highest level from falling to 254 by rounding error.
    return to_bytes(torch.addcmul(1e-3 - low * factor, x.float(), factor))


def equalize(x: Tensor, value: Tensor) -> Tensor:
    """Flatten each channel's histogram; `value` plays no part."""
    b, c, h, w = x.shape
    first = torch.arange(0, 256 * b * c, 256, device=x.device, dtype=torch.int32)
    entry = x.int().add_(first.view(b, c, 1, 1)).view(-1)  # where a pixel's level stands in all tables laid end to end
    histogram = torch.bincount(entry, minlength=256 * b * c).view(b, c, 256)
    brightest = x.amax((2, 3)).long().unsqueeze(2)
    step = (h * w - histogram.gather(2, brightest)) // 255
    below = histogram.cumsum(2).sub_(histogram).add_(step // 2)
    # The small number keeps whole quotients whole.
    spread = (below / step).add_(1e-4).clamp_(max=255)
    table = to_bytes(torch.where(step > 0, spread, torch.arange(256.0, device=x.device)))
    return table.view(-1).index_select(0, entry).view_as(x)


def posterize(x: Tensor, value: Tensor) -> Tensor:
    """Keep the highest `value` bits, 0 to 8."""
    return x & to_bytes(256 - torch.exp2(8 - value)).view(-1, 1, 1, 1)


def solarize(x: Tensor, value: Tensor) -> Tensor:
    """Invert the grey levels from `value` on, which is 255 at most."""
    # Comparing in place keeps bytes, which is ten times as fast on a CPU as making booleans.
    reached = x.clone().ge_(to_bytes(value.ceil()).view(-1, 1, 1, 1))
    return reached.neg_().bitwise_xor_(x)


def invert(x: Tensor, value: Tensor) -> Tensor:
    """The negative; `value` plays no part."""
    return 255 - x


def brightness(x: Tensor, value: Tensor) -> Tensor:
    """Blend with black; a factor of 1 is the image."""
    return to_bytes(x.float().mul_(value.view(-1, 1, 1, 1)).clamp_(0, 255))


def contrast(x: Tensor, value: Tensor) -> Tensor:
    """Blend with the mean grey level; a factor of 1 is the image."""
    exact = x.float()
    return _blend((_grey(exact).mean((1, 2, 3), keepdim=True) + 0.5).floor_(), exact, value)


def color(x: Tensor, value: Tensor) -> Tensor:
    """Blend with the grey image; a factor of 1 is the image."""
    exact = x.float()
    return _blend(_grey(exact), exact, value)


def sharpness(x: Tensor, value: Tensor) -> Tensor:
    """Blend with a smoothed image whose border stays; a factor of 1 is the image."""
    exact = x.float()
    rows = exact[..., :-2, :] + exact[..., 1:-1, :] + exact[..., 2:, :]
    box = rows[..., :-2] + rows[..., 1:-1] + rows[..., 2:]
    smooth = exact.clone()
    smooth[..., 1:-1, 1:-1] = box.add_(exact[..., 1:-1, 1:-1], alpha=4).div_(13).round_()
    return _blend(smooth, exact, value)


_TONE = (autocontrast, equalize, posterize, solarize, invert, brightness, contrast, color, sharpness)
TONE: dict[str, Callable[[Tensor, Tensor], Tensor]] = {operation.__name__: operation for operation in _TONE}


def to_bytes(x: Tensor) -> Tensor:
    """Floats in 0..255 cut to unsigned bytes; by way of integers, which is twice as fast on a CPU."""
    return x.int().to(torch.uint8)


def _blend(other: Tensor, x: Tensor, factor: Tensor) -> Tensor:
    return to_bytes(torch.addcmul(other, x - other, factor.view(-1, 1, 1, 1)).clamp_(0, 255))


def _grey(x: Tensor) -> Tensor:
    if x.shape[1] != 3:
        return x.mean(1, keepdim=True).round_()
    red, green, blue = torch.split(x, 1, dim=1)
    return (0.299 * red + 0.587 * green + 0.114 * blue).round_()


SHIFTS = ("translate_x", "translate_y")
MAPS = ("shear_x", "shear_y", "rotate")
NAMES = (*SHIFTS, *MAPS, *TONE, "identity")
"""An operation's number is its place here."""
DEEPEST = 3
"""Longest chain where the depth is drawn."""
BLOCK = 2**18
"""Numbers that a geometric operation works on at a time: more fall out of a processor's cache."""


class Strength(NamedTuple):
    """An operation's value at strength s in 0..1: start ± span · s."""

    start: float = 0.0
    span: float = 0.0
    signed: bool = False
    """Subtract instead of add with probability one half."""
    whole: Literal["", "down", "nearest"] = ""
    """How span · s is rounded to a whole number, if it is."""


def values_of(strengths: Mapping[str, Strength], which: Tensor, s: Tensor, sign: Tensor) -> Tensor:
    """The values of the operations `which` at strengths `s`; `sign` counts for signed ones. All of one shape."""
    chosen = [strengths.get(name, Strength()) for name in NAMES]
    rows = [[c.start, c.span, c.signed, c.whole == "down", c.whole == "nearest"] for c in chosen]
    start, span, signed, down, nearest = torch.tensor(rows, device=s.device)[which].unbind(-1)
    amount = span * s
    amount = torch.where(down > 0, amount.trunc(), torch.where(nearest > 0, amount.round(), amount))
    return start + amount * torch.where(signed > 0, sign, 1.0)


def to_levels(x: Tensor) -> Tensor:
    """Floats in [0, 1] to the nearest grey levels, unsigned bytes."""
    return to_bytes((x.float() * 255).add_(0.5))


def apply_one(x: Tensor, name: str, value: Tensor) -> Tensor:
    """One operation for all images (floats in [0, 1]), each with its own value; whole grey levels come back."""
    which = torch.full_like(value, NAMES.index(name), dtype=torch.long)
    return apply_each(to_levels(x), which, value).to(x.dtype).div_(255)


@torch.no_grad()
def apply_each(x: Tensor, which: Tensor, value: Tensor, interpolation: Interpolation = "bilinear") -> Tensor:
    """Apply to each image (B×C×H×W of unsigned bytes, as is the result) the operation of its own.

    `which` says its place in `NAMES` (B), `value` its value (B); images with the same operation go together.
    """
    still = (which < len(SHIFTS) + len(MAPS)) & (value == 0)
    which = torch.where(still, NAMES.index("identity"), which)
    order, counts = grouping(which, len(NAMES))
    rows = dict(zip(NAMES, torch.split(order, counts), strict=True))
    values = dict(zip(NAMES, torch.split(value.index_select(0, order), counts), strict=True))
    shifted, mapped = (torch.cat([rows[name] for name in names]) for names in (SHIFTS, MAPS))
    done = list[Tensor]()  # the images of each operation, in the order of `NAMES`
    if len(shifted):
        done.append(shift(x.index_select(0, shifted), *_side_by_side(*(values[name] for name in SHIFTS))))
    across, down, angle = (values[name] for name in MAPS)
    h, w = x.shape[-2:]
    matrix = torch.cat([shear(*_side_by_side(across, down), h, w), rotation(angle, h, w)])
    block = max(1, BLOCK // max(1, x[:1].numel()))
    for part, m in zip(torch.split(mapped, block), torch.split(matrix, block), strict=True):
        if len(part):
            # Pillow cuts fractions off; the small number keeps whole levels from falling by rounding error.
            done.append(to_bytes(affine(x.index_select(0, part).float(), m, interpolation).add_(0.01)))
    done += [f(x.index_select(0, rows[name]), values[name]) for name, f in TONE.items() if len(rows[name])]
    done.append(x.index_select(0, rows["identity"]))
    return torch.cat(done).index_select(0, order.argsort())


def _side_by_side(first: Tensor, second: Tensor) -> tuple[Tensor, Tensor]:
    """Both as long as the two together: the first with zeros after it, the second with zeros before."""
    return F.pad(first, (0, len(second))), F.pad(second, (len(first), 0))


def mix_chains(
    x: Tensor,
    start: Tensor,
    width: int,
    depth: int,
    operate: Callable[[Tensor, int], Tensor],
    generator: torch.Generator | None,
) -> Tensor:
    """(1 - m) x + m Σ_i w_i chain_i, with w ~ Dirichlet(1, …, 1), m ~ U(0, 1) and one draw per image (B×C×H×W).

    `width` chains begin at `start`, the images as floats or as bytes of which 255 is 1. `operate` applies to each of
    them an operation of its own, the chain's i-th; a chain has `depth` of these, or for 0 it draws 1, 2 or 3.
    """
    n = len(x)
    drawn = integers(width * n, 1, DEEPEST + 1, x, generator)
    depths = torch.full_like(drawn, depth) if depth else drawn
    longest_first = depths.argsort(descending=True, stable=True)
    work = start.index_select(0, longest_first % max(n, 1))
    longer_than = torch.bincount(depths, minlength=1).flip(0).cumsum(0).flip(0)[1:]
    for i, count in enumerate(cast(list[int], longer_than.tolist())):
        work[:count] = operate(work[:count], i)
    m = uniform(n, 0, 1, x, generator)
    weights = m * simplex(width, n, x, generator) / (1 if start.is_floating_point() else 255)
    places = longest_first.argsort().view(width, n)
    out = x * (1 - m).view(n, 1, 1, 1)
    for place, weight in zip(places, weights.view(width, n, 1, 1, 1), strict=True):
        out.addcmul_(work.index_select(0, place).to(x.dtype), weight)
    return out.clamp_(0, 1)


def grouping(which: Tensor, kinds: int) -> tuple[Tensor, list[int]]:
    """The order that puts equal kinds 0, …, kinds - 1 together, and how many there are of each."""
    return which.argsort(stable=True), cast(list[int], torch.bincount(which, minlength=kinds).tolist())


def check_chains(width: int, depth: int) -> None:
    """Refuse a mixture without chains or of a negative depth."""
    if width < 1 or depth < 0:
        raise UserError(f"width={width} must be at least 1 and depth={depth} at least 0")
