"""Grids of one or two dimensions, and the solutions that live on them."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, final

import numpy as np
import torch
from numpy.typing import NDArray
from scipy import interpolate
from torch import Tensor

from ..errors import UserError

LEAST_POINTS = 5
"""Along an axis: the width of the difference stencil."""


@final
@dataclass(frozen=True, kw_only=True)
class Grid:
    """A box cut evenly along each axis, both ends included.

    Args:
        low: the box's lower corner, one number for each dimension.
        high: its upper corner.
        points: how many along each axis, at least 5.
    """

    low: tuple[float, ...]
    high: tuple[float, ...]
    points: tuple[int, ...]

    def __post_init__(self) -> None:
        if len(self.low) not in (1, 2) or not len(self.low) == len(self.high) == len(self.points):
            raise UserError(f"low={self.low}, high={self.high}, points={self.points} must each have 1 or 2 entries")
        for low, high, points in zip(self.low, self.high, self.points, strict=True):
            if not (math.isfinite(low) and math.isfinite(high) and low < high):
                raise UserError(f"low={low:g} must be below high={high:g}, both finite")
            if points < LEAST_POINTS:
                raise UserError(f"points={points} must be at least {LEAST_POINTS} along each axis")

    @property
    def dimension(self) -> int:
        """1 or 2."""
        return len(self.points)

    @property
    def spacing(self) -> tuple[float, ...]:
        """Between neighbours, along each axis."""
        return tuple((b - a) / (n - 1) for a, b, n in zip(self.low, self.high, self.points, strict=True))

    @property
    def axes(self) -> tuple[Tensor, ...]:
        """The coordinates along each axis."""
        ends = zip(self.low, self.high, self.points, strict=True)
        return tuple(torch.linspace(a, b, n, dtype=torch.float64) for a, b, n in ends)

    @cached_property
    def nodes(self) -> Tensor:
        """Every point of the grid, N×d, the last axis running fastest; always the same tensor."""
        return torch.stack(torch.meshgrid(*self.axes, indexing="ij"), -1).reshape(-1, self.dimension)


@final
@dataclass(frozen=True, kw_only=True)
class Solution:
    """u on a grid at the times that were kept.

    Args:
        grid: where.
        times: when, in the order asked for.
        values: times×grid points.
        steps: how many time steps from 1 to 0 it took.
    """

    grid: Grid
    times: tuple[float, ...]
    values: Tensor
    steps: int

    def on_grid(self, t: float = 0.0) -> Tensor:
        """u(·, t) on the grid; t must be among the times that were kept."""
        if t not in self.times:
            raise UserError(f"t={t:g} was not kept; solve with keep=({t:g}, …) or choose from {_listed(self.times)}")
        return self.values[self.times.index(t)]

    def at(self, points: Tensor, t: float = 0.0) -> Tensor:
        """u(points, t) for points N×d inside the grid, N; between grid points by cubic splines."""
        x = points.detach().double().numpy()
        if x.ndim != 2 or x.shape[1] != self.grid.dimension:
            raise UserError(f"points of shape {x.shape} must be N×{self.grid.dimension}, one row for each point")
        outside = ((x < np.array(self.grid.low)) | (x > np.array(self.grid.high))).any(-1)
        if outside.any():
            first = ", ".join(f"{part:.4g}" for part in x[outside][0])
            raise UserError(f"the point ({first}) lies outside the grid; solve on a larger one")
        return torch.from_numpy(_spline(self.grid, self.on_grid(t).numpy(), x))


def _spline(grid: Grid, values: NDArray[np.float64], x: NDArray[np.float64]) -> NDArray[np.float64]:
    """Cubic in every direction, through all values."""
    splines: Any = interpolate  # its types are loose
    axes = [axis.numpy() for axis in grid.axes]
    if grid.dimension == 1:
        return np.asarray(splines.make_interp_spline(axes[0], values, k=3)(x[:, 0]))
    return np.asarray(splines.RectBivariateSpline(*axes, values)(x[:, 0], x[:, 1], grid=False))


def _listed(times: Sequence[float]) -> str:
    return ", ".join(f"{t:g}" for t in times)
