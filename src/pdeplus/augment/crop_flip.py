"""The usual light transform of small images: a shifted crop and, where labels allow, a mirror image."""

from dataclasses import dataclass
from typing import ClassVar, final

import torch
from torch import Tensor

from ..errors import UserError
from ._geometry import pick
from .base import Augmentor, integers, uniform


@final
@dataclass(frozen=True, kw_only=True)
class CropFlip(Augmentor):
    """Shift each image by up to `padding` pixels (black comes in) and mirror half of them if `flip`."""

    applies: ClassVar[tuple[str, ...]] = ("translate_x", "translate_y")
    padding: int = 4
    """Greatest shift, in pixels."""
    flip: bool = True
    """Mirror each image with probability one half."""

    def __post_init__(self) -> None:
        if self.padding < 0:
            raise UserError(f"padding={self.padding} must be at least 0")

    def __call__(self, x: Tensor, generator: torch.Generator | None = None) -> Tensor:
        n, _, h, w = x.shape
        down, right = integers(2 * n, -self.padding, self.padding + 1, x, generator).view(2, n, 1)
        columns = torch.arange(w, device=x.device).expand(n, w)
        if self.flip:
            mirrored = uniform(n, 0, 1, x, generator).view(n, 1) < 0.5
            columns = torch.where(mirrored, w - 1 - columns, columns)
        return pick(x, torch.arange(h, device=x.device) + down, columns + right)
