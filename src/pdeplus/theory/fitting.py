"""A velocity field fitted to points of two classes in the plane, and a diffusion learnt from points like them."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import final

import torch
from torch import Tensor
from torch.nn.functional import binary_cross_entropy_with_logits

from .._progress import Count
from ..functional import coverage_nll
from .problems import Field

LAYERS = 16
"""Of the network that stands for the field in everything but its training."""
DEPTHS = (8, 11, 14, 17)
"""Layers of the networks that share the field in training: one depth alone would be fitted, not the equation."""
WIDTH = 64
TURN = 4.5
"""Radians that an arm of the spirals winds."""
NOISE = 0.2
"""Of a point, in parts of its radius."""
STEEPNESS = 4.0
"""Of o(x) = sigmoid(4x₁)."""
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


@final
@dataclass(frozen=True)
class Points:
    """Points in the plane, N×2, and their classes 0 and 1, N; `given` are the labels a network is told."""

    x: Tensor
    labels: Tensor
    given: Tensor


def two_spirals(n: int, *, flipped: float, generator: torch.Generator) -> Points:
    """Two arms that wind out from 0; gaps and noise grow with the radius, and a part of the given labels is wrong."""
    labels = torch.arange(n) % 2
    along = TURN * torch.rand(n, generator=generator, dtype=torch.float64)
    radius, angle = 0.3 * (0.4 * along).exp(), along + math.pi * labels
    x = radius[:, None] * torch.stack([angle.cos(), angle.sin()], -1)
    x = x + NOISE * radius[:, None] * torch.randn(n, 2, generator=generator, dtype=torch.float64)
    wrong = torch.rand(n, generator=generator) < flipped
    return Points(x, labels, torch.where(wrong, 1 - labels, labels))


def output(x: Tensor) -> Tensor:
    """o(x) = sigmoid(4x₁), the probability of class 1."""
    return (STEEPNESS * x[:, 0]).sigmoid()


def fit_velocity(points: Points, *, iterations: int, generator: torch.Generator, count: Count) -> Field:
    """A field F for which residual networks h ← h + F(h, l/L)/L with output o tell the given labels."""
    weights = _new_weights((3, WIDTH, WIDTH, 2), generator)
    optimizer = torch.optim.Adam([part for pair in weights for part in pair], lr=RATE)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, iterations)
    choices = torch.randint(len(DEPTHS), (iterations,), generator=generator)
    for choice in choices:
        depth, h, energy = DEPTHS[int(choice)], points.x.float(), torch.zeros(())
        for layer in range(depth):
            velocity = _evaluate(weights, _with_time(h, layer / depth))
            h, energy = h + velocity / depth, energy + velocity.square().sum(-1).mean() / depth
        loss = binary_cross_entropy_with_logits(STEEPNESS * h[:, 0], points.given.float()) + KINETIC * energy
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        schedule.step()
        count(1)
    frozen = _frozen(weights)
    return in_layers(lambda x, t: _evaluate(frozen, _with_time(x, t)), LAYERS)


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


def _evaluate(weights: Weights, h: Tensor) -> Tensor:
    """A perceptron with tanh."""
    for w, bias in weights[:-1]:
        h = torch.addmm(bias, h, w).tanh()
    return torch.addmm(weights[-1][1], h, weights[-1][0])


def _with_time(x: Tensor, t: float) -> Tensor:
    return torch.cat([x, x.new_full((len(x), 1), t)], -1)


def _bounded(x: Tensor) -> Tensor:
    low, high = SCALES
    return low + (high - low) * x.sigmoid()


def _frozen(weights: Weights) -> Weights:
    """Trained in 32 bits, which is faster, and used in 64."""
    return [(w.detach().double(), bias.detach().double()) for w, bias in weights]
