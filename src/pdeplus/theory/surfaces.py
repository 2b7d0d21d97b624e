"""The figure "Solutions to 2D TE": one velocity field, four diffusions."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import final

import torch
from torch import Tensor

from .._errors import UserError
from .._progress import counting_bar
from .._seeds import generator_for
from .._threads import one_thread
from ._plain import lengths
from .fitting import Points, fit_scale, fit_velocity, flow, output, two_spirals
from .grid import Grid, Solution
from .problems import Field, Problem
from .transport import solve

HALF_WIDTH = 3.5
"""Of the box that is solved in."""
SHOWN = ((-2.0, 2.0), (-2.0, 2.0))
"""The part of it that is drawn and over which roughness is a mean."""
SMALL, LARGE = 0.1, 0.6
BETWEEN = (0.2, 0.3, 0.4, 0.5)
"""Further fixed scales, for the page."""
TIMES = tuple(i / 10 for i in range(11))
HELD_OUT = 2000


@final
@dataclass(frozen=True, kw_only=True)
class Fitted:
    """What was learnt from the points: F and G, and the points."""

    seed: int
    train: Points
    held_out: Points
    velocity: Field
    scale: Field


@final
@dataclass(frozen=True, kw_only=True)
class Surface:
    """One solution with what it is worth: shares of right answers, and the mean |∇u| over what is drawn.

    Args:
        name: none, small, large or adaptive.
        sigma: the fixed scale; None where it is learnt.
        solution: u on the grid.
        train_accuracy: against the labels as given, wrong ones included.
        held_out_accuracy: against true labels.
        roughness: at t = 0.
    """

    name: str
    sigma: float | None
    solution: Solution
    train_accuracy: float
    held_out_accuracy: float
    roughness: float


@final
@dataclass(frozen=True, kw_only=True)
class Surfaces:
    """All that the figure shows, and how far the network is from the equation.

    Args:
        fitted: points and fields.
        surfaces: none, small, large, adaptive.
        network_gap: mean |network - u| over held-out points, both without diffusion.
        scale_at_points: the learnt G at the training points.
    """

    fitted: Fitted
    surfaces: tuple[Surface, ...]
    network_gap: float
    scale_at_points: Tensor


@one_thread()
def fit_points(*, seed: int = 0, points: int = 160, iterations: int = 1200) -> Fitted:
    """F and G for noisy spirals of which one label in ten is wrong."""
    if points < 20 or iterations < 1:
        raise UserError(f"points={points}, iterations={iterations} must be at least 20 and 1")
    train = two_spirals(points, flipped=0.1, generator=generator_for(seed, "train"))
    held_out = two_spirals(HELD_OUT, flipped=0.0, generator=generator_for(seed, "held out"))
    with counting_bar("velocity and diffusion fields", iterations + iterations // 2, "step") as count:
        velocity = fit_velocity(train, iterations=iterations, generator=generator_for(seed, "velocity"), count=count)
        stream = generator_for(seed, "scale")
        scale = fit_scale(train, iterations=iterations // 2, generator=stream, count=count)
    return Fitted(seed=seed, train=train, held_out=held_out, velocity=velocity, scale=scale)


def surfaces(*, seed: int = 0, points: int = 160, iterations: int = 1200, cells: int = 160) -> Surfaces:
    """Solve the transport equation of one fitted field with no, small, large and learnt diffusion.

    Equal arguments give equal results. Scales: smoke 40 points and 60 iterations; small as it stands; full 240 cells.

    Args:
        seed: of points, fields and noise.
        points: in the training set.
        iterations: in the training of the velocity; that of the scale takes half as many.
        cells: of the grid along each axis; fewer than 160 may be too coarse for the small diffusion, and refused.
    """
    fitted = fit_points(seed=seed, points=points, iterations=iterations)
    grid = square_grid(cells)
    wanted = {"none": 0.0, "small": SMALL, "large": LARGE, "adaptive": None}
    solved = _solve_all(fitted, wanted, grid)
    network = output(flow(fitted.velocity, fitted.held_out.x)[-1])
    gap = float((network - solved[0].solution.at(fitted.held_out.x)).abs().mean())
    at_points = fitted.scale(fitted.train.x, 0.0)
    return Surfaces(fitted=fitted, surfaces=solved, network_gap=gap, scale_at_points=at_points)


def between(found: Surfaces) -> tuple[Surface, ...]:
    """Surfaces of further fixed scales between small and large, on the same grid."""
    wanted = {f"σ = {sigma:g}": sigma for sigma in BETWEEN}
    return _solve_all(found.fitted, wanted, found.surfaces[0].solution.grid)


def surface(fitted: Fitted, name: str, sigma: float | None, grid: Grid) -> Surface:
    """One solution and its numbers."""
    solution = solve(problem_of(fitted, sigma), grid, keep=TIMES)
    return Surface(
        name=name,
        sigma=sigma,
        solution=solution,
        train_accuracy=_accuracy(solution, fitted.train.x, fitted.train.given),
        held_out_accuracy=_accuracy(solution, fitted.held_out.x, fitted.held_out.labels),
        roughness=roughness(solution),
    )


def problem_of(fitted: Fitted, sigma: float | None) -> Problem:
    """The equation with a fixed scale, or with the learnt one where there is none."""
    fixed: Field = lambda x, t: x.new_full((len(x),), sigma or 0.0)  # noqa: E731
    scale = fitted.scale if sigma is None else fixed
    return Problem(dimension=2, drift=fitted.velocity, scale=scale, terminal=output, bounds=(0.0, 1.0))


def square_grid(cells: int) -> Grid:
    """The box in so many cells along each axis."""
    return Grid(low=(-HALF_WIDTH,) * 2, high=(HALF_WIDTH,) * 2, points=(cells + 1,) * 2)


def roughness(solution: Solution) -> float:
    """The mean of |∇u(·, 0)| over what is drawn."""
    u = solution.on_grid()
    slopes = torch.gradient(u, spacing=solution.grid.spacing)
    inside = [(axis >= low) & (axis <= high) for axis, (low, high) in zip(solution.grid.axes, SHOWN, strict=True)]
    return float(lengths(torch.stack(list(slopes)), 0)[inside[0]][:, inside[1]].mean())


def _solve_all(fitted: Fitted, wanted: Mapping[str, float | None], grid: Grid) -> tuple[Surface, ...]:
    solved = list[Surface]()
    with counting_bar("surfaces", len(wanted), "surface") as count:
        for name, sigma in wanted.items():
            solved.append(surface(fitted, name, sigma, grid))
            count(1)
    return tuple(solved)


def _accuracy(solution: Solution, x: Tensor, labels: Tensor) -> float:
    return float(((solution.at(x) > 0.5) == (labels == 1)).double().mean())
