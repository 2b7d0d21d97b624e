"""The transport equation ∂u/∂t + F·∇u + ½G²Δu = 0 (TE_AdaDiff) from u(x, 1) = o(x) back to t = 0, in two ways.

By paths: `expectation` is the Feynman-Kac expectation (Eq. FK_U) over Euler-Maruyama paths (Eq. SDE_Euler).

On a grid of one or two dimensions: `solve` gives a `Solution`, which knows u at the grid points and between them.

A matrix G, d×m, makes the last term ½ tr(G Gᵀ ∇²u).

In τ = 1-t the equation reads ∂u/∂τ = F·∇u + ½G²Δu. Space: fourth-order central differences for both terms and, for
the transport, the dissipation |F|h³/12 ∂⁴u, which together is the third-order upwind-biased difference. Time: the
three-stage Runge-Kutta step of Shu and Osher. All of it is of third order, and what the grid smooths by itself falls
with h³.

An explicit scheme of this order overshoots at steep places. u is an average of o, so after every step it is cut back to
the problem's bounds of o, or else to o's range on the grid and a tenth beyond: at every point that brings it nearer to
the solution. The limits on the step are von Neumann's, for fields that a few cells resolve; where a field jumps from
node to node the scheme is not accurate, and bounded only by this cut.

The wall: nothing is known outside the box, so u continues there with the value at the wall, and drift through the
wall does not count. Along a path this means: who would leave is held at the wall. Errors of this spread inward as far
as paths reach from the wall; leave a margin around the points that matter.
"""

import math
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple, final

import numpy as np
import torch
from numpy.typing import NDArray
from scipy import interpolate, special
from torch import Tensor
from torch.nn.functional import pad

from .._lib.environment import one_thread
from .._lib.seeds import generator_for
from ..errors import UserError, check_least
from ..functional import diffuse
from .problems import Problem, drift_at, listed, scale_at, terminal_at

LEAST_POINTS = 5
"""Least number of points along an axis: the width of the difference stencil."""
TRANSPORT_LIMIT = 1.5
"""Largest Δt Σ|F|/h of a stable step without diffusion; the von Neumann bound is 1.61."""
DIFFUSION_LIMIT = 0.45
"""Largest Δt Σ½G²/h² of a stable step without transport; the von Neumann bound is 0.471."""
FIRST = {0: 1 / 12, 1: -8 / 12, 3: 8 / 12, 4: -1 / 12}
"""Weights of u at -2h, -h, h, 2h in the fourth-order difference for h ∂u; a product of two is that for ∂²u/∂x∂y."""
MIXED_SHARE = 0.36
"""What the mixed term takes of the diffusion limit: its largest symbol, 1.37², over that of ∂², 16/3."""
LOOKS = 33
"""Times at which the fields are looked at before the first step."""
SLACK = 0.1
"""Part of o's range on the grid, beyond which u is cut: its peaks may lie between grid points."""
MARGIN = 1.02
"""Factor on the number of steps chosen here, for what fields do between the looks."""
ROWS_AT_ONCE = 1 << 15
"""Paths walked together: their positions and noise stay in a processor's cache."""


@final
@dataclass(frozen=True, kw_only=True)
class Grid:
    """A box cut evenly along each axis, both ends included: its corners, and at least 5 points for each dimension."""

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
        """The distance between neighbours, along each axis."""
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
    """u on a grid at the times that were kept."""

    grid: Grid
    times: tuple[float, ...]
    """In the order asked for."""
    values: Tensor
    """Times×grid points."""
    steps: int
    """From t = 1 to t = 0."""

    def on_grid(self, t: float = 0.0) -> Tensor:
        """u(·, t) on the grid; t must be among the times that were kept."""
        if t not in self.times:
            kept = ", ".join(f"{time:g}" for time in self.times)
            raise UserError(f"t={t:g} was not kept; solve with keep=({t:g}, …) or choose from {kept}")
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


