"""The Feynman-Kac expectation (Eq. FK_U) by Euler-Maruyama paths (Eq. SDE_Euler), with confidence intervals."""

import math
from dataclasses import dataclass
from typing import final

import torch
from scipy import stats
from torch import Tensor

from .._lib.seeds import generator_for
from ..errors import UserError
from ..functional import diffuse
from ._numerics import one_thread
from .problems import Problem, check_points, drift_at, scale_at, terminal_at

ROWS_AT_ONCE = 1 << 15
"""Paths walked together: their positions and noise stay in a processor's cache."""


@final
@dataclass(frozen=True, kw_only=True)
class Expectation:
    """u(points, 0) as the mean over paths, with an interval for each point, N.

    The interval is for the Euler-Maruyama expectation: it does not hold the error of finite steps, which falls as
    1/steps.
    """

    mean: Tensor
    low: Tensor
    high: Tensor
    standard_error: Tensor


@one_thread()
def expectation(
    problem: Problem, points: Tensor, *, paths: int, steps: int, seed: int, confidence: float = 0.95
) -> Expectation:
    """E[o(x(1)) | x(0) = point] over `paths` independent paths from each point.

    Equal seeds give equal results; memory does not grow with `paths`.

    Args:
        problem: the fields.
        points: N×d, finite.
        paths: from each point, at least 2.
        steps: of each path, at least 1.
        seed: of the noise.
        confidence: that the interval of one point holds the expectation, between 0 and 1.
    """
    for name, value, least in (("paths", paths, 2), ("steps", steps, 1)):
        if value < least:
            raise UserError(f"{name}={value} must be at least {least}")
    if not 0 < confidence < 1:
        raise UserError(f"confidence={confidence:g} must lie between 0 and 1, such as 0.95")
    check_points("points", points, problem.dimension)
    starts = range(0, len(points), ROWS_AT_ONCE)
    parts = [_moments(problem, points[i : i + ROWS_AT_ONCE], paths, steps, seed, i) for i in starts]
    mean, squares = (torch.cat(columns) for columns in zip(*parts, strict=True))
    error = (squares / (paths - 1) / paths).sqrt()
    half = float(stats.norm.ppf((1 + confidence) / 2)) * error  # type: ignore[reportUnknownArgumentType]
    return Expectation(mean=mean, low=mean - half, high=mean + half, standard_error=error)


def walk(problem: Problem, x: Tensor, steps: int, generator: torch.Generator) -> Tensor:
    """x(1) of one path from each row of x, N×d: x + F Δt + G √Δt ε, `steps` times."""
    dt = 1 / steps
    for i in range(steps):
        t = i * dt
        scale = scale_at(problem, x, t)[:, None] * math.sqrt(dt)
        x = diffuse(x + drift_at(problem, x, t) * dt, scale, generator)
    return x


def _moments(problem: Problem, points: Tensor, paths: int, steps: int, seed: int, block: int) -> tuple[Tensor, Tensor]:
    """Mean and sum of squared deviations of o(x(1)) from each point, N each, joined chunk by chunk (Chan et al.)."""
    at_once = max(ROWS_AT_ONCE // len(points), 1)
    mean, squares, done = torch.zeros(len(points)).double(), torch.zeros(len(points)).double(), 0
    for start in range(0, paths, at_once):
        n = min(at_once, paths - start)
        generator = generator_for(seed, "paths", block, start)
        ends = walk(problem, points.repeat_interleave(n, 0), steps, generator)
        values = terminal_at(problem, ends).double().reshape(len(points), n)
        gap = values.mean(-1) - mean
        squares += (values - values.mean(-1, keepdim=True)).square().sum(-1) + gap.square() * done * n / (done + n)
        mean += gap * n / (done + n)
        done += n
    return mean, squares
