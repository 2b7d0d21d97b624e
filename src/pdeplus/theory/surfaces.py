"""The figure "Solutions to 2D TE": one velocity field, four diffusions; what is learnt, and what is solved."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import final

import torch
from torch import Tensor
from torch.nn.functional import binary_cross_entropy_with_logits

from .._lib.environment import one_thread
from .._lib.long_work import Count, counting_bar
from .._lib.seeds import generator_for
from ..errors import UserError
from ..functional import coverage_nll
from .problems import Field, Problem, everywhere, lengths
from .transport import Grid, Solution, box, solve

LAYERS = 16
"""Depth of the network that stands for the field in everything but its training."""
DEPTHS = (8, 11, 14, 17)
"""Depths of the networks that share the field in training: one alone would be fitted, not the equation."""
WIDTH = 64
TURN = 4.5
"""Radians that an arm of the spirals winds."""
GROWTH = 0.4
"""Growth of an arm's radius, in parts of it, with each radian."""
NOISE = 0.2
"""Standard deviation of a point's noise, in parts of its radius."""
STEEPNESS = 4.0
"""Slope within o(x) = sigmoid(4x₁)."""
RATE = 0.01
KINETIC = 0.001
"""Weight of the mean of |F|² in the loss: short ways are preferred."""
NEIGHBOURS = 9
REACH = 0.25
"""Standard deviation of the jitter from which similar points are chosen."""
CANDIDATES = 20
"""Jittered copies of each point."""
BATCH = 512
"""Pairs in a step of the scale's training."""
SCALES = (0.05, 0.5)
"""The range of a learnt G."""
Weights = list[tuple[Tensor, Tensor]]
HALF_WIDTH = 3.5
"""Half the side of the box that is solved in."""
SHOWN = ((-2.0, 2.0), (-2.0, 2.0))
"""The part of it that is drawn and over which roughness is a mean."""
SMALL, LARGE = 0.1, 0.6
BETWEEN = (0.2, 0.3, 0.4, 0.5)
"""Further fixed scales, for the page."""
TIMES = tuple(i / 10 for i in range(11))
HELD_OUT = 2000