@one_thread()
def solve(problem: Problem, grid: Grid, steps: int | None = None, *, keep: Sequence[float] = (0.0,)) -> Solution:
    """u on a grid at the times in `keep`.

    Every number of steps that is accepted is stable; a smaller one is refused with the least that is not. A grid whose
    own smoothing exceeds the diffusion asked for is refused where that holds at most points and warned about where it
    holds at some: the warning tells how many points would do. Where no steps are given, they are the least that is
    stable.
    """
    if problem.dimension != grid.dimension:
        raise UserError(f"grid has {grid.dimension} dimensions and the problem {problem.dimension}; they must agree")
    if not keep:
        raise UserError("keep must name at least one time, such as 0.0")
    for t in keep:
        if not 0 <= t <= 1:
            raise UserError(f"keep has {t:g}; times must lie between 0 and 1")
    u = terminal_at(problem, grid.nodes).double().reshape(grid.points)
    low, high = float(u.min()), float(u.max())
    bounds = problem.bounds or (low - SLACK * (high - low), high + SLACK * (high - low))
    least = least_steps(problem, grid)
    if steps is not None and steps < least:
        raise UserError(f"steps={steps} must be at least {least} for these fields on {_shape(grid.points)} points")
    chosen = math.ceil(MARGIN * least) if steps is None else steps
    _check_resolution(problem, grid)
    kept, now, taken = {1.0: u}, 1.0, 0
    for until in sorted(set(keep) - {1.0}, reverse=True):
        parts = math.ceil((now - until) * chosen - 1e-9)
        u = _march(problem, grid, u, now, until, parts, bounds)
        kept[until], now, taken = u, until, taken + parts
    values = torch.stack([kept[float(t)] for t in keep])
    return Solution(grid=grid, times=tuple(float(t) for t in keep), values=values, steps=taken)


def box(dimension: int, half_width: float, cells: int) -> Grid:
    """A box about 0 in so many cells along each axis."""
    return Grid(low=(-half_width,) * dimension, high=(half_width,) * dimension, points=(cells + 1,) * dimension)


def least_steps(problem: Problem, grid: Grid) -> int:
    """The least number of steps from t = 1 to t = 0 that is stable, as the fields look at 33 times."""
    times = [i / (LOOKS - 1) for i in range(LOOKS)]
    needs = [_need(drift_at(problem, grid.nodes, t), scale_at(problem, grid.nodes, t), grid) for t in times]
    return max(1, math.ceil(max(needs)))


def _check_resolution(problem: Problem, grid: Grid) -> None:
    """Refuse, or warn of, a grid that smooths more than the diffusion does.

    Over unit time the diffusion damps a wave of length 2πG by e^{-1/2} and the scheme by e^{-|F|h³/12G⁴}: the grid is
    too coarse where |F|h³ > 6G⁴. At that limit a jump in o comes out with little more than half its slope, at a tenth
    of it with 0.8 of it; what is smooth already suffers less. Where G is 0 no diffusion is asked for; a matrix may ask
    for none in some direction at every point, and is not looked at.
    """
    nodes = grid.nodes
    speed, scale = drift_at(problem, nodes, 1.0).abs(), scale_at(problem, nodes, 1.0).abs()
    if scale.ndim == 3:
        return
    enough = (6 * scale[:, None] ** 4 / speed).pow(1 / 3)[scale > 0]  # the spacings that would do
    coarse = (torch.tensor(grid.spacing, dtype=torch.float64) > enough).any(-1)
    share = float(coarse.sum()) / len(nodes)
    if share == 0:
        return
    text = f"points={_shape(grid.points)} smooth more than the diffusion asked for at {100 * share:.3g} % of the grid"
    if share > 0.5:
        raise UserError(f"{text}; {_sufficient(grid, enough.quantile(0.5, 0))} points suffice for most of it")
    most = _sufficient(grid, enough[coarse].quantile(0.5, 0))
    warnings.warn(f"{text}, where u comes out smoother than it is; {most} points would halve this", stacklevel=3)


class _Coefficients(NamedTuple):
    """Fields at a time, the weights that they give five neighbours along each axis, and that of ∂²u/∂x∂y, if any."""

    drift: Tensor
    scale: Tensor
    weights: tuple[tuple[Tensor, ...], ...]
    mixed: Tensor | None


class _Squares(NamedTuple):
    """G Gᵀ at every point: its diagonal, and in the plane the entry beside it, None where G is a number."""

    along: tuple[Tensor, ...]
    across: Tensor | None


