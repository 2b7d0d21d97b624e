"""Class folders of picture files as labelled images; nothing is decoded here."""

from collections.abc import Sequence
from pathlib import Path

import torch

from .._errors import UserError
from .._seeds import generator_for
from ._pictures import picture_files
from ._stream import MEMORY_GB, Files
from .base import Images, stratified


def class_folders(folder: Path) -> tuple[str, ...]:
    """The names of the class folders in a folder, sorted; fewer than two are refused."""
    try:
        names = sorted(entry.name for entry in folder.iterdir() if entry.is_dir() and _shown(entry.name))
    except OSError as error:
        raise UserError(f"{folder} cannot be read as a folder: {error.strerror}") from error
    if len(names) < 2:
        found = f"only {names[0]!r}" if names else "none"
        raise UserError(f"{folder} needs a folder for each of two or more classes; it has {found}")
    return tuple(names)


def labelled_pictures(folder: Path, classes: Sequence[str], size: int, memory_gb: float = MEMORY_GB) -> Images:
    """All pictures in the folders of these classes, class by class in order of their paths.

    A class without a folder or without a picture is refused.
    """
    paths, labels = list[Path](), list[int]()
    for label, name in enumerate(classes):
        if not (folder / name).is_dir():
            raise UserError(f"{folder} has no folder for class {name!r}")
        found = picture_files(folder / name)
        if not found:
            raise UserError(f"{folder / name} has no picture in it")
        paths += found
        labels += [label] * len(found)
    return Images(Files.open(paths, size, memory_gb), torch.tensor(labels))


def hold_out(images: Images, fraction: float, seed: int, purpose: str, classes: Sequence[str]) -> tuple[Images, Images]:
    """Cut images in two, stratified: what is left, and `fraction` of each class. The seed alone decides which."""
    order = torch.randperm(len(images), generator=generator_for(seed, purpose))
    why = "one is held out for testing, and a validation split needs 2 more"
    held, rest = stratified(order, images.labels, fraction, classes, why)
    return images.take(rest.sort().values), images.take(held.sort().values)


def check_fraction(name: str, value: float) -> None:
    """Refuse a fraction outside (0, 1)."""
    if not 0 < value < 1:
        raise UserError(f"data.{name}={value} must lie between 0 and 1")


def _shown(name: str) -> bool:
    return not name.startswith(".") and name != "__MACOSX"
