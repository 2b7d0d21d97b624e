"""NFM (Lim et al., 2022): mixup with noise, at the input or at the features of a random stage.

Idea: mixing pairs makes the network linear between samples, and noise makes it smooth around them; both at random depth
regularise every layer.
Formula: k is the input or one of the first three stages, with equal probability. There h becomes λ h + (1 - λ) h[π]
with λ ~ Beta(α, α) and a permutation π of the batch, then (1 + m·B·U(-1, 1)) ⊙ h + a·B′·N(0, 1) with B and B′ ~ Beta(2,
5) drawn once per batch. At the input, h = (x - μ) / s as in the published code, whose images are normalised: in pixels
(1 + m·B·U) ⊙ (x - μ) + μ + s·a·B′·N, not cut to [0, 1]. Loss: λ CE(y) + (1 - λ) CE(y[π]). Plain at test.
Source: Lim et al., Noisy feature mixup, ICLR 2022.
Defaults: α = 1, a = 0.4, m = 0.2, as published; μ = 0.47 and s = 0.25, CIFAR's mean and deviation over all channels
(published by channel: 0.49, 0.48, 0.45 and 0.25, 0.24, 0.26).
Cost: one forward and backward pass, as ERM, and drawing the noise at one place.
Published: CIFAR-10 accuracy clean / corrupted: PreAct-ResNet-18 95.40 / 83.30, CIFAR-100 79.40 / 59.70 (as quoted in
the PDE+ paper).
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal, final

from torch import Tensor, nn

from ..core.network import changing, output_shapes
from ..data.base import Batch
from ._mixing import Units, check_alpha, corruptions_in_noise, draw_mix, mixed, mixing_places, noisy_at
from .base import Method, Objective, check_range, objective_on, views_of

UNITS = Units(mean=0.47, std=0.25)


@final
@dataclass(frozen=True, kw_only=True)
class NFM(Method):
    """Noisy feature mixup. The network itself is not changed, and plain at test."""

    alpha: float = 1.0
    """α of λ ~ Beta(α, α); 1 draws λ uniformly."""
    additive: float = 0.4
    """Level of the additive noise, a."""
    multiplicative: float = 0.2
    """Level of the multiplicative noise, m."""
    placement: Literal["stage"] | tuple[str, ...] = "stage"
    """Mix at the input, and behind the first three stages or the named modules."""

    def __post_init__(self) -> None:
        check_alpha(self.alpha)
        check_range(0, math.inf, additive=self.additive, multiplicative=self.multiplicative)

    @property
    def overlaps(self) -> tuple[str, ...]:
        """A share of the batches has its noise on the images."""
        return corruptions_in_noise(self.additive, self.multiplicative)

    def prepare(self, model: nn.Module, example: Tensor) -> nn.Module:
        output_shapes(model, mixing_places(model, self.placement)[1:], example)  # refuses wrong ones before training
        return model

    def objectives(self, model: nn.Module, batch: Batch) -> Iterator[Objective]:
        views = views_of(batch)
        mix = draw_mix(mixing_places(model, self.placement), batch.labels, self.alpha, batch.generator)
        noise = UNITS, self.additive, self.multiplicative, batch.generator
        with changing(model, {mix.place: lambda h: noisy_at(mix.place, mixed(h, mix), *noise)}):
            goal = objective_on(model, views, batch, mix=mix)
        yield goal
