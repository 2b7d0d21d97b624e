"""Your own pictures: a folder with a folder of pictures for each class."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import final

from .._lib.registry import NEW
from ..augment.crop_flip import CropFlip
from ..errors import UserError, check_least
from ._pictures import MEMORY_GB, Files, Interpolation, is_picture
from ._reading import class_folders, labelled_pictures
from .base import Images, Source, check_fraction, check_size, hold_out

TESTS = ("test", "testing", "val", "valid", "validation")
"""What a folder of test pictures may be called."""


@final
@dataclass(frozen=True, kw_only=True)
class ImageFolder(Source):
    """Class folders in train/ and in test/ (or val/), or in one folder of which a fixed part is held out for test.

    A folder with only test/ is only for testing.

    Pictures may be of any size and common format: the centre square is resized. Files of other kinds are ignored.
    """

    root: str = ""
    """The folder."""
    size: int = 64
    """Side of the images in pixels."""
    held_out: float = 0.2
    """Fraction of each class that is the test set if there is no folder test/ or val/; 1 for testing only."""
    seed: int = 0
    """Decides which pictures are held out."""
    flip: bool = True
    """Whether a mirror image shows the same class."""
    memory_gb: float = MEMORY_GB
    """Decoded pictures that take more than this are streamed from disk instead of kept."""
    crop: float = field(default=1.0, metadata=NEW)
    """Fraction of a picture's centre square that an image shows; a network by URI sets its own."""
    interpolation: Interpolation = field(default="bilinear", metadata=NEW)
    """How pictures are resized; a network by URI sets its own."""
    read_size: int = field(default=0, metadata=NEW)
    """Side at which the whole centre squares of training pictures are kept, for a transform that cuts images of `size`
    out of them; 0 for images as in the test."""

    def __post_init__(self) -> None:
        check_size(self.size)
        if self.held_out != 1:
            check_fraction("held_out", self.held_out)
        check_least("data.read_size", self.read_size, 0)
        if not 0 < self.crop <= 1:
            raise UserError(f"data.crop={self.crop} must be above 0 and at most 1")
        if not self.root:
            raise UserError("data.root is not set; set it to the folder of your pictures")

    @property
    def classes(self) -> tuple[str, ...]:
        return class_folders(self._folders()[0])

    @property
    def has_test(self) -> bool:
        """Whether the test pictures are in a folder of their own."""
        return self._folders()[1] is not None

    @property
    def transform(self) -> CropFlip:
        return CropFlip(padding=self.size // 8, flip=self.flip)

    def train(self) -> Images:
        train, test = self._folders()
        if test == train or (test is None and self.held_out == 1):
            raise UserError(f"{self.root} has no pictures to train on: all of them are the test set")
        if test is not None:
            self._check_test(train, test)
        images = self._pictures(train, self.read_size)
        return images if test else hold_out(images, self.held_out, self.seed, "image_folder", self.classes)[0]

    def test(self) -> Mapping[str, Images]:
        train, test = self._folders()
        if test is None and self.held_out == 1:
            return {"test": self._pictures(train)}
        if test is None:
            return {"test": hold_out(self._pictures(train), self.held_out, self.seed, "image_folder", self.classes)[1]}
        self._check_test(train, test)
        return {"test": self._pictures(test)}

    def _check_test(self, train: Path, test: Path) -> None:
        """Refuse other classes in the test than in training; it is asked before training, which reads no test image."""
        learnt, tested = self.classes, class_folders(test)
        more = [name for name in tested if name not in learnt]
        lacks = [name for name in learnt if name not in tested]
        if more:
            raise UserError(f"{test / more[0]}: class {more[0]!r} is not in {train}, which has {', '.join(learnt)}")
        if lacks:
            raise UserError(f"{test} has no folder for class {lacks[0]!r} of {train}")

    def as_tested(self, images: Images) -> Images:
        if not self.read_size or not isinstance(images.stored, Files):
            return images
        paths = [images.stored.paths[int(row)] for row in images.stored.chosen]
        memory_gb = self.memory_gb if images.stored.kept is not None else 0  # a part of what is streamed is streamed
        return Images(Files.open(paths, self.size, memory_gb, self.crop, self.interpolation), images.labels)

    def _pictures(self, folder: Path, read_size: int = 0) -> Images:
        """Those in a folder as in the test, or whole at another size."""
        shown = {"crop": 1.0 if read_size else self.crop, "interpolation": self.interpolation}
        return labelled_pictures(folder, self.classes, read_size or self.size, self.memory_gb, **shown)

    def _folders(self) -> tuple[Path, Path | None]:
        """The folder to learn from, and the one to test on if there is one; the same twice where that is all."""
        root = Path(self.root).expanduser()
        if not root.is_dir():
            raise UserError(f"data.root={self.root!r}: there is no such folder")
        train, test = _part(root, ("train", "training")), _part(root, TESTS)
        folders = [entry.name for entry in root.iterdir() if entry.is_dir() and not entry.name.startswith((".", "__"))]
        if train is None and test is not None and all(name.lower() in TESTS for name in folders):
            train = test
        return (train, test) if train else (root, None)


def _part(root: Path, names: tuple[str, ...]) -> Path | None:
    """The folder of the first of these names, in letters of either case, that holds class folders.

    One with pictures in it is none: a class may itself be called "train".
    """
    found = {entry.name.lower(): entry for entry in root.iterdir() if entry.is_dir()}
    for folder in (found[name] for name in names if name in found):
        entries = list(folder.iterdir())
        if any(entry.is_dir() for entry in entries) and not any(is_picture(entry.name) for entry in entries):
            return folder
    return None
