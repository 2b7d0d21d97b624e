"""Clothes: 8,000 pictures of Fashion-MNIST (Xiao et al., 2017; MIT licence) that come with pdeplus, 28×28, grey."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from importlib import resources
from typing import final

import numpy as np
import torch

from ..errors import check_least
from ._reading import resize
from .base import Images, Source
from .fashion_mnist import NAMES


@final
@dataclass(frozen=True, kw_only=True)
class Clothes(Source):
    """The first 700 training and 100 test pictures of each of the ten classes, in the original order."""

    size: int = 28
    """Side of the images in pixels."""
    channels: int = 3
    """3 repeats the grey channel, as colour augmentations and corruptions expect."""

    def __post_init__(self) -> None:
        check_least("data.size", self.size, 1)
        check_least("data.channels", self.channels, 1)

    @property
    def classes(self) -> tuple[str, ...]:
        return NAMES

    def train(self) -> Images:
        return self._part("train")

    def test(self) -> Mapping[str, Images]:
        return {"clean": self._part("test")}

    def _part(self, part: str) -> Images:
        pixels, labels = _read(part)
        return Images(resize(pixels, self.size).repeat(1, self.channels, 1, 1), labels)


@lru_cache
def _read(part: str) -> tuple[torch.Tensor, torch.Tensor]:
    """Grey pictures N×1×28×28 and their labels, from the file beside this one (made by tools/clothes.py)."""
    with resources.as_file(resources.files("pdeplus.data") / "clothes.npz") as path, np.load(path) as arrays:
        return torch.from_numpy(arrays[f"{part}_images"])[:, None], torch.from_numpy(arrays[f"{part}_labels"]).long()
