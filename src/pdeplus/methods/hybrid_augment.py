"""HybridAugment++ (Yucel et al., 2023): cross-entropy on images and on hybrids of their low and high frequencies.

Idea: what an image shows lies in its low frequencies and in its phases; a network that sees them with other images'
details and amplitudes learns not to rely on these.
Formula: (CE(s) + CE(h)) / 2 with the labels of x. Let low(u) be u under a 3×3 Gaussian of σ pixels, high(u) the rest of
u, and low(u; v) have the phases of low(u) and the amplitudes of low(v), by a Fourier transform over channel, height and
width. Single: s = o(x), one operation of AugMix; with probability 0.5, image by image, s = low(u; v) + high(v), where u
and v are o(x) and o′(o(x)) in random order (our reading). Paired: with probability 0.6, for the batch,
h = low(s) + high(s)[π], or, with probability 0.6 of these, h = low(s; s[π′]) + high(s)[π]; else h = s.
Source: Yucel, Cinbis, Duygulu, HybridAugment++: unified frequency spectra perturbations for model robustness, ICCV
2023.
Defaults: paired and single, σ 0.5, the probabilities above, operations of strength 3: as published.
Cost: two forward and two backward passes; one and a half operations and about one Fourier transform and back per image.
Published: accuracy corrupted, ResNet-18, paired and single: CIFAR-10 91.8, CIFAR-100 70.1.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import cast, final

import torch
from torch import Tensor, nn

from ..augment.hybrid import Hybrid
from ..data.base import Batch
from ..errors import UserError
from .base import Method, Objective, objective_on, views_of


@final
@dataclass(frozen=True, kw_only=True)
class HybridAugment(Method):
    """Training on images and their hybrids. The defaults are the published "paired and single"."""

    augmentor: Hybrid = Hybrid()
    """What is done to the images; no other augmentation has its two parts."""

    def __post_init__(self) -> None:
        given = cast(object, self.augmentor)
        if not isinstance(given, Hybrid):  # any augmentation's name can be set
            raise UserError(f"method.augmentor must be hybrid, not {type(given).__name__}; set its options")

    @property
    def label(self) -> str:
        a = self.augmentor
        return "HybridAugment" + "++" * bool(a.exchange) + f" ({a.variants})" * (a.variants != "both")

    def objectives(self, model: nn.Module, batch: Batch) -> Iterator[Objective]:
        views = views_of(batch, self.image_and_hybrid)[1].chunk(2)
        yield objective_on(model, views, batch, supervised="all")

    def image_and_hybrid(self, x: Tensor, generator: torch.Generator) -> Tensor:
        """s and, behind it, h."""
        image = self.augmentor.of_one(x, generator)
        return torch.cat([image, self.augmentor.of_pairs(image, generator)])
