"""No augmentation: every image is its own twin."""

from dataclasses import dataclass
from typing import final

import torch
from torch import Tensor

from .base import Augmentor, corruptions_like


@final
@dataclass(frozen=True, kw_only=True)
class Identity(Augmentor):
    """The images as they are."""

    @property
    def overlaps(self) -> tuple[str, ...]:
        return corruptions_like("identity")

    def __call__(self, x: Tensor, generator: torch.Generator | None = None) -> Tensor:
        return x