def _squares(scale: Tensor, dimension: int) -> _Squares:
    if scale.ndim == 1:
        return _Squares((scale.double().square(),) * dimension, None)
    rows = scale.double().unbind(1)
    across = (rows[0] * rows[1]).sum(-1) if dimension == 2 else None
    return _Squares(tuple(row.square().sum(-1) for row in rows), across)


def _sufficient(grid: Grid, spacing: Tensor) -> str:
    """How many points along each axis make a spacing no larger than this."""
    axes = zip(grid.low, grid.high, listed(spacing), grid.points, strict=True)
    return _shape([max(math.ceil((high - low) / h) + 1, now) for low, high, h, now in axes])


def _march(
    problem: Problem, grid: Grid, u: Tensor, start: float, end: float, steps: int, bounds: tuple[float, float]
) -> Tensor:
    """`steps` Runge-Kutta steps from `start` back to `end`; one step's last fields are the next one's first."""
    dt = (start - end) / steps
    first = _coefficients(problem, grid, start, dt, None)
    for i in range(steps):
        t = start - i * dt
        half = _coefficients(problem, grid, t - dt / 2, dt, first)
        last = _coefficients(problem, grid, max(t - dt, 0.0), dt, half)  # rounding may lead below 0
        one = u + dt * _rate(u, first)
        two = 3 / 4 * u + 1 / 4 * (one + dt * _rate(one, last))
        u = (1 / 3 * u + 2 / 3 * (two + dt * _rate(two, half))).clamp(*bounds)
        first = last
    return u


def _rate(u: Tensor, coefficients: _Coefficients) -> Tensor:
    """F·∇u + ½ tr(G Gᵀ ∇²u)."""
    around = pad(u[None, None], (2, 2) * u.ndim, mode="replicate")[0, 0]
    total = torch.zeros_like(u)
    for axis, weights in enumerate(coefficients.weights):
        line = around if u.ndim == 1 else around.narrow(1 - axis, 2, u.shape[1 - axis])
        for shift, weight in enumerate(weights):
            total.addcmul_(weight, line.narrow(axis, shift, u.shape[axis]))
    if coefficients.mixed is not None:
        for i, across in FIRST.items():
            for j, along in FIRST.items():
                corner = around.narrow(0, i, u.shape[0]).narrow(1, j, u.shape[1])
                total.addcmul_(coefficients.mixed, corner, value=across * along)
    return total


def _coefficients(problem: Problem, grid: Grid, t: float, dt: float, before: _Coefficients | None) -> _Coefficients:
    """The difference formulas at time t, refused where the step is too long; `before` where nothing changed."""
    drift, scale = drift_at(problem, grid.nodes, t), scale_at(problem, grid.nodes, t)
    if before is not None and torch.equal(drift, before.drift) and torch.equal(scale, before.scale):
        return before
    need = _need(drift, scale, grid)
    if dt * need > 1 + 1e-9:
        least = math.ceil(MARGIN * need)
        raise UserError(f"steps={math.ceil(1 / dt)} must be at least {least} for the fields at t={t:.4g}")
    squares = _squares(scale, grid.dimension)
    fields = zip(drift.double().T, squares.along, grid.spacing, strict=True)
    weights = tuple(
        _weights(f.reshape(grid.points), (square / 2).reshape(grid.points), h, axis)
        for axis, (f, square, h) in enumerate(fields)
    )
    mixed = None
    if squares.across is not None:
        mixed = squares.across.reshape(grid.points) / math.prod(grid.spacing)
    return _Coefficients(drift, scale, weights, mixed)


def _weights(drift: Tensor, half_square: Tensor, h: float, axis: int) -> tuple[Tensor, ...]:
    """The weights of u at -2h, -h, 0, h, 2h along an axis in F ∂u - |F|h³/12 ∂⁴u + ½G² ∂²u."""
    held = drift.clone()  # without what leads through the walls
    held.select(axis, 0).clamp_(min=0)
    held.select(axis, -1).clamp_(max=0)
    f, a, d = held / (12 * h), held.abs() / (12 * h), half_square / (12 * h * h)
    return f - a - d, -8 * f + 4 * a + 16 * d, -6 * a - 30 * d, 8 * f + 4 * a + 16 * d, -f - a - d