@final
@dataclass(frozen=True)
class Points:
    """Points in the plane, N×2, and their classes 0 and 1, N; `given` are the labels a network is told."""

    x: Tensor
    labels: Tensor
    given: Tensor


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

    Training points count with the labels as given, wrong ones included; held-out points with true labels.
    """

    name: str
    sigma: float | None
    """The fixed scale; None where it is learnt."""
    solution: Solution
    train_accuracy: float
    held_out_accuracy: float
    roughness: float


@final
@dataclass(frozen=True, kw_only=True)
class Surfaces:
    """All that the figure shows, and how far the network is from the equation."""

    fitted: Fitted
    surfaces: tuple[Surface, ...]
    """None, small, large, adaptive."""
    network_gap: float
    """Mean |network - u| over held-out points, both without diffusion."""
    scale_at_points: Tensor
    """The learnt G at the training points."""


def surfaces(*, seed: int = 0, points: int = 160, iterations: int = 1200, cells: int = 160) -> Surfaces:
    """Solve the transport equation of one fitted field with no, small, large and learnt diffusion.

    Equal arguments give equal results. The scale is trained for half as many iterations as the velocity. Fewer than 160
    cells along each axis may be too coarse for the small diffusion, and refused.
    """
    fitted = fit_points(seed=seed, points=points, iterations=iterations)
    grid = box(2, HALF_WIDTH, cells)
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


def _solve_all(fitted: Fitted, wanted: Mapping[str, float | None], grid: Grid) -> tuple[Surface, ...]:
    """A surface for each name with its fixed scale, or with the learnt one where there is none."""
    solved = list[Surface]()
    with counting_bar("surfaces", len(wanted), "surface") as count:
        for name, sigma in wanted.items():
            scale = fitted.scale if sigma is None else everywhere(sigma)
            problem = Problem(dimension=2, drift=fitted.velocity, scale=scale, terminal=output, bounds=(0.0, 1.0))
            solution = solve(problem, grid, keep=TIMES)
            train = accuracy(solution, fitted.train.x, fitted.train.given)
            held_out = accuracy(solution, fitted.held_out.x, fitted.held_out.labels)
            found = {"train_accuracy": train, "held_out_accuracy": held_out, "roughness": roughness(solution)}
            solved.append(Surface(name=name, sigma=sigma, solution=solution, **found))
            count(1)
    return tuple(solved)


def roughness(solution: Solution) -> float:
    """The mean of |∇u(·, 0)| over what is drawn."""
    slopes = torch.gradient(solution.on_grid(), spacing=solution.grid.spacing)
    inside = [(axis >= low) & (axis <= high) for axis, (low, high) in zip(solution.grid.axes, SHOWN, strict=True)]
    return float(lengths(torch.stack(list(slopes)), 0)[inside[0]][:, inside[1]].mean())


def accuracy(solution: Solution, x: Tensor, labels: Tensor) -> float:
    """The share of points on whose side of one half the solution is."""
    return float(((solution.at(x) > 0.5) == (labels == 1)).double().mean())


@one_thread()
def fit_points(*, seed: int = 0, points: int = 160, iterations: int = 1200) -> Fitted:
    """F and G for noisy spirals of which one label in ten is wrong."""
    if points < 20 or iterations < 1:
        raise UserError(f"points={points}, iterations={iterations} must be at least 20 and 1")
    train = two_spirals(points, flipped=0.1, generator=generator_for(seed, "train"))
    held_out = two_spirals(HELD_OUT, flipped=0.0, generator=generator_for(seed, "held out"))
    with counting_bar("velocity and diffusion fields", iterations + iterations // 2, "step") as count:
        velocity = fit_velocity(train, iterations=iterations, generator=generator_for(seed, "velocity"), count=count)
        scale = fit_scale(train, iterations=iterations // 2, generator=generator_for(seed, "scale"), count=count)
    return Fitted(seed=seed, train=train, held_out=held_out, velocity=velocity, scale=scale)


def two_spirals(n: int, *, flipped: float, generator: torch.Generator) -> Points:
    """Two arms that wind out from 0; gaps and noise grow with the radius, and a part of the given labels is wrong."""
    labels = torch.arange(n) % 2
    along = TURN * torch.rand(n, generator=generator, dtype=torch.float64)
    radius, angle = 0.3 * (GROWTH * along).exp(), along + math.pi * labels
    x = radius[:, None] * torch.stack([angle.cos(), angle.sin()], -1)
    x = x + NOISE * radius[:, None] * torch.randn(n, 2, generator=generator, dtype=torch.float64)
    wrong = torch.rand(n, generator=generator) < flipped
    return Points(x, labels, torch.where(wrong, 1 - labels, labels))


def fit_velocity(points: Points, *, iterations: int, generator: torch.Generator, count: Count) -> Field:
    """A field F for which residual networks h ← h + F(h, l/L)/L with output o tell the given labels."""
    weights = _new_weights((3, WIDTH, WIDTH, 2), generator)
    optimizer = torch.optim.Adam([part for pair in weights for part in pair], lr=RATE)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, iterations)
    choices = torch.randint(len(DEPTHS), (iterations,), generator=generator)
    for choice in choices:
        depth, h, energy = DEPTHS[int(choice)], points.x.float(), torch.zeros(())
        for layer in range(depth):
            velocity = _evaluate(weights, h, layer / depth)
            h, energy = h + velocity / depth, energy + velocity.square().sum(-1).mean() / depth
        loss = binary_cross_entropy_with_logits(STEEPNESS * h[:, 0], points.given.float()) + KINETIC * energy
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        schedule.step()
        count(1)
    frozen = _frozen(weights)
    return in_layers(lambda x, t: _evaluate(frozen, x, t), LAYERS)


def fit_scale(points: Points, *, iterations: int, generator: torch.Generator, count: Count) -> Field:
    """A scale G(x) that covers the points similar to each point: least `coverage_nll`, as in PDE+.

    Here G is the standard deviation over the whole of unit time, learnt once, at the input.
    """
    original, twin = (x.float() for x in similar_pairs(points, generator))
    weights = _new_weights((2, WIDTH, WIDTH, 1), generator)
    optimizer = torch.optim.Adam([part for pair in weights for part in pair], lr=RATE)
    for _ in range(iterations):
        batch = torch.randint(len(twin), (BATCH,), generator=generator)
        scale = _bounded(_evaluate(weights, original[batch]))
        loss = coverage_nll(twin[batch], original[batch], scale.expand(-1, 2))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        count(1)
    frozen = _frozen(weights)
    return in_layers(lambda x, t: _bounded(_evaluate(frozen, x)).squeeze(-1), 1)


def similar_pairs(points: Points, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """Points and jittered copies of them, M×2 each, for which the nearest training points vote the same class."""
    original = points.x.repeat_interleave(CANDIDATES, 0)
    twin = original + REACH * torch.randn(original.shape, generator=generator, dtype=torch.float64)
    same = vote(points, original) == vote(points, twin)
    return original[same], twin[same]


def vote(points: Points, x: Tensor) -> Tensor:
    """The class that most of the nine nearest training points were given, N."""
    nearest = torch.cdist(x, points.x).topk(NEIGHBOURS, largest=False).indices
    return points.given[nearest].double().mean(-1) > 0.5


def output(x: Tensor) -> Tensor:
    """o(x) = sigmoid(4x₁), the probability of class 1."""
    return (STEEPNESS * x[:, 0]).sigmoid()


def flow(velocity: Field, x: Tensor) -> Tensor:
    """Where x is at each layer of the residual network, (layers + 1)×N×2."""
    places = [x]
    for layer in range(LAYERS):
        places.append(places[-1] + velocity(places[-1], layer / LAYERS) / LAYERS)
    return torch.stack(places)


def in_layers(field: Field, layers: int) -> Field:
    """A field as a network of so many layers has it: its own value at l/L, a straight line between.

    Values at the last points asked for are kept, since a grid asks for the same points at every step.
    """
    points: Tensor | None = None
    values: dict[int, Tensor] = {}

    def at_layer(x: Tensor, layer: int) -> Tensor:
        nonlocal points
        if points is not x:
            points = x
            values.clear()
        if layer not in values:
            values[layer] = field(x, layer / layers)
        return values[layer]

    def layered(x: Tensor, t: float) -> Tensor:
        layer = min(int(t * layers), layers - 1)
        return torch.lerp(at_layer(x, layer), at_layer(x, layer + 1), t * layers - layer)

    return layered


def _new_weights(sizes: Sequence[int], generator: torch.Generator) -> Weights:
    drawn = [(torch.randn(a, b, generator=generator) / math.sqrt(a), torch.zeros(b)) for a, b in pairwise(sizes)]
    return [(w.requires_grad_(), bias.requires_grad_()) for w, bias in drawn]


def _evaluate(weights: Weights, h: Tensor, t: float | None = None) -> Tensor:
    """A perceptron with tanh; a time is one more input."""
    if t is not None:
        h = torch.cat([h, h.new_full((len(h), 1), t)], -1)
    for w, bias in weights[:-1]:
        h = torch.addmm(bias, h, w).tanh()
    return torch.addmm(weights[-1][1], h, weights[-1][0])


def _bounded(x: Tensor) -> Tensor:
    low, high = SCALES
    return low + (high - low) * x.sigmoid()


def _frozen(weights: Weights) -> Weights:
    """Trained in 32 bits, which is faster, and used in 64."""
    return [(w.detach().double(), bias.detach().double()) for w, bias in weights]
