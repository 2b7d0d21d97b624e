"""Directional diffusion (ours) on the field of the surfaces: smoothing along the way to a twin, and nowhere else.

The twin of a point lies a little further along its spiral arm. A network diffuses along h^a - h in every layer: along
the tangent of the arm as the layers before have carried it, DΦ_t(x)·v(x), which is what G is here.
"""

import math
from dataclasses import dataclass
from typing import final

import torch
from torch import Tensor

from .._lib.environment import one_thread
from .._lib.long_work import counting_bar
from .problems import Field, Problem, lengths
from .surfaces import GROWTH, LAYERS, SHOWN, Fitted, accuracy, in_layers, output
from .transport import Grid, Solution, solve

SIGMA = 0.3
"""The isotropic scale, and the mean length of the directional step at the training points."""
TWIN = 1e-3
"""Radians along the arm by which directions are measured."""
MOST = 4.0
"""Greatest length of a carried tangent: far from all points a field may stretch it without bound."""
TURNS_BACK = 3
"""Fixed-point iterations that find a layer's input from its output."""


@final
@dataclass(frozen=True, kw_only=True)
class Directed:
    """One solution, its accuracy, and its mean slopes along the arms and across them over what is drawn."""

    name: str
    solution: Solution
    train_accuracy: float
    held_out_accuracy: float
    along: float
    across: float


def along_arm(x: Tensor) -> Tensor:
    """The tangent of the spiral through each point, N×2: where a radian more would lead."""
    return GROWTH * x + torch.stack([-x[:, 1], x[:, 0]], -1)


def carried(velocity: Field) -> Field:
    """The tangent of the arm as the network's layers carry it, N×2, at points of any layer."""

    def at_layer(x: Tensor, t: float) -> Tensor:
        layers = round(t * LAYERS)
        start = x
        for layer in reversed(range(layers)):
            behind = start
            for _ in range(TURNS_BACK):
                start = behind - velocity(start, layer / LAYERS) / LAYERS
        moved = start + TWIN * along_arm(start)
        for layer in range(layers):
            start, moved = (h + velocity(h, layer / LAYERS) / LAYERS for h in (start, moved))
        way = (moved - start) / TWIN
        return way * (MOST / lengths(way).clamp(min=MOST))[:, None]

    return in_layers(at_layer, LAYERS)


@one_thread()
def directions(fitted: Fitted, grid: Grid) -> tuple[Directed, ...]:
    """The equation of one field with no diffusion, isotropic, directional and both, of the same mean length."""
    way = carried(fitted.velocity)
    share = SIGMA / float(lengths(along_arm(fitted.train.x)).mean())
    eye = SIGMA * torch.eye(2, dtype=torch.float64)
    scales: dict[str, Field] = {
        "none": lambda x, t: x.new_zeros(len(x)),
        "isotropic": lambda x, t: x.new_full((len(x),), SIGMA),
        "directional": lambda x, t: share * way(x, t)[:, :, None],
        "both": lambda x, t: torch.cat([eye.to(x).expand(len(x), 2, 2), share * way(x, t)[:, :, None]], -1),
    }
    found = list[Directed]()
    with counting_bar("directions", len(scales), "surface") as count:
        for name, scale in scales.items():
            problem = Problem(dimension=2, drift=fitted.velocity, scale=scale, terminal=output, bounds=(0.0, 1.0))
            found.append(_measured(name, solve(problem, grid), fitted))
            count(1)
    return tuple(found)


def _measured(name: str, solution: Solution, fitted: Fitted) -> Directed:
    slope = torch.stack(torch.gradient(solution.on_grid(), spacing=solution.grid.spacing), -1).reshape(-1, 2)
    nodes = solution.grid.nodes
    inside = torch.stack([(nodes[:, i] >= low) & (nodes[:, i] <= high) for i, (low, high) in enumerate(SHOWN)]).all(0)
    inside &= lengths(nodes) > math.sqrt(math.prod(solution.grid.spacing))  # 0 has no direction
    tangent = torch.nn.functional.normalize(along_arm(nodes[inside]))
    normal = torch.stack([-tangent[:, 1], tangent[:, 0]], -1)
    along, across = (float((slope[inside] * way).sum(-1).abs().mean()) for way in (tangent, normal))
    return Directed(
        name=name,
        solution=solution,
        train_accuracy=accuracy(solution, fitted.train.x, fitted.train.given),
        held_out_accuracy=accuracy(solution, fitted.held_out.x, fitted.held_out.labels),
        along=along,
        across=across,
    )
