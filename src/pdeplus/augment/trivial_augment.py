"""TrivialAugment (Müller and Hutter, 2021): one operation for each image, of a strength drawn over its whole range."""

from dataclasses import dataclass
from typing import final

import torch
from torch import Tensor

from ..errors import check_choice
from ._geometry import Interpolation
from ._operations import NAMES, Strength, apply_each, to_levels, values_of
from .base import Augmentor, corruptions_like, integers, signs

TRIVIAL_STEPS = 30
"""The highest strength, an operation's full range; strengths are whole numbers from 0."""
WIDE = {
    "identity": Strength(),
    "shear_x": Strength(0, 0.99, signed=True),
    "shear_y": Strength(0, 0.99, signed=True),
    "translate_x": Strength(0, 32, signed=True, whole="down"),
    "translate_y": Strength(0, 32, signed=True, whole="down"),
    "rotate": Strength(0, 135, signed=True),
    "brightness": Strength(1, 0.99, signed=True),
    "color": Strength(1, 0.99, signed=True),
    "contrast": Strength(1, 0.99, signed=True),
    "sharpness": Strength(1, 0.99, signed=True),
    "posterize": Strength(8, -6, whole="nearest"),
    "solarize": Strength(255, -255),
    "autocontrast": Strength(),
    "equalize": Strength(),
}
"""The fourteen operations with the wide ranges that the paper recommends; shifts are in pixels."""


@final
@dataclass(frozen=True, kw_only=True)
class TrivialAugment(Augmentor):
    """Each image goes through one operation of its own, drawn from fourteen (the identity among them), all as likely.

    Images come back in whole grey levels.
    """

    interpolation: Interpolation = "nearest"
    """How the geometric operations read between pixels."""

    def __post_init__(self) -> None:
        check_choice("interpolation", self.interpolation, Interpolation)

    @property
    def overlaps(self) -> tuple[str, ...]:
        return corruptions_like(*WIDE)

    def __call__(self, x: Tensor, generator: torch.Generator | None = None) -> Tensor:
        n = len(x)
        numbers = torch.tensor([NAMES.index(name) for name in WIDE], device=x.device)
        which = numbers[integers(n, 0, len(numbers), x, generator)]
        strength = integers(n, 0, TRIVIAL_STEPS + 1, x, generator) / TRIVIAL_STEPS
        value = values_of(WIDE, which, strength, signs(n, x, generator))
        return apply_each(to_levels(x), which, value, self.interpolation).to(x.dtype).div_(255)
