"""PixMix (Hendrycks et al., 2022): images blended with fractals and with views of themselves, up to four times.

The fractals are ours: attractors of random iterated function systems, drawn from a fixed seed.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from typing import Literal, final

import torch
from torch import Tensor

from .._lib.seeds import generator_for
from ..errors import UserError
from ._operations import to_levels
from .augmix import check_severity, one_operation, operation_names
from .base import Augmentor, corruptions_like, integers, uniform
from .crop_flip import CropFlip

PICTURES = 96
"""Fractals in the set."""
MAPS = 4
"""Affine maps of a fractal."""
POINTS = 1200
"""Points that wander over a fractal at the same time."""
ARRIVAL, STEPS = 12, 18
"""Steps until they have come near it, and steps that are drawn."""


def add(x: Tensor, y: Tensor, a: Tensor, b: Tensor) -> Tensor:
    """1/2 + a (x - 1/2) + b (y - 1/2), cut to [0, 1]: y counts by how far it is from middle grey."""
    return ((x - 0.5) * a).add_((y - 0.5) * b).add_(0.5).clamp_(0, 1)


def multiply(x: Tensor, y: Tensor, a: Tensor, b: Tensor) -> Tensor:
    """(2x)^a (2y)^b / 2, cut to [0, 1]: a weighted geometric mean, in which middle grey changes nothing."""
    return (2 * x).pow_(a).mul_((2 * y).pow_(b)).mul_(0.5).clamp_(0, 1)


@final
@dataclass(frozen=True, kw_only=True)
class PixMix(Augmentor):
    """Start from the image or a view of it, then blend 0 to `rounds` times with a fractal or another view.

    A view is the image after one of AugMix's operations. A blend adds or multiplies, with weights a ~ Beta(beta, 1) of
    what there is and b ~ Beta(1, beta) of what comes in. Every image draws its own; each choice of two is as likely.
    """

    rounds: int = 4
    """Most blends of an image."""
    beta: float = 3.0
    """The larger, the more is left of the image: weights have the means β/(β + 1) and 1/(β + 1)."""
    severity: float = 3
    """Strength of each operation is drawn from U(0.1, severity); 10 is its full range."""
    operations: Literal[9, 13] = 9
    """AugMix's 9, none of which is a test corruption, or 13 with colour, contrast, brightness and sharpness."""

    def __post_init__(self) -> None:
        check_severity(self.severity)
        if self.rounds < 0 or not 0 < self.beta < math.inf:
            raise UserError(f"rounds={self.rounds} must be at least 0 and beta={self.beta} above 0 and finite")

    @property
    def overlaps(self) -> tuple[str, ...]:
        return corruptions_like("fractal_blend", *operation_names(self.operations))

    @torch.no_grad()
    def __call__(self, x: Tensor, generator: torch.Generator | None = None) -> Tensor:
        levels, out = to_levels(x), x.float().clone()
        _put_views(out, levels, _half(len(x), x, generator), self, generator)
        rounds = integers(len(x), 0, self.rounds + 1, x, generator)
        for done in range(self.rounds):
            rows = (rounds > done).nonzero().squeeze(1)
            other = _some_fractals(len(rows), x, generator)
            _put_views(other, levels[rows], _half(len(rows), x, generator), self, generator)
            a, b = uniform(2 * len(rows), 0, 1, x, generator).pow_(1 / self.beta).view(2, -1, 1, 1, 1)
            added = _half(len(rows), x, generator)
            for blend, chosen in ((add, added), (multiply, ~added)):
                mine, theirs = out[rows[chosen]], other[chosen]
                out[rows[chosen]] = blend(mine, theirs, a[chosen], 1 - b[chosen])
        return out.to(x.dtype)


def _half(n: int, like: Tensor, generator: torch.Generator | None) -> Tensor:
    """n times yes or no, as likely."""
    return uniform(n, 0, 1, like, generator) < 0.5


