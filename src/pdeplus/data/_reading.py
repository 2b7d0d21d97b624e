"""What readers of data sets share: class folders as labelled images, labels checked, images resized."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional as F

from ..errors import UserError
from ._pictures import MEMORY_GB, Files, picture_files
from .base import Images

CHUNK = 1000
"""Images that are resized at a time: as floats they take four times the room."""


def class_folders(folder: Path) -> tuple[str, ...]:
    """The names of the class folders in a folder, sorted; fewer than two are refused."""
    try:
        found = [entry.name for entry in folder.iterdir() if entry.is_dir()]
    except OSError as error:
        raise UserError(f"{folder} cannot be read as a folder: {error.strerror}") from error
    names = sorted(name for name in found if not name.startswith(".") and name != "__MACOSX")
    if len(names) < 2:
        there = f"only {names[0]!r}" if names else "none"
        raise UserError(f"{folder} needs a folder for each of two or more classes; it has {there}")
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


def checked_labels(values: Sequence[Any] | NDArray[Any], classes: int, path: str | Path) -> Tensor:
    """Labels as int64 N; one that is not among 0 … classes − 1 is refused with its place."""
    try:
        array = np.asarray(values)
    except ValueError as error:
        raise UserError(f"{path}: labels must be a list of whole numbers: {error}") from error
    if array.ndim != 1 or not (np.issubdtype(array.dtype, np.integer) or not len(array)):
        raise UserError(f"{path}: labels must be a list of whole numbers, not {array.dtype} of shape {array.shape}")
    wrong = np.flatnonzero((array < 0) | (array >= classes))
    if len(wrong):
        place = int(wrong[0])
        raise UserError(f"{path}: label {array[place]} at {place} is not among 0 … {classes - 1}")
    return torch.from_numpy(array.astype(np.int64))


def resize(images: Tensor, size: int) -> Tensor:
    """uint8 N×C×H×W → uint8 N×C×size×size, bilinear, antialiased when it shrinks; the same images at their own size."""
    if images.shape[-2:] == (size, size):
        return images
    out = torch.empty(*images.shape[:2], size, size, dtype=torch.uint8)
    for start in range(0, len(images), CHUNK):
        some = images[start : start + CHUNK].float()
        shown = F.interpolate(some, (size, size), mode="bilinear", antialias=True)
        out[start : start + CHUNK] = shown.round_().clamp_(0, 255).to(torch.uint8)
    return out