def _need(drift: Tensor, scale: Tensor, grid: Grid) -> float:
    """1/Δt of the longest stable step: the part of each limit that is used up, summed."""
    transport = sum((f.abs() / h for f, h in zip(drift.double().T, grid.spacing, strict=True)), torch.zeros(()))
    squares = _squares(scale, grid.dimension)
    diffusion = sum((s / (2 * h * h) for s, h in zip(squares.along, grid.spacing, strict=True)), torch.zeros(()))
    if squares.across is not None:
        diffusion = diffusion + MIXED_SHARE * squares.across.abs() / math.prod(grid.spacing)
    return float((transport / TRANSPORT_LIMIT + diffusion / DIFFUSION_LIMIT).max())


def _spline(grid: Grid, values: NDArray[np.float64], x: NDArray[np.float64]) -> NDArray[np.float64]:
    """Cubic in every direction, through all values."""
    splines: Any = interpolate  # its types are loose
    axes = [axis.numpy() for axis in grid.axes]
    if grid.dimension == 1:
        return np.asarray(splines.make_interp_spline(axes[0], values, k=3)(x[:, 0]))
    return np.asarray(splines.RectBivariateSpline(*axes, values)(x[:, 0], x[:, 1], grid=False))


def _shape(points: Sequence[int]) -> str:
    return " × ".join(map(str, points))


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
    """E[o(x(1)) | x(0) = point] over `paths` independent paths from each of the points, N×d.

    Equal seeds give equal results; memory does not grow with `paths`. `confidence` is the probability that the interval
    of one point holds the expectation.
    """
    check_least("paths", paths, 2)
    check_least("steps", steps, 1)
    if not 0 < confidence < 1:
        raise UserError(f"confidence={confidence:g} must lie between 0 and 1, such as 0.95")
    if points.ndim != 2 or points.shape[-1] != problem.dimension or not len(points):
        raise UserError(f"points of shape {tuple(points.shape)} must be N×{problem.dimension}, one row for each point")
    if not points.isfinite().all():
        raise UserError("points must be finite; remove the rows with nan or inf")
    starts = range(0, len(points), ROWS_AT_ONCE)
    parts = [_moments(problem, points[i : i + ROWS_AT_ONCE], paths, steps, seed, i) for i in starts]
    mean, squares = (torch.cat(columns) for columns in zip(*parts, strict=True))
    error = (squares / (paths - 1) / paths).sqrt()
    half = float(special.ndtri((1 + confidence) / 2)) * error
    return Expectation(mean=mean, low=mean - half, high=mean + half, standard_error=error)


def _moments(problem: Problem, points: Tensor, paths: int, steps: int, seed: int, block: int) -> tuple[Tensor, Tensor]:
    """Mean and sum of squared deviations of o(x(1)) from each point, N each, joined chunk by chunk (Chan et al.)."""
    dt, at_once = 1 / steps, max(ROWS_AT_ONCE // len(points), 1)
    mean, squares, done = torch.zeros(len(points)).double(), torch.zeros(len(points)).double(), 0
    for start in range(0, paths, at_once):
        n = min(at_once, paths - start)
        generator = generator_for(seed, "paths", block, start)
        x = points.repeat_interleave(n, 0)
        for i in range(steps):  # x ← x + F Δt + G √Δt ε
            scale, moved = scale_at(problem, x, i * dt), x + drift_at(problem, x, i * dt) * dt
            if scale.ndim == 1:
                x = diffuse(moved, scale[:, None] * math.sqrt(dt), generator)
            else:
                noise = torch.randn(len(x), scale.shape[2], generator=generator, dtype=x.dtype)
                x = moved + math.sqrt(dt) * (scale @ noise[:, :, None]).squeeze(-1)
        values = terminal_at(problem, x).double().reshape(len(points), n)
        gap = values.mean(-1) - mean
        squares += (values - values.mean(-1, keepdim=True)).square().sum(-1) + gap.square() * done * n / (done + n)
        mean += gap * n / (done + n)
        done += n
    return mean, squares
