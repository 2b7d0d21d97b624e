"""HybridAugment++ (Yucel et al., 2023): cross-entropy on images and on hybrids of their low and high frequencies.

Idea: the content of an image lies in its low frequencies and in its phases; a network that sees these combined with
other images' details and amplitudes learns not to rely on details and amplitudes.
Formula: (CE(s) + CE(h)) / 2 with the labels of x. Let low(u) be u under a 3×3 Gaussian of σ pixels, high(u) the rest of
u, and low(u; v) have the phases of low(u) and the amplitudes of low(v), by a Fourier transform over channel, height and
width. Single: s = o(x), one operation of AugMix; with probability 0.5, image by image, s = low(u; v) + high(v), where u
and v are o(x) and o′(o(x)) in random order (our reading). Paired: with probability 0.6, for the batch, h = low(s) +
high(s)[π], or, with probability 0.6 of these, h = low(s; s[π′]) + high(s)[π]; else h = s.
Source: Yucel, Cinbis, Duygulu, HybridAugment++: unified frequency spectra perturbations for model robustness, ICCV
2023.
Defaults: paired and single, σ 0.5, the probabilities above, operations of strength 3: as published.
Cost: two forward and two backward passes; one and a half operations and about one Fourier transform and back per image.
Published: accuracy corrupted, ResNet-18, paired and single: CIFAR-10 91.8, CIFAR-100 70.1.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Literal, cast, final

import torch
from torch import Tensor, nn

from .._lib.registry import NEW
from ..augment.hybrid import Hybrid
from ..data.base import Batch
from ..errors import UserError
from .base import Objective, Views, WithViews, views_of


@final
@dataclass(frozen=True, kw_only=True)
class HybridAugment(WithViews):
    """Training on images and their hybrids. The defaults are the published "paired and single"."""

    augmentor: Hybrid = Hybrid()
    """What is done to the images; no other augmentation has its two parts."""
    agreeing: Literal[2, 3] = field(default=2, metadata=NEW)
    """Views that agree; of the published views s and h, or these and x."""

    def __post_init__(self) -> None:
        super().__post_init__()
        given = cast(object, self.augmentor)
        if not isinstance(given, Hybrid):  # any augmentation's name can be set
            raise UserError(f"method.augmentor must be hybrid, not {type(given).__name__}; set its options")

    @property
    def chosen(self) -> Views:
        """The published s and h are a pair of augmentations, with one crop and flip."""
        return "both augmented" if self.views == "published" else self.views

    @property
    def label(self) -> str:
        a = self.augmentor
        name = "HybridAugment" + "++" * bool(a.exchange) + f" ({a.variants})" * (a.variants != "both")
        return name + "+JSD" * bool(self.jsd) + self.other_views

    def objectives(self, model: nn.Module, batch: Batch) -> Iterator[Objective]:
        views = self.published(batch) if self.views == "published" else self.drawn(batch, self.augmentor)
        yield self.objective(model, views, batch)

    def published(self, batch: Batch) -> list[Tensor]:
        """s, h and, where three agree, x."""
        clean, both = views_of(batch, self.image_and_hybrid)
        return [*both.chunk(2), clean][: self.number]

    def image_and_hybrid(self, x: Tensor, generator: torch.Generator) -> Tensor:
        """s and, behind it, h."""
        image = self.augmentor.of_one(x, generator)
        return torch.cat([image, self.augmentor.of_pairs(image, generator)])
