"""AutoAugment (Cubuk et al., 2019): one of 25 learned pairs of operations for each image."""

from dataclasses import dataclass
from typing import final

import torch
from torch import Tensor

from .._errors import check_choice
from ._geometry import Interpolation
from ._operations import NAMES, apply_each, from_bytes, to_grey, values_of
from ._overlaps import corruptions_in
from ._policies import AUTO_STEPS, Policy, strengths, sub_policies
from ._random import integers, signs, uniform
from .base import Augmentor


@final
@dataclass(frozen=True, kw_only=True)
class AutoAugment(Augmentor):
    """Each image draws a sub-policy, and its two operations happen with their own probabilities.

    Images come back in whole grey levels.
    """

    policy: Policy = "cifar10"
    """The data set on which the sub-policies were learned."""
    interpolation: Interpolation = "nearest"
    """Of the geometric operations."""

    def __post_init__(self) -> None:
        check_choice("policy", self.policy, Policy)
        check_choice("interpolation", self.interpolation, Interpolation)

    @property
    def overlaps(self) -> tuple[str, ...]:
        return corruptions_in(name for pair in sub_policies(self.policy) for name, chance, _ in pair if chance > 0)

    def __call__(self, x: Tensor, generator: torch.Generator | None = None) -> Tensor:
        n = len(x)
        table = [[(NAMES.index(name), p, m / AUTO_STEPS) for name, p, m in pair] for pair in sub_policies(self.policy)]
        drawn = torch.tensor(table, device=x.device)[integers(n, 0, len(table), x, generator)]
        grey = to_grey(x)
        for step in drawn.unbind(1):
            number, probability, strength = step.unbind(1)
            happens = uniform(n, 0, 1, x, generator) < probability
            which = torch.where(happens, number, NAMES.index("identity")).long()
            value = values_of(strengths(*x.shape[-2:]), which, strength, signs(n, x, generator))
            grey = apply_each(grey, which, value, self.interpolation)
        return from_bytes(grey, x.dtype)
