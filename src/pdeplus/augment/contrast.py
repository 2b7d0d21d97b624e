"""Contrast alone, by a random factor."""

from dataclasses import dataclass
from typing import ClassVar, final

import torch
from torch import Tensor

from ..errors import UserError
from ._operations import apply_one
from .base import Augmentor, uniform


@final
@dataclass(frozen=True, kw_only=True)
class Contrast(Augmentor):
    """Stretch each image's distance from its mean grey by a factor from U(1 - strength, 1 + strength)."""

    applies: ClassVar[tuple[str, ...]] = ("contrast",)
    strength: float = 0.9
    """Greatest change of the factor."""

    def __post_init__(self) -> None:
        if not 0 <= self.strength <= 1:
            raise UserError(f"strength={self.strength} must lie between 0 and 1")

    def __call__(self, x: Tensor, generator: torch.Generator | None = None) -> Tensor:
        return apply_one(x, "contrast", uniform(len(x), 1 - self.strength, 1 + self.strength, x, generator))
