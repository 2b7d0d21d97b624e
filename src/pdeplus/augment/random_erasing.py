"""Random erasing (Zhong et al., 2020): a rectangle of noise, or of one colour, in part of the images."""

from dataclasses import dataclass, field
from typing import ClassVar, Literal, final

import torch
from torch import Tensor

from .._lib.registry import NEW
from ..errors import UserError
from .base import Augmentor, uniform

MOST_ASPECT = 1 / 0.3
"""Greatest height of a rectangle as a multiple of its width, and the other way round."""


@final
@dataclass(frozen=True, kw_only=True)
class RandomErasing(Augmentor):
    """A rectangle of each image, with a probability, gets random values from U(0, 1), or the image's mean colour.

    Its share of the image's area is uniform; its aspect is log-uniform among those between 0.3 and 1/0.3 with which it
    fits; its place is uniform. Sides are rounded to whole pixels, at least one.
    """

    applies: ClassVar[tuple[str, ...]] = ("erase",)
    probability: float = 0.5
    """Of an image to lose a rectangle."""
    least: float = 0.02
    """Smallest share of the area."""
    most: float = 0.4
    """Largest share of the area."""
    fill: Literal["noise", "mean"] = field(default="noise", metadata=NEW)
    """What takes its place: random values for every pixel and channel, or the image's mean colour."""

    def __post_init__(self) -> None:
        if not 0 <= self.probability <= 1:
            raise UserError(f"probability={self.probability} must lie between 0 and 1")
        if not 0 <= self.least <= self.most <= 1:
            raise UserError(f"least={self.least} and most={self.most} must be in order and lie between 0 and 1")

    def __call__(self, x: Tensor, generator: torch.Generator | None = None) -> Tensor:
        rows = (uniform(len(x), 0, 1, x, generator) < self.probability).nonzero().squeeze(1)
        h, w = x.shape[-2:]
        inside = rectangles(len(rows), h, w, self.least, self.most, x, generator)
        if self.fill == "mean":
            values = x[rows].mean((-2, -1), keepdim=True)
        else:
            values = torch.rand(len(rows), *x.shape[1:], generator=generator, device=x.device).to(x.dtype)
        return x.index_copy(0, rows, torch.where(inside.unsqueeze(1), values, x[rows]))


def rectangles(
    n: int, h: int, w: int, least: float, most: float, like: Tensor, generator: torch.Generator | None
) -> Tensor:
    """`n` masks (n×h×w) of random rectangles whose shares of the area are drawn from U(least, most)."""
    share = uniform(n, least, most, like, generator).clamp(min=1 / (h * w))
    low = (share * h / w).clamp(min=1 / MOST_ASPECT).log()  # narrower ones are too wide for the image
    high = (h / (share * w)).clamp(max=MOST_ASPECT).log()
    aspect = (low + uniform(n, 0, 1, like, generator) * (high - low)).exp()
    area = share * h * w
    down = _interval(h, (area * aspect).sqrt(), like, generator)
    across = _interval(w, (area / aspect).sqrt(), like, generator)
    return down.unsqueeze(2) & across.unsqueeze(1)


def _interval(side: int, length: Tensor, like: Tensor, generator: torch.Generator | None) -> Tensor:
    """B×side: which pixels of a line lie in an interval of that length, rounded, at a random place within the line."""
    length = length.round().clamp(1, side)
    first = (uniform(len(length), 0, 1, like, generator) * (side - length + 1)).floor()
    place = torch.arange(side, device=like.device)
    return (place >= first.unsqueeze(1)) & (place < (first + length).unsqueeze(1))
