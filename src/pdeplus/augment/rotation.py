"""Rotation alone, by a random angle."""

from dataclasses import dataclass
from typing import ClassVar, final

import torch
from torch import Tensor

from ..errors import UserError
from ._operations import apply_one
from .base import Augmentor, uniform


@final
@dataclass(frozen=True, kw_only=True)
class Rotation(Augmentor):
    """Turn each image about its centre by an angle from U(-degrees, degrees); black comes in."""

    applies: ClassVar[tuple[str, ...]] = ("rotate",)
    degrees: float = 30.0
    """Greatest angle."""

    def __post_init__(self) -> None:
        if not 0 <= self.degrees <= 180:
            raise UserError(f"degrees={self.degrees} must lie between 0 and 180")

    def __call__(self, x: Tensor, generator: torch.Generator | None = None) -> Tensor:
        return apply_one(x, "rotate", uniform(len(x), -self.degrees, self.degrees, x, generator))
