"""Gaussian (Kireev et al., 2022): cross-entropy on images with white noise, on all or on half of a batch.

Idea: a network that classifies noisy images correctly is smooth around each image, and noise is among the test
corruptions; leaving half of a batch clean preserves the accuracy on clean images.
Formula: CE(clip(x + σ N(0, I), 0, 1)) on a share of the batch, CE(x) on the rest; x in [0, 1] after crop and flip.
Source: Kireev, Andriushchenko, Flammarion, On the effectiveness of adversarial training against common corruptions, UAI
2022.
Defaults: the weak recipe, sigma 0.05 and share 1, which is the row "Gaussian" of the PDE+ paper; the strong one is
sigma 0.1 and share 0.5.
Cost: one forward and one backward pass, as ERM; the cost of the noise is negligible.
Published: CIFAR-10 accuracy clean / corrupted: weak, ResNet-18 92.50 / 80.46 (PDE+ paper); strong, PreAct-ResNet-18
93.24 / 85.04 (Kireev et al., 2022; RobustBench).
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import final

from torch import nn

from ..augment.gaussian_noise import GaussianNoise
from ..data.base import Batch
from .base import Objective, WithViews, check_range


@final
@dataclass(frozen=True, kw_only=True)
class Gaussian(WithViews):
    """Training on noisy images. The defaults are the published weak recipe."""

    sigma: float = 0.05
    """Standard deviation of the noise, for images in [0, 1]: 0.05 (weak) or 0.1 (strong) as published."""
    share: float = 1.0
    """Share of a batch's images that get noise: 1 (weak) or 0.5 (strong) as published."""

    def __post_init__(self) -> None:
        super().__post_init__()
        check_range(0, math.inf, sigma=self.sigma)
        check_range(0, 1, share=self.share)

    @property
    def label(self) -> str:
        weak = (self.sigma, self.share) == (0.05, 1.0)  # the paper's row
        recipe = "Gaussian" if weak else f"Gaussian σ={self.sigma:g} on {100 * self.share:g} %"
        return recipe + "+JSD" * bool(self.jsd) + self.other_views

    @property
    def noise(self) -> GaussianNoise:
        """What is done to the images."""
        return GaussianNoise(std=self.sigma, fraction=self.share)

    @property
    def overlaps(self) -> tuple[str, ...]:
        """Test corruptions that the training images go through too."""
        return self.noise.overlaps

    def objectives(self, model: nn.Module, batch: Batch) -> Iterator[Objective]:
        yield self.objective(model, self.drawn(batch, self.noise), batch)
