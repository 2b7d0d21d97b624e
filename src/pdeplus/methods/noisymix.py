"""NoisyMix (Erichson et al., 2022): AugMix's three consistent views, mixed and made noisy at a random stage.

Idea: agreement of an image with its augmentations, and smoothness by noisy feature mixup, each help against
corruptions, and together they help more. The more a view is changed already, the stronger its noise.
Formula: the views x, a_1(x), a_2(x) go through the network together; at a random place (as NFM's) each becomes λ h + (1
- λ) h[π] with the same λ ~ Beta(α, α) and π, then (1 + m·B·U(-1, 1)) ⊙ h + v·a·B′·N(0, 1) with v = 1, 2, 3 for the
three views, B and B′ ~ Beta(2, 5) drawn once per view. Each element of U and of N is 0 with probability `sparsity`: at
0.65 the noise acts on 35 % of the elements, for U and N separately (our reading of "sparsity"). At the input, h = (x -
0.5) / 0.5 as in the published code: in pixels (1 + m·B·U) ⊙ (x - 0.5) + 0.5 + 0.5·v·a·B′·N. Loss: λ CE(y) + (1 - λ)
CE(y[π]) of the first view, and jsd · JS of the three predictions. Plain at test.
Source: Erichson et al., NoisyMix: boosting model robustness to common corruptions, 2022.
Defaults: α = 1, a = 0.5, m = 0.5, sparsity 0.65, jsd = 12, AugMix of severity 3 and width 3 with its nine operations.
Cost: a forward and backward pass of three images for each image; AugMix twice; the noise at one place.
Published: CIFAR-10 accuracy clean / corrupted: WRN-28-4 96.73 / 92.78, CIFAR-100 81.16 / 72.06 (RobustBench).
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal, final

import torch
from torch import Tensor, nn

from ..augment.augmix import AugMix
from ..augment.base import Augmentor
from ..core.network import changing, output_shapes
from ..data.base import Batch
from ..errors import UserError
from ._mixing import Mix, Units, check_alpha, corruptions_in_noise, draw_mix, mixed, mixing_places, noisy_at
from .base import Objective, WithViews, check_range

UNITS = Units(mean=0.5, std=0.5)
LEVELS = (1, 2, 3)
"""How strong the additive noise is for the clean view and the two augmented ones."""


@final
@dataclass(frozen=True, kw_only=True)
class NoisyMix(WithViews):
    """Consistent, mixed, noisy views. The network itself is not changed, and plain at test."""

    augmentor: Augmentor = AugMix()
    """What makes the second and the third view."""
    jsd: float = 12.0
    """Weight of the agreement of the views' predictions, above 0."""
    alpha: float = 1.0
    """α of λ ~ Beta(α, α); 1 draws λ uniformly."""
    additive: float = 0.5
    """Level of the additive noise, a."""
    multiplicative: float = 0.5
    """Level of the multiplicative noise, m."""
    sparsity: float = 0.65
    """Share of the elements that the noise leaves alone."""
    placement: Literal["stage"] | tuple[str, ...] = "stage"
    """Mix at the input, and behind the first three stages or the named modules."""

    def __post_init__(self) -> None:
        if not self.jsd > 0:
            raise UserError(f"method.jsd={self.jsd} must be above 0: NoisyMix without consistency is method.name='nfm'")
        super().__post_init__()
        check_alpha(self.alpha)
        check_range(0, math.inf, additive=self.additive, multiplicative=self.multiplicative)
        check_range(0, 1, sparsity=self.sparsity)

    @property
    def overlaps(self) -> tuple[str, ...]:
        """A share of the batches has its noise on the images."""
        return () if self.sparsity == 1 else corruptions_in_noise(self.additive, self.multiplicative)

    def prepare(self, model: nn.Module, example: Tensor) -> nn.Module:
        output_shapes(model, mixing_places(model, self.placement)[1:], example)  # refuses wrong ones before training
        return model

    def objectives(self, model: nn.Module, batch: Batch) -> Iterator[Objective]:
        views = self.drawn(batch, self.augmentor)
        mix = draw_mix(mixing_places(model, self.placement), batch.labels, self.alpha, batch.generator)
        with changing(model, {mix.place: lambda h: self.changed(h, mix, batch.generator)}):
            goal = self.objective(model, views, batch, mix)
        yield goal

    def changed(self, h: Tensor, mix: Mix, generator: torch.Generator) -> Tensor:
        """The features of the views mixed, then noisy, each view's additive noise at its level."""
        levels = LEVELS if self.chosen in ("original", "original+augmented") else LEVELS[1:] + LEVELS[:1]
        views = zip(levels, mixed(h, mix).chunk(self.number), strict=False)
        noise = self.multiplicative, generator, self.sparsity
        return torch.cat([noisy_at(mix.place, view, UNITS, level * self.additive, *noise) for level, view in views])
