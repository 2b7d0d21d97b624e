"""A random part of each picture, resized (Szegedy et al., 2015), and its mirror image: light, for large images."""

from dataclasses import dataclass
from typing import ClassVar, final

import torch
from torch import Tensor

from ..errors import UserError, check_least
from .base import Augmentor, uniform

MOST_ASPECT = 4 / 3
"""Greatest width of a part as a multiple of its height, and the other way round."""


@final
@dataclass(frozen=True, kw_only=True)
class ResizedCrop(Augmentor):
    """A rectangle of each image becomes the whole image, and half of them are mirrored if `flip`.

    Its share of the area is uniform; its aspect is log-uniform among those between 3/4 and 4/3 with which it fits; its
    place is uniform. It is resized as by torch's bilinear interpolation, antialiased where it shrinks.
    """

    applies: ClassVar[tuple[str, ...]] = ("resized_crop",)
    size: int = 0
    """Side of the result in pixels; 0 for the side that the network's test images have, or else the images' own."""
    least: float = 0.08
    """Smallest share of the area."""
    flip: bool = True
    """Mirror each image with probability one half."""

    def __post_init__(self) -> None:
        check_least("size", self.size, 0)
        if not 0 < self.least <= 1:
            raise UserError(f"least={self.least} must be above 0 and at most 1")

    def __call__(self, x: Tensor, generator: torch.Generator | None = None) -> Tensor:
        n, _, h, w = x.shape
        share = uniform(n, self.least, 1, x, generator)
        least = (share * h / w).clamp(min=1 / MOST_ASPECT).log()  # of width to height: narrower ones are too high
        most = (w / (share * h)).clamp(max=MOST_ASPECT).log()
        aspect = (least + uniform(n, 0, 1, x, generator) * (most - least)).exp()
        across = (share * h * w * aspect).sqrt()
        left, width = _place(w, across, uniform(n, 0, 1, x, generator))
        top, height = _place(h, share * h * w / across, uniform(n, 0, 1, x, generator))
        down = part_weights(top, height, h, self.size or h)
        across = part_weights(left, width, w, self.size or w)
        if self.flip:
            mirrored = uniform(n, 0, 1, x, generator) < 0.5
            across = torch.where(mirrored.view(n, 1, 1), across.flip(1), across)
        return down.unsqueeze(1).to(x.dtype) @ x @ across.mT.unsqueeze(1).to(x.dtype)


def _place(side: int, length: Tensor, u: Tensor) -> tuple[Tensor, Tensor]:
    """The first of a row of pixels within a side, at a uniform place, and their number: a length, rounded."""
    length = length.round().clamp(1, side)
    return (u * (side - length + 1)).floor(), length


def part_weights(first: Tensor, length: Tensor, side: int, out: int) -> Tensor:
    """B×out×side: row i holds the weights with which pixel i of the result reads a line of `side` pixels.

    The result shows the `length` pixels that begin at `first` (both B, whole numbers): a triangle about the pixel's
    place, as wide as a pixel of the larger of the two grids, cut at the ends of the part.
    """
    first, step = first.view(-1, 1, 1), (length / out).view(-1, 1, 1)
    centre = first + (torch.arange(out, device=first.device).view(1, out, 1) + 0.5) * step
    place = torch.arange(side, device=first.device).view(1, 1, side) + 0.5
    weights = (1 - (place - centre).abs() / step.clamp(min=1)).clamp(min=0)
    weights = weights * ((place > first) & (place < first + length.view(-1, 1, 1)))
    return weights / weights.sum(2, keepdim=True)
