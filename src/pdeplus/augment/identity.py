"""No augmentation: every image stays as it is."""

from dataclasses import dataclass
from typing import ClassVar, final

import torch
from torch import Tensor

from .base import Augmentor


@final
@dataclass(frozen=True, kw_only=True)
class Identity(Augmentor):
    """The images as they are."""

    applies: ClassVar[tuple[str, ...]] = ("identity",)

    def __call__(self, x: Tensor, generator: torch.Generator | None = None) -> Tensor:
        return x
