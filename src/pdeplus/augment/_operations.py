"""The operations that AugMix, AutoAugment and RandAugment choose from, and how strengths become their values."""

from collections.abc import Iterator, Mapping
from typing import Literal, NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F

from ._chains import grouping
from ._geometry import Interpolation, affine, rotation, shear, shift
from ._tone import TONE, to_bytes

SHIFTS = ("translate_x", "translate_y")
MAPS = ("shear_x", "shear_y", "rotate")
NAMES = (*SHIFTS, *MAPS, *TONE, "identity")
"""An operation's number is its place here."""

BLOCK = 2**18
"""Numbers that a geometric operation works on at a time: more fall out of a processor's cache."""


class Strength(NamedTuple):
    """An operation's value at strength s in 0..1: start ± span · s."""

    start: float = 0.0
    span: float = 0.0
    signed: bool = False
    """Subtract instead of add with probability one half."""
    whole: Literal["", "down", "nearest"] = ""
    """Whether span · s is made a whole number, and how."""


def values_of(strengths: Mapping[str, Strength], which: Tensor, s: Tensor, sign: Tensor) -> Tensor:
    """The values of the operations `which` at strengths `s`; `sign` counts for signed ones. All of one shape."""
    chosen = [strengths.get(name, Strength()) for name in NAMES]
    rows = [[c.start, c.span, c.signed, c.whole == "down", c.whole == "nearest"] for c in chosen]
    start, span, signed, down, nearest = torch.tensor(rows, device=s.device)[which].unbind(-1)
    amount = span * s
    amount = torch.where(down > 0, amount.trunc(), torch.where(nearest > 0, amount.round(), amount))
    return start + amount * torch.where(signed > 0, sign, 1.0)


def to_grey(x: Tensor) -> Tensor:
    """Floats in [0, 1] to the nearest grey levels, unsigned bytes."""
    return to_bytes((x.float() * 255).add_(0.5))


def from_bytes(x: Tensor, dtype: torch.dtype) -> Tensor:
    """Grey levels to floats in [0, 1]."""
    return x.to(dtype).div_(255)


def apply_one(x: Tensor, name: str, value: Tensor) -> Tensor:
    """One operation for all images (floats in [0, 1]), each with its own value; whole grey levels come back."""
    which = torch.full_like(value, NAMES.index(name), dtype=torch.long)
    return from_bytes(apply_each(to_grey(x), which, value), x.dtype)


@torch.no_grad()
def apply_each(x: Tensor, which: Tensor, value: Tensor, interpolation: Interpolation = "bilinear") -> Tensor:
    """Apply to each image the operation of its own; images with the same one go together.

    Args:
        x: B×C×H×W of unsigned bytes; so is the result.
        which: place of each image's operation in `NAMES` (B).
        value: the operation's value for each image (B).
        interpolation: of the geometric operations.
    """
    still = (which < len(SHIFTS) + len(MAPS)) & (value == 0)
    which = torch.where(still, NAMES.index("identity"), which)
    order, counts = grouping(which, len(NAMES))
    rows = dict(zip(NAMES, torch.split(order, counts), strict=True))
    values = dict(zip(NAMES, torch.split(value.index_select(0, order), counts), strict=True))
    done = torch.cat(list(_applied(x, rows, values, interpolation)))
    return done.index_select(0, order.argsort())


def _applied(
    x: Tensor, rows: Mapping[str, Tensor], values: Mapping[str, Tensor], interpolation: Interpolation
) -> Iterator[Tensor]:
    """The images of each operation, in the order of `NAMES`."""
    yield from _shifted(x, rows, values)
    yield from _mapped(x, rows, values, interpolation)
    for name, operation in TONE.items():
        if len(rows[name]):
            yield operation(x.index_select(0, rows[name]), values[name])
    yield x.index_select(0, rows["identity"])


def _shifted(x: Tensor, rows: Mapping[str, Tensor], values: Mapping[str, Tensor]) -> Iterator[Tensor]:
    mine = torch.cat([rows[name] for name in SHIFTS])
    if len(mine):
        yield shift(x.index_select(0, mine), *_side_by_side(*(values[name] for name in SHIFTS)))


def _mapped(
    x: Tensor, rows: Mapping[str, Tensor], values: Mapping[str, Tensor], interpolation: Interpolation
) -> Iterator[Tensor]:
    h, w = x.shape[-2:]
    across, down, angle = (values[name] for name in MAPS)
    matrix = torch.cat([shear(*_side_by_side(across, down), h, w), rotation(angle, h, w)])
    mine = torch.cat([rows[name] for name in MAPS])
    block = max(1, BLOCK // max(1, x[:1].numel()))
    for part, m in zip(torch.split(mine, block), torch.split(matrix, block), strict=True):
        if len(part):
            # Pillow cuts fractions off; the small number keeps whole levels from falling by rounding error.
            yield to_bytes(affine(x.index_select(0, part).float(), m, interpolation).add_(0.01))


def _side_by_side(first: Tensor, second: Tensor) -> tuple[Tensor, Tensor]:
    """Both as long as the two together: the first with zeros after it, the second with zeros before."""
    return F.pad(first, (0, len(second))), F.pad(second, (len(first), 0))
