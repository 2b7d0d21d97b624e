"""Cubic splines of C̄'s corruptions: rotated images and enlarged lines, as matrices."""

from functools import lru_cache
from typing import Any, cast

import numpy as np
import torch
from numpy.typing import NDArray
from scipy import ndimage, sparse
from torch import Tensor

from ._filters import DENSE, Matrix, border_index, separable

Numbers = NDArray[np.float64]
ROTATIONS = 21


def mean_of_rotations(x: Tensor, degrees: float) -> Tensor:
    """The weighted mean of 21 rotations of N×C×H×W by up to ± degrees about the centre; black comes in from outside."""
    n, c, h, w = x.shape
    if max(h, w) <= DENSE:
        coefficients = separable(x, _coefficients_matrix(h), _coefficients_matrix(w))
        flat = coefficients.reshape(n * c, h * w).T.contiguous().cpu().numpy()
        return torch.from_numpy(_rotations_operator(h, w, degrees) @ flat).to(x).T.reshape(n, c, h, w)
    planes = x.reshape(n * c, h, w).cpu().numpy()
    total = np.zeros_like(planes)
    for plane, out in zip(planes, total, strict=True):
        smooth = cast(Numbers, ndimage.spline_filter(plane, mode="mirror"))
        for angle, weight in _rotations(degrees):
            out += weight * ndimage.rotate(smooth, angle, reshape=False, prefilter=False)
    return torch.from_numpy(total).to(x).view(n, c, h, w)


def _rotations(degrees: float) -> list[tuple[float, float]]:
    """Angles from -degrees to degrees and their weights, exp(-2 (angle / degrees)²), of sum 1."""
    position = np.linspace(-1, 1, ROTATIONS)
    weights = np.exp(-2 * position**2)
    return list(zip((position * degrees).tolist(), (weights / weights.sum()).tolist(), strict=True))


@lru_cache(maxsize=16)
def _rotations_operator(h: int, w: int, degrees: float) -> Matrix:
    """That mean as one sparse matrix on spline coefficients: a pixel sees few others, on an arc about the centre."""
    middle_row, middle_column = (h - 1) / 2, (w - 1) / 2
    down, across = (np.indices((h, w)).reshape(2, -1) - np.array([[middle_row], [middle_column]])).astype(np.float64)
    total: Any = sparse.csr_matrix((h * w, h * w))
    for angle, weight in _rotations(degrees):
        cos, sin = np.cos(np.radians(angle)), np.sin(np.radians(angle))
        rows, columns = cos * down + sin * across + middle_row, cos * across - sin * down + middle_column
        total = total + weight * _values_matrix(rows, columns, h, w)
    return total.astype(np.float32)


def _values_matrix(rows: Numbers, columns: Numbers, h: int, w: int) -> Matrix:
    """From spline coefficients of H×W pixels to values at some points; 0 for a point outside."""
    inside = (rows >= 0) & (rows <= h - 1) & (columns >= 0) & (columns <= w - 1)
    (above, row_weights), (left, column_weights) = cubic_taps(rows, h), cubic_taps(columns, w)
    places, weights = above[:, None] * w + left, row_weights[:, None] * column_weights * inside
    points = np.broadcast_to(np.arange(len(rows)), places.shape)
    return sparse.csr_matrix((weights.ravel(), (points.ravel(), places.ravel())), shape=(len(rows), h * w))


def cubic_taps(positions: Numbers, size: int) -> tuple[NDArray[np.int64], Numbers]:
    """The four pixels that a cubic B-spline reads at each position of a line, mirrored at its ends; their weights."""
    taps = np.floor(positions).astype(np.int64) + np.arange(-1, 3)[:, None]
    distance = np.abs(positions - taps)
    weights = np.where(distance < 1, 2 / 3 - distance**2 + distance**3 / 2, (2 - distance).clip(0) ** 3 / 6)
    return border_index(taps, size, "mirror"), weights


@lru_cache(maxsize=16)
def _coefficients_matrix(size: int) -> Matrix:
    """From the values of a line to the coefficients of the cubic spline through them."""
    return sparse.csr_matrix(cast(Numbers, ndimage.spline_filter1d(np.eye(size), axis=0, mode="mirror")))


@lru_cache(maxsize=32)
def enlarging_matrix(size: int, factor: float) -> Matrix:
    """Enlarge a line, end points on end points, and keep its middle; values serve as coefficients, which softens."""
    enlarged = round(size * factor)
    step = (size - 1) / (enlarged - 1) if enlarged > 1 else 0.0
    taps, weights = cubic_taps((np.arange(size, dtype=np.float64) + (enlarged - size) // 2) * step, size)
    points = np.broadcast_to(np.arange(size), taps.shape)
    return sparse.csr_matrix((weights.ravel(), (points.ravel(), taps.ravel())), shape=(size, size))
