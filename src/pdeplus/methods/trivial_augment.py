"""TrivialAugment with noise (Siedel et al., 2024): one random operation, noise of several norms, an erased rectangle.

Idea: one operation of random strength for each image is as good as a learnt policy; noise drawn from balls of many
norms covers more kinds of noise than a single norm; a network that copes with both also copes with unseen corruptions.
Formula: CE(e(n(o(x)))): o is one of fourteen operations at one of 31 strengths; n(x) = clip(x + r u, 0, 1) on a share
of the images, with u uniform in the unit ball of a p-norm, p from {1/2, 1, 2, 50, 200, ∞}, and r ~ U(0, the largest of
p); e fills a rectangle with random values, with a probability. x after crop and flip; the order of the three is our
choice.
Source: Siedel et al., Investigating the corruption robustness of image classifiers with random p-norm corruptions,
VISAPP 2024, and its sequels; Müller and Hutter, TrivialAugment, ICCV 2021; Zhong et al., Random erasing, AAAI 2020.
Defaults: TrivialAugment's wide ranges; noise on half of the images (our choice); erasing with probability 0.5 of 2 to
40 % of the area, as published by Zhong et al. An `identity` in place of a part leaves it out.
Cost: one forward and one backward pass, as ERM; an operation on each image, and random numbers for half of them.
Published: accuracy clean / corrupted, WRN-28-4: CIFAR-10 96.7 / 91.5, CIFAR-100 – / 70.1; TrivialAugment alone 96.5 /
86.7 and – / 63.2.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import final

import torch
from torch import Tensor, nn

from ..augment.base import Augmentor
from ..augment.identity import Identity
from ..augment.p_norm_noise import PNormNoise
from ..augment.random_erasing import RandomErasing
from ..augment.trivial_augment import TrivialAugment
from ..data.base import Batch
from .base import Objective, WithViews


@final
@dataclass(frozen=True, kw_only=True)
class TrivialAugmentTraining(WithViews):
    """Training on images that went through an operation, noise and erasing."""

    augmentor: Augmentor = TrivialAugment()
    """The operation."""
    noise: Augmentor = PNormNoise()
    """What follows it."""
    erasing: Augmentor = RandomErasing()
    """What follows the noise."""

    @property
    def label(self) -> str:
        others = {"noise": self.noise, "erasing": self.erasing}
        names = [name for name, part in others.items() if not isinstance(part, Identity)]
        return "+".join([type(self.augmentor).__name__, *names, *["JSD"] * bool(self.jsd)]) + self.other_views

    def objectives(self, model: nn.Module, batch: Batch) -> Iterator[Objective]:
        yield self.objective(model, self.drawn(batch, self.changed), batch)

    def changed(self, x: Tensor, generator: torch.Generator) -> Tensor:
        """The images after the three."""
        return self.erasing(self.noise(self.augmentor(x, generator), generator), generator)
