"""Test images under augmentations, a test set for each: what Figure 1 asks of a network trained on one of them."""

from collections.abc import Mapping, Sequence
from typing import final

import torch

from .._registry import build
from .._seeds import generator_for
from ..augment.base import Augmentor
from ..data.base import Images, Source
from ..suites import chosen_places

STRENGTH: Mapping[str, Mapping[str, float]] = {"gaussian_noise": {"std": 0.1, "fraction": 1.0}}
"""Options of the augmentations where their defaults leave some images as they are."""


@final
class AugmentedTests(Source):
    """Another data set whose test sets are its own test images, clean and under each augmentation.

    The changed images are drawn once and for all: every network is tested on the same ones.
    """

    def __init__(self, source: Source, name: str, augmentations: Sequence[str], limit: int = 0, seed: int = 0) -> None:
        self.source, self.name, self.augmentations, self.limit, self.seed = source, name, augmentations, limit, seed

    @property
    def classes(self) -> tuple[str, ...]:
        return self.source.classes

    @property
    def transform(self) -> Augmentor:
        return self.source.transform

    def train(self) -> Images:
        return self.source.train()

    def test(self) -> Mapping[str, Images]:
        own = next(iter(self.source.test().values()))
        clean = own.take(chosen_places(len(own), self.limit))
        return {self.name: clean, **{name: self._changed(clean, name) for name in self.augmentations}}

    def _changed(self, clean: Images, name: str) -> Images:
        augmentor: Augmentor = build("augment", name, STRENGTH.get(name, {}))
        views = augmentor(clean.floats(), generator_for(self.seed, "augmented", name))
        return Images(views.mul(255).round().to(torch.uint8), clean.labels)
