"""Small arrays: one thread for them, and their numbers as Python's, with types."""

from collections.abc import Generator
from contextlib import contextmanager
from typing import Any, cast

import torch
from torch import Tensor


@contextmanager
def one_thread() -> Generator[None]:
    """Run torch on one thread; the number that was set comes back.

    The arrays here are small: threads wait for each other longer than they work, ten times longer on a busy machine.
    """
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def floats(x: Tensor) -> list[float]:
    """The entries of a tensor in one list."""
    return cast(list[float], x.reshape(-1).tolist())


def lengths(x: Tensor, dim: int = -1) -> Tensor:
    """Lengths of the vectors along a dimension."""
    linalg: Any = torch.linalg  # its types are loose
    return cast(Tensor, linalg.vector_norm(x, dim=dim))


def rows(x: Tensor) -> list[list[float]]:
    """The rows of a matrix."""
    return cast(list[list[float]], x.tolist())


def flags(x: Tensor) -> list[bool]:
    """The entries of a mask."""
    return cast(list[bool], x.tolist())
