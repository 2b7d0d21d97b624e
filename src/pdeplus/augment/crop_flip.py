"""The usual light transform of small images: a shifted crop and, where labels allow, a mirror image."""

from dataclasses import dataclass
from typing import ClassVar, Literal, final

import torch
from torch import Tensor

from ..errors import check_least
from ._geometry import pick
from .base import Augmentor, integers, uniform


@final
@dataclass(frozen=True, kw_only=True)
class CropFlip(Augmentor):
    """Shift each image by up to `padding` pixels and mirror half of them if `flip`."""

    applies: ClassVar[tuple[str, ...]] = ("translate_x", "translate_y")
    padding: int = 4
    """Greatest shift, in pixels."""
    flip: bool = True
    """Mirror each image with probability one half."""
    border: Literal["black", "reflected"] = "black"
    """What comes in at the edge."""

    def __post_init__(self) -> None:
        check_least("padding", self.padding, 0)

    def __call__(self, x: Tensor, generator: torch.Generator | None = None, mirrored: Tensor | None = None) -> Tensor:
        """Change a batch; `mirrored` (B, bool) says which images to mirror, in place of chance."""
        n, _, h, w = x.shape
        down, right = integers(2 * n, -self.padding, self.padding + 1, x, generator).view(2, n, 1)
        columns = torch.arange(w, device=x.device).expand(n, w)
        if self.flip:
            mirrored = uniform(n, 0, 1, x, generator) < 0.5 if mirrored is None else mirrored
            columns = torch.where(mirrored.view(n, 1), w - 1 - columns, columns)
        rows, columns = torch.arange(h, device=x.device) + down, columns + right
        if self.border == "reflected":
            rows, columns = _reflected(rows, h), _reflected(columns, w)
        return pick(x, rows, columns)


def _reflected(places: Tensor, n: int) -> Tensor:
    """Places beyond either end of n pixels as far inside of it: … 2 1 0 1 2 …"""
    period = max(2 * n - 2, 1)
    return (n - 1) - (places.remainder(period) - (n - 1)).abs()
