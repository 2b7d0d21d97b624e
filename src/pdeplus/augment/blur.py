"""Gaussian blur alone, of random width."""

from dataclasses import dataclass
from typing import ClassVar, final

import torch
from torch import Tensor

from ..errors import UserError
from ._geometry import blurred
from .base import Augmentor, uniform


@final
@dataclass(frozen=True, kw_only=True)
class Blur(Augmentor):
    """Convolve each image with a Gaussian of standard deviation U(least, most) pixels; the edge repeats."""

    applies: ClassVar[tuple[str, ...]] = ("blur",)
    least: float = 0.1
    """Smallest standard deviation, in pixels."""
    most: float = 2.0
    """Largest standard deviation, in pixels."""

    def __post_init__(self) -> None:
        if not 0 <= self.least <= self.most:
            raise UserError(f"least={self.least} must lie between 0 and most={self.most}")

    def __call__(self, x: Tensor, generator: torch.Generator | None = None) -> Tensor:
        return blurred(x, uniform(len(x), self.least, self.most, x, generator)).clamp_(0, 1)
