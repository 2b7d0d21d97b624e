"""What options are selected on: a run's held-out training images, clean and under corruptions that no test has."""

from collections.abc import Mapping
from typing import final

from ..augment.base import Augmentor
from ..corruptions.base import SEVERITIES, apply_planes
from ..corruptions.extra import EXTRA
from ..data.base import Images, Source, split
from ..evaluation.test_sets import chosen_places
from ..training.config import Config


@final
class HeldOut(Source):
    """Another data set whose test sets are the images that a run holds out of its training images.

    No test image is read. The first set is clean, each other one under an extra corruption at one severity.
    """

    def __init__(self, source: Source, config: Config, limit: int = 0) -> None:
        self.source, self.config, self.limit = source, config, limit

    @property
    def classes(self) -> tuple[str, ...]:
        return self.source.classes

    @property
    def transform(self) -> Augmentor:
        return self.source.transform

    def train(self) -> Images:
        return self.source.train()

    def test(self) -> Mapping[str, Images]:
        train = self.config.train
        held_out = split(self.source, validation=train.validation, limit=train.limit, seed=self.config.seed).validation
        clean = held_out.take(chosen_places(len(held_out), self.limit))
        places = range(len(clean))
        return {"clean": clean} | {
            f"{name} {severity}": Images(apply_planes(corruption, clean.images, places, severity, seed=0), clean.labels)
            for name, corruption in EXTRA.items()
            for severity in SEVERITIES
        }
