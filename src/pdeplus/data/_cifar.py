"""The files of CIFAR-10 and CIFAR-100: pickles of rows of 3,072 bytes."""

from collections.abc import Sequence
from pathlib import Path
from typing import cast

import numpy as np
import torch
from numpy.typing import NDArray

from .._errors import UserError
from ._pickles import read_pickle
from ._pixels import checked_labels, resize
from .base import Images

ROW = 3 * 32 * 32


def read_batches(paths: Sequence[Path], label_key: str, classes: int, size: int) -> Images:
    """The images of some files, one file after the other, at size×size.

    Every file is checked: rows of 3,072 bytes, a label for each, labels in range.
    """
    rows, labels = list[NDArray[np.uint8]](), list[torch.Tensor]()
    for path in paths:
        entries = read_pickle(path)
        if not isinstance(entries.get("data"), np.ndarray) or not isinstance(entries.get(label_key), list):
            raise UserError(f"{path} is no CIFAR file: it has no 'data' or no '{label_key}'")
        data = cast(NDArray[np.uint8], entries["data"])
        if data.ndim != 2 or data.shape[1] != ROW or not len(data):
            raise UserError(f"{path}: data of shape {data.shape} is not N×{ROW}")
        labels.append(checked_labels(entries[label_key], classes, path))
        if len(labels[-1]) != len(data):
            raise UserError(f"{path} has {len(data)} images but {len(labels[-1])} labels")
        rows.append(data)
    images = torch.from_numpy(np.concatenate(rows)).view(-1, 3, 32, 32)
    return Images(resize(images, size), torch.cat(labels))