def _put_views(out: Tensor, levels: Tensor, chosen: Tensor, mixture: PixMix, generator: torch.Generator | None) -> None:
    """Replace the chosen images by views of the originals (bytes)."""
    view = one_operation(levels[chosen], mixture.severity, generator, mixture.operations)
    out[chosen] = view.to(out.dtype).div_(255)


def _some_fractals(n: int, like: Tensor, generator: torch.Generator | None) -> Tensor:
    """Random fractals in the shape of `like`'s images, shifted by up to a quarter of a side and mirrored at random."""
    c, h, w = like.shape[1:]
    chosen = fractals(c, h, w).to(like.device)[integers(n, 0, PICTURES, like, generator)]
    return CropFlip(padding=min(h, w) // 4, border="reflected")(chosen, generator)


@cache
def fractals(channels: int, height: int, width: int) -> Tensor:
    """The set (PICTURES×C×H×W in [0, 1]), the same on every call.

    A pixel has the mean colour of the points that met it, the brighter the more of them did; the ground is dark and of
    a colour of its own.
    """
    generator = generator_for(0, "fractals")
    steps = list(_walk(channels, generator))[ARRIVAL:]
    points, paint = (torch.cat(parts, 1) for parts in zip(*steps, strict=True))
    low, high = points.amin(1, keepdim=True), points.amax(1, keepdim=True)
    size = torch.tensor([height, width])
    place = ((points - low) / (high - low).clamp(min=1e-6) * size).long().minimum(size - 1)
    first = torch.arange(0, PICTURES * height, height).unsqueeze(1)
    pixel = ((first + place[..., 0]) * width + place[..., 1]).flatten()
    counts = torch.bincount(pixel, minlength=PICTURES * height * width).float().unsqueeze(1)
    totals = torch.zeros(len(counts), channels).index_add_(0, pixel, paint.flatten(0, 1))
    color, light = (part.view(PICTURES, height, width, -1) for part in (totals / counts.clamp(min=1), counts.log1p()))
    ground = 0.3 * torch.rand(PICTURES, 1, 1, channels, generator=generator)
    return torch.lerp(ground, color, light / light.amax((1, 2), keepdim=True)).movedim(-1, 1).contiguous()


def _walk(channels: int, generator: torch.Generator) -> Iterator[tuple[Tensor, Tensor]]:
    """The points of all fractals (PICTURES×POINTS×2) and their colours (×C), step by step.

    A point moves by a random one of its fractal's maps, and takes on half of that map's colour.
    """
    matrices, shifts, weights = contractions(PICTURES, MAPS, generator)
    right, down = matrices.unbind(2)
    colors = torch.rand(PICTURES * MAPS, channels, generator=generator)
    first = torch.arange(0, PICTURES * MAPS, MAPS).unsqueeze(1)
    points, paint = torch.zeros(PICTURES, POINTS, 2), torch.zeros(PICTURES, POINTS, channels)
    for _ in range(ARRIVAL + STEPS):
        which = first + torch.multinomial(weights, POINTS, replacement=True, generator=generator)
        points = shifts[which] + right[which] * points[..., :1] + down[which] * points[..., 1:]
        paint = (paint + colors[which]) / 2
        yield points, paint


def contractions(pictures: int, maps: int, generator: torch.Generator) -> tuple[Tensor, Tensor, Tensor]:
    """Random affine maps that bring points together: matrices (pictures · maps × 2×2), shifts, and their chances.

    A matrix is a rotation, a scaling by two factors from U(0.2, 0.8) and another rotation: distances shrink to 0.8 of
    what they were or less, so that every system of such maps has a bounded attractor. A map's chance is its area's.
    """
    n = pictures * maps
    angles = 2 * math.pi * torch.rand(2, n, generator=generator)
    factors = 0.2 + 0.6 * torch.rand(n, 2, generator=generator)
    cosine, sine = angles.cos(), angles.sin()
    first, second = torch.stack([cosine, -sine, sine, cosine], -1).view(2, n, 2, 2)
    shifts = 2 * torch.rand(n, 2, generator=generator) - 1
    return first @ torch.diag_embed(factors) @ second, shifts, factors.prod(1).view(pictures, maps)
