"""AutoAugment (Cubuk et al., 2019): one of 25 learned pairs of operations for each image."""

from dataclasses import dataclass
from typing import Literal, final

import torch
from torch import Tensor

from ..errors import check_choice
from ._geometry import Interpolation
from ._operations import NAMES, Strength, apply_each, to_levels, values_of
from .base import Augmentor, corruptions_like, integers, signs, uniform

Policy = Literal["cifar10", "imagenet"]
AUTO_STEPS = 9
"""The highest magnitude, an operation's full range."""
SUB_POLICIES: dict[Policy, str] = {
    "cifar10": """
        invert 0.1 0, contrast 0.2 6
        rotate 0.7 2, translate_x 0.3 9
        sharpness 0.8 1, sharpness 0.9 3
        shear_y 0.5 8, translate_y 0.7 9
        autocontrast 0.5 0, equalize 0.9 0
        shear_y 0.2 7, posterize 0.3 7
        color 0.4 3, brightness 0.6 7
        sharpness 0.3 9, brightness 0.7 9
        equalize 0.6 0, equalize 0.5 0
        contrast 0.6 7, sharpness 0.6 5
        color 0.7 7, translate_x 0.5 8
        equalize 0.3 0, autocontrast 0.4 0
        translate_y 0.4 3, sharpness 0.2 6
        brightness 0.9 6, color 0.2 8
        solarize 0.5 2, invert 0.0 0
        equalize 0.2 0, autocontrast 0.6 0
        equalize 0.2 0, equalize 0.6 0
        color 0.9 9, equalize 0.6 0
        autocontrast 0.8 0, solarize 0.2 8
        brightness 0.1 3, color 0.7 0
        solarize 0.4 5, autocontrast 0.9 0
        translate_y 0.9 9, translate_y 0.7 9
        autocontrast 0.9 0, solarize 0.8 3
        equalize 0.8 0, invert 0.1 0
        translate_y 0.7 9, autocontrast 0.9 0
    """,
    "imagenet": """
        posterize 0.4 8, rotate 0.6 9
        solarize 0.6 5, autocontrast 0.6 0
        equalize 0.8 0, equalize 0.6 0
        posterize 0.6 7, posterize 0.6 6
        equalize 0.4 0, solarize 0.2 4
        equalize 0.4 0, rotate 0.8 8
        solarize 0.6 3, equalize 0.6 0
        posterize 0.8 5, equalize 1.0 0
        rotate 0.2 3, solarize 0.6 8
        equalize 0.6 0, posterize 0.4 6
        rotate 0.8 8, color 0.4 0
        rotate 0.4 9, equalize 0.6 0
        equalize 0.0 0, equalize 0.8 0
        invert 0.6 0, equalize 1.0 0
        color 0.6 4, contrast 1.0 8
        rotate 0.8 8, color 1.0 2
        color 0.8 8, solarize 0.8 7
        sharpness 0.4 7, invert 0.6 0
        shear_x 0.6 5, equalize 1.0 0
        color 0.4 0, equalize 0.6 0
        equalize 0.4 0, solarize 0.2 4
        solarize 0.6 5, autocontrast 0.6 0
        invert 0.6 0, equalize 1.0 0
        color 0.6 4, contrast 1.0 8
        equalize 0.8 0, equalize 0.6 0
    """,
}
"""One sub-policy a line: two operations, each with its probability and magnitude (0 where it has none)."""


def sub_policies(policy: Policy) -> list[list[tuple[str, float, int]]]:
    """A policy's pairs of (operation, probability, magnitude)."""
    lines = SUB_POLICIES[policy].strip().splitlines()
    pairs = [[entry.split() for entry in line.split(",")] for line in lines]
    return [[(name, float(probability), int(magnitude)) for name, probability, magnitude in pair] for pair in pairs]


def strengths(h: int, w: int) -> dict[str, Strength]:
    """Each operation's value over the range of magnitudes, for images of h × w pixels."""
    return {
        "identity": Strength(),
        "shear_x": Strength(0, 0.3, signed=True),
        "shear_y": Strength(0, 0.3, signed=True),
        "translate_x": Strength(0, 150 / 331 * w, signed=True, whole="down"),
        "translate_y": Strength(0, 150 / 331 * h, signed=True, whole="down"),
        "rotate": Strength(0, 30, signed=True),
        "brightness": Strength(1, 0.9, signed=True),
        "color": Strength(1, 0.9, signed=True),
        "contrast": Strength(1, 0.9, signed=True),
        "sharpness": Strength(1, 0.9, signed=True),
        "posterize": Strength(8, -4, whole="nearest"),
        "solarize": Strength(255, -255),
        "autocontrast": Strength(),
        "equalize": Strength(),
        "invert": Strength(),
    }


@final
@dataclass(frozen=True, kw_only=True)
class AutoAugment(Augmentor):
    """Each image draws a sub-policy, and its two operations happen with their own probabilities.

    Images come back in whole grey levels.
    """

    policy: Policy = "cifar10"
    """The data set on which the sub-policies were learned."""
    interpolation: Interpolation = "nearest"
    """How the geometric operations read between pixels."""

    def __post_init__(self) -> None:
        check_choice("policy", self.policy, Policy)
        check_choice("interpolation", self.interpolation, Interpolation)

    @property
    def overlaps(self) -> tuple[str, ...]:
        return corruptions_like(*(name for pair in sub_policies(self.policy) for name, p, _ in pair if p > 0))

    def __call__(self, x: Tensor, generator: torch.Generator | None = None) -> Tensor:
        n = len(x)
        table = [[(NAMES.index(name), p, m / AUTO_STEPS) for name, p, m in pair] for pair in sub_policies(self.policy)]
        drawn = torch.tensor(table, device=x.device)[integers(n, 0, len(table), x, generator)]
        levels = to_levels(x)
        for step in drawn.unbind(1):
            number, probability, strength = step.unbind(1)
            happens = uniform(n, 0, 1, x, generator) < probability
            which = torch.where(happens, number, NAMES.index("identity")).long()
            value = values_of(strengths(*x.shape[-2:]), which, strength, signs(n, x, generator))
            levels = apply_each(levels, which, value, self.interpolation)
        return levels.to(x.dtype).div_(255)
