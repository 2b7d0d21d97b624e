"""RandAugment (Cubuk et al., 2020): operations drawn uniformly, all with one magnitude."""

from dataclasses import dataclass
from typing import final

import torch
from torch import Tensor

from ..errors import UserError, check_choice
from ._geometry import Interpolation
from ._operations import NAMES, Strength, apply_each, to_levels, values_of
from .auto_augment import strengths
from .base import Augmentor, corruptions_like, integers, signs

RAND_STEPS = 30
"""The highest magnitude, an operation's full range."""


@final
@dataclass(frozen=True, kw_only=True)
class RandAugment(Augmentor):
    """Each image goes through `count` operations of its own, drawn from fourteen (the identity among them).

    Images come back in whole grey levels.
    """

    count: int = 2
    """Operations for each image."""
    magnitude: int = 9
    """Strength of all operations, 0 to 30."""
    interpolation: Interpolation = "nearest"
    """How the geometric operations read between pixels."""

    def __post_init__(self) -> None:
        if self.count < 1 or not 0 <= self.magnitude <= RAND_STEPS:
            raise UserError(f"count={self.count} must be at least 1 and magnitude={self.magnitude} between 0 and 30")
        check_choice("interpolation", self.interpolation, Interpolation)

    @property
    def overlaps(self) -> tuple[str, ...]:
        return corruptions_like(*_ranges(1, 1))

    def __call__(self, x: Tensor, generator: torch.Generator | None = None) -> Tensor:
        n = len(x)
        ranges = _ranges(*x.shape[-2:])
        numbers = torch.tensor([NAMES.index(name) for name in ranges], device=x.device)
        strength = torch.full((n,), self.magnitude / RAND_STEPS, device=x.device)
        levels = to_levels(x)
        for _ in range(self.count):
            which = numbers[integers(n, 0, len(numbers), x, generator)]
            value = values_of(ranges, which, strength, signs(n, x, generator))
            levels = apply_each(levels, which, value, self.interpolation)
        return levels.to(x.dtype).div_(255)


def _ranges(h: int, w: int) -> dict[str, Strength]:
    """The fourteen operations' values over the range of magnitudes: AutoAugment's without the negative."""
    return {name: strength for name, strength in strengths(h, w).items() if name != "invert"}
