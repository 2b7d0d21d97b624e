"""The usual light transform of small images: a shifted crop and, where labels allow, a mirror image."""

from dataclasses import dataclass
from typing import final

import torch
from torch import Tensor
from torch.nn import functional as F

from .._errors import UserError
from .base import Augmentor, uniform


@final
@dataclass(frozen=True, kw_only=True)
class CropFlip(Augmentor):
    """Shift each image by up to `padding` pixels (black comes in) and mirror half of them if `flip`."""

    padding: int = 4
    """Greatest shift, in pixels."""
    flip: bool = True
    """Mirror each image with probability one half."""

    def __post_init__(self) -> None:
        if self.padding < 0:
            raise UserError(f"padding={self.padding} must be at least 0")

    def __call__(self, x: Tensor, generator: torch.Generator | None = None) -> Tensor:
        n, _, h, w = x.shape
        offsets = torch.randint(0, 2 * self.padding + 1, (2, n, 1), generator=generator, device=x.device)
        rows = offsets[0] + torch.arange(h, device=x.device)
        columns = torch.arange(w, device=x.device).expand(n, w)
        if self.flip:
            mirrored = uniform(n, 0, 1, x, generator).view(n, 1) < 0.5
            columns = torch.where(mirrored, w - 1 - columns, columns)
        columns = offsets[1] + columns
        padded = F.pad(x, [self.padding] * 4)
        image = torch.arange(n, device=x.device).view(n, 1, 1)
        return padded[image, :, rows.view(n, h, 1), columns.view(n, 1, w)].permute(0, 3, 1, 2).contiguous()
