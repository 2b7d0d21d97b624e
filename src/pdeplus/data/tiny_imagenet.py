"""Tiny-ImageNet (Stanford CS231n, 2015): 100,000 + 10,000 photographs of 64×64 in 200 classes."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import final

import torch

from ..errors import UserError
from ._download import Origin, require_folder
from ._pictures import Files
from ._reading import class_folders, labelled_pictures
from .base import Images, Source

ORIGIN = Origin(
    name="tiny_imagenet",
    folder="tiny-imagenet-200",
    marks=("train", "val/val_annotations.txt"),
    size="248 MB",
    downloads={"https://cs231n.stanford.edu/tiny-imagenet-200.zip": "90528d7ca1a48142e341f4ef8d21d0de"},
)


@final
@dataclass(frozen=True, kw_only=True)
class TinyImagenet(Source):
    """The original layout, whole or with some of its classes; its validation images are the test set.

    The images of the official test set have no labels and are left alone.
    """

    root: str = ""
    """Folder that holds tiny-imagenet-200, or that folder; else $PDEPLUS_DATA, else ~/.cache/pdeplus."""
    size: int = 64
    """Side of the images in pixels; the authors' code has 32."""

    @property
    def classes(self) -> tuple[str, ...]:
        """The words of each WordNet id with a folder in train/, in the order of the ids; the id where it has none."""
        path, words = require_folder(ORIGIN, self.root) / "words.txt", dict[str, str]()
        if path.is_file():
            lines = path.read_text("utf-8", errors="replace").splitlines()
            words = {wnid: name for wnid, _, name in (line.partition("\t") for line in lines) if name}
        return tuple(words.get(wnid, wnid) for wnid in self.class_folders)

    @property
    def class_folders(self) -> tuple[str, ...]:
        return class_folders(require_folder(ORIGIN, self.root) / "train")

    def train(self) -> Images:
        folder = require_folder(ORIGIN, self.root) / "train"
        return labelled_pictures(folder, class_folders(folder), self.size)

    def test(self) -> Mapping[str, Images]:
        folder = require_folder(ORIGIN, self.root)
        return {"clean": _validation_images(folder / "val", class_folders(folder / "train"), self.size)}


def _validation_images(folder: Path, wnids: tuple[str, ...], size: int) -> Images:
    """The images that val_annotations.txt gives to these classes, in its order."""
    annotations, labels = folder / "val_annotations.txt", {wnid: label for label, wnid in enumerate(wnids)}
    rows = [line.split("\t") for line in annotations.read_text("utf-8", errors="replace").splitlines() if line]
    bad = next((i for i, row in enumerate(rows) if len(row) < 2 or Path(row[0]).name != row[0]), None)
    if bad is not None:
        raise UserError(f"{annotations}: line {bad + 1} is not a file's name and a class")
    wanted = [(folder / "images" / file, labels[wnid]) for file, wnid, *_ in rows if wnid in labels]
    missing = next((path for path, _ in wanted if not path.is_file()), None)
    if missing is not None:
        raise UserError(f"{missing} is missing; {annotations.name} names it")
    empty = sorted(set(range(len(wnids))) - {label for _, label in wanted})
    if empty:
        raise UserError(f"{annotations} has no image of class {wnids[empty[0]]!r}")
    return Images(Files.open([path for path, _ in wanted], size), torch.tensor([label for _, label in wanted]))
