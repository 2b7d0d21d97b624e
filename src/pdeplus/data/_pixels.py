"""Arrays from files as images: checked, put in order, resized."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional as F

from .._errors import UserError

CHUNK = 1000


def resize(images: Tensor, size: int) -> Tensor:
    """uint8 N×C×H×W → uint8 N×C×size×size, bilinear, antialiased when it shrinks; the same images at their own size."""
    if images.shape[-2:] == (size, size):
        return images
    out = torch.empty(*images.shape[:2], size, size, dtype=torch.uint8)
    for start in range(0, len(images), CHUNK):  # floats take four times the room
        some = images[start : start + CHUNK].float()
        shown = F.interpolate(some, (size, size), mode="bilinear", antialias=True)
        out[start : start + CHUNK] = shown.round_().clamp_(0, 255).to(torch.uint8)
    return out


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
