"""Data sets with other test sets than their own: test images under augmentations, and a run's held-out images."""

from collections.abc import Mapping, Sequence
from functools import partial
from typing import final

import torch

from .._lib.registry import build
from .._lib.seeds import generator_for
from ..augment.base import Augmentor
from ..corruptions.base import SEVERITIES, apply_planes
from ..corruptions.extra import EXTRA
from ..data._reading import OnDemand
from ..data.base import Images, Source
from ..evaluation.test_sets import chosen_places
from ..training.config import Config
from ..training.run_folder import split_of

STRENGTH: Mapping[str, Mapping[str, float]] = {"gaussian_noise": {"std": 0.1, "fraction": 1.0}}
"""Options of the augmentations where their defaults leave some images as they are."""


class OtherTests(Source):
    """Another data set but for its test sets."""

    def __init__(self, source: Source) -> None:
        self.source = source

    @property
    def classes(self) -> tuple[str, ...]:
        return self.source.classes

    @property
    def transform(self) -> Augmentor:
        return self.source.transform

    def train(self) -> Images:
        return self.source.train()


@final
class AugmentedTests(OtherTests):
    """The data set's own test images, clean and under each augmentation.

    The changed images are drawn once and for all: every network is tested on the same ones.
    """

    def __init__(self, source: Source, name: str, augmentations: Sequence[str], limit: int = 0, seed: int = 0) -> None:
        super().__init__(source)
        self.name, self.augmentations, self.limit, self.seed = name, augmentations, limit, seed

    def test(self) -> Mapping[str, Images]:
        own = next(iter(self.source.test().values()))
        clean = own.take(chosen_places(len(own), self.limit))
        found = {self.name: clean}
        for name in self.augmentations:
            augmentor: Augmentor = build("augment", name, STRENGTH.get(name, {}))
            views = augmentor(clean.floats(), generator_for(self.seed, "augmented", name))
            found[name] = Images(views.mul(255).round().to(torch.uint8), clean.labels)
        return found


@final
class HeldOut(OtherTests):
    """The images that a run holds out of its training images; options are selected on them. No test image is read.

    The first set is clean, each other one under an extra corruption, which no test has, at one severity.
    """

    def __init__(self, source: Source, config: Config, limit: int = 0) -> None:
        super().__init__(source)
        self.config, self.limit = config, limit

    def test(self) -> Mapping[str, Images]:
        held_out = split_of(self.config, self.source).validation
        clean = held_out.take(chosen_places(len(held_out), self.limit))

        def changed(name: str, severity: int) -> Images:
            return Images(apply_planes(EXTRA[name], clean.images, range(len(clean)), severity, seed=0), clean.labels)

        changes = {f"{name} {s}": partial(changed, name, s) for name in EXTRA for s in SEVERITIES}
        return OnDemand({"clean": lambda: clean} | changes)
