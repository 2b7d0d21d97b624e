"""Inverted colours alone."""

from dataclasses import dataclass
from typing import ClassVar, final

import torch
from torch import Tensor

from .base import Augmentor


@final
@dataclass(frozen=True, kw_only=True)
class Invert(Augmentor):
    """The negative of every image; nothing is drawn."""

    applies: ClassVar[tuple[str, ...]] = ("invert",)

    def __call__(self, x: Tensor, generator: torch.Generator | None = None) -> Tensor:
        return 1 - x
