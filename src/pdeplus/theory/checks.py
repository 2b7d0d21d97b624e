"""Grid, paths and closed forms against each other, and the orders at which grid and paths converge."""

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from .._lib.long_work import counting_bar
from .problems import (
    Problem,
    bump_expectation,
    constant,
    directed,
    exact,
    geometric,
    lengths,
    ornstein_uhlenbeck,
    sheared,
    stretched,
)
from .transport import box, expectation, solve

CONFIDENCE = 0.999
STEPS = (8, 16, 32, 64, 128)
FEW_STEPS = (4, 8, 16, 32)
"""Steps of sampled paths: with more, sampling errs as much as the steps."""
CELLS = {1: (80, 120, 160, 200, 240), 2: (48, 64, 96, 128)}


class Case(NamedTuple):
    """A problem with a closed form, where it is looked at and how."""

    title: str
    problem: Problem
    half_width: float
    cells: int
    reach: float


class Agreement(NamedTuple):
    """Values along a line through the box: closed form, grid, and paths with their interval."""

    title: str
    x: Tensor
    exact: Tensor
    grid: Tensor
    mean: Tensor
    low: Tensor
    high: Tensor

    @property
    def inside(self) -> int:
        """How many intervals hold the closed form."""
        return int(((self.exact >= self.low) & (self.exact <= self.high)).sum())


class Order(NamedTuple):
    """Errors under refinement, and the fitted slope of log error over log step."""

    title: str
    steps: tuple[float, ...]
    errors: tuple[float, ...]
    slope: float
    slope_error: float


def cases() -> tuple[Case, ...]:
    """The closed forms: constant, Ornstein-Uhlenbeck, space-dependent and directional fields, on line and plane."""
    return (
        Case("constant F and G", constant(), 6.0, 240, 2.0),
        Case("Ornstein-Uhlenbeck", ornstein_uhlenbeck(), 6.0, 240, 2.0),
        Case("G = s√(1+x²)", stretched(), 5.0, 160, 2.0),
        Case("G = s|x|, o = |x|²", geometric(rate=0.0, scale=0.3), 6.0, 160, 1.5),
        Case("plane: constant F and G", constant(drift=(0.8, -0.4)), 4.0, 120, 2.0),
        Case("plane: turning drift", ornstein_uhlenbeck(dimension=2, turn=1.0), 4.0, 120, 2.0),
        Case("plane: G along one direction", directed(drift=(0.6, -0.3)), 4.0, 120, 2.0),
        Case("plane: G = s(y, x), o = |x|²", sheared(share=0.3), 6.0, 160, 1.5),
    )


def agreements(*, paths: int = 8_000, steps: int = 300, points: int = 11, seed: int = 0) -> tuple[Agreement, ...]:
    """Every closed form at points on a line, by grid and by paths; the intervals are of 99.9 %."""
    found = list[Agreement]()
    with counting_bar("closed forms", len(cases()), "problem") as count:
        for case in cases():
            problem = case.problem
            along = torch.linspace(-case.reach, case.reach, points, dtype=torch.float64)
            x = along[:, None] * torch.tensor([1.0, 0.5][: problem.dimension], dtype=torch.float64)
            walked = expectation(problem, x.float(), paths=paths, steps=steps, seed=seed, confidence=CONFIDENCE)
            by_grid = solve(problem, box(problem.dimension, case.half_width, case.cells)).at(x)
            values = (exact(problem, x), by_grid, walked.mean, walked.low, walked.high)
            found.append(Agreement(case.title, along, *values))
            count(1)
    return tuple(found)


def grid_order(case: Case) -> Order:
    """The largest error at |x| ≤ 1 over finer and finer grids, time steps as small as stability asks."""
    spacings, errors = list[float](), list[float]()
    for cells in CELLS[case.problem.dimension]:
        grid = box(case.problem.dimension, case.half_width, cells)
        inner = lengths(grid.nodes) <= 1
        found = solve(case.problem, grid).on_grid().reshape(-1)[inner]
        spacings.append(grid.spacing[0])
        errors.append(float((found - exact(case.problem, grid.nodes[inner])).abs().max()))
    return fitted_order(f"grid, {case.title}", spacings, errors)


def euler_order(*, rate: float = 1.0, scale: float = 0.4, width: float = 0.5, start: float = 0.8) -> Order:
    """The weak error of Euler-Maruyama for an Ornstein-Uhlenbeck drift, without sampling.

    The chain x ← (1 - κΔt)x + G√Δt ε is normal at every step, so its expectation is known exactly.
    """
    problem = ornstein_uhlenbeck(rate=rate, scale=scale, width=width)
    true = float(exact(problem, torch.tensor([[start]], dtype=torch.float64)))
    errors = [abs(euler_expectation(n, rate=rate, scale=scale, width=width, start=start) - true) for n in STEPS]
    return fitted_order("Euler-Maruyama, Ornstein-Uhlenbeck", [1 / n for n in STEPS], errors)


def euler_expectation(steps: int, *, rate: float, scale: float, width: float, start: float) -> float:
    """E exp(-x²/2w²) at the end of the Euler-Maruyama chain of an Ornstein-Uhlenbeck process."""
    dt = 1 / steps
    shrink = 1 - rate * dt
    variance = scale**2 * dt * sum(shrink ** (2 * i) for i in range(steps))
    return float(bump_expectation(torch.tensor([[start * shrink**steps]], dtype=torch.float64), variance, width))


def sampled_order(*, paths: int = 400_000, seed: int = 0, start: float = -1.2) -> Order:
    """The same error as paths show it, for the space-dependent G, over 4 to 32 steps."""
    problem = stretched(rate=1.0)
    point = torch.tensor([[start]], dtype=torch.float64)
    true = float(exact(problem, point))
    means = [float(expectation(problem, point, paths=paths, steps=n, seed=seed).mean) for n in FEW_STEPS]
    errors = [abs(mean - true) for mean in means]
    return fitted_order("Euler-Maruyama, G = s√(1+x²), sampled", [1 / n for n in FEW_STEPS], errors)


def fitted_order(title: str, steps: Sequence[float], errors: Sequence[float]) -> Order:
    """The slope of log error over log step by least squares, with its standard error."""
    x, y = np.log(steps), np.log(errors)
    slope, offset = np.polyfit(x, y, 1)
    left = y - slope * x - offset
    error = math.sqrt(float(left @ left) / (len(x) - 2) / float(((x - x.mean()) ** 2).sum()))
    return Order(title, tuple(steps), tuple(errors), float(slope), error)
