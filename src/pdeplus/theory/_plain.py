"""Tensors as plain numbers, typed."""

from typing import Any, cast

import torch
from torch import Tensor


def floats(x: Tensor) -> list[float]:
    """The entries of a tensor in one list."""
    return cast(list[float], x.reshape(-1).tolist())


def lengths(x: Tensor, dim: int = -1) -> Tensor:
    """Of the vectors along a dimension."""
    linalg: Any = torch.linalg  # its types are loose
    return cast(Tensor, linalg.vector_norm(x, dim=dim))


def rows(x: Tensor) -> list[list[float]]:
    """The rows of a matrix."""
    return cast(list[list[float]], x.tolist())


def flags(x: Tensor) -> list[bool]:
    """The entries of a mask."""
    return cast(list[bool], x.tolist())
