"""Picture files as images that are decoded when they are asked for, and kept if they fit into memory."""

import os
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import final

import numpy as np
import torch
from torch import Tensor
from tqdm import tqdm

from ._pictures import fit_square, read_picture

MEMORY_GB = 2.0
"""What decoded pictures may take before they are streamed from disk instead."""


@final
@dataclass(frozen=True)
class Files:
    """Some of a list of picture files, as images of one size.

    Picking decodes nothing. All picks from one list share what is decoded already.
    """

    paths: Sequence[str]
    size: int
    """Side of the images; a picture's centre square is resized to it."""
    chosen: Tensor
    """Which of the paths, in which order."""
    kept: "Kept | None"
    """What is decoded already; None for pictures that do not fit into memory."""

    @staticmethod
    def open(paths: Sequence[str | Path], size: int, memory_gb: float = MEMORY_GB) -> "Files":
        """All of these files; their images are kept in memory once decoded if all together take `memory_gb` or less."""
        fits = 3 * size * size * len(paths) <= memory_gb * 1e9
        return Files(
            [str(path) for path in paths], size, torch.arange(len(paths)), Kept(len(paths), size) if fits else None
        )

    def __len__(self) -> int:
        return len(self.chosen)

    def __getitem__(self, indices: Tensor) -> "Files":
        return Files(self.paths, self.size, self.chosen[indices], self.kept)

    def read(self, *, progress: bool = False) -> Tensor:
        """The images as uint8 N×3×size×size, decoded by several threads; `progress` shows a bar on a terminal."""
        if self.kept is None:
            return self._decode(self.chosen, progress)
        missing = self.chosen[~self.kept.known[self.chosen]]
        if len(missing):
            self.kept.images[missing] = self._decode(missing, progress)
            self.kept.known[missing] = True
        return self.kept.images[self.chosen]

    def _decode(self, rows: Tensor, progress: bool) -> Tensor:
        out = np.empty((len(rows), 3, self.size, self.size), dtype=np.uint8)

        def fill(place: int, row: int) -> None:
            out[place] = fit_square(read_picture(self.paths[row]), self.size).transpose(2, 0, 1)

        done = _pool().map(fill, range(len(rows)), map(int, rows))
        shown = tqdm(done, "reading pictures", len(rows), leave=False, disable=None if progress else True)
        for _ in shown:
            pass
        return torch.from_numpy(out)


@final
class Kept:
    """Room for the images of all files, and which of them are there."""

    def __init__(self, n: int, size: int) -> None:
        self.images = torch.empty((n, 3, size, size), dtype=torch.uint8)
        self.known = torch.zeros(n, dtype=torch.bool)


@cache
def _pool() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(min(os.cpu_count() or 1, 16), thread_name_prefix="pictures")
