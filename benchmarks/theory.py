"""What solving the transport equation costs, on a grid and by paths, and against torchsde where it is installed."""

from collections.abc import Callable, Iterator
from functools import partial
from importlib import import_module
from importlib.util import find_spec

import torch
from torch import Tensor, nn

from pdeplus.theory.checks import box
from pdeplus.theory.feynman_kac import expectation
from pdeplus.theory.problems import Problem, ornstein_uhlenbeck
from pdeplus.theory.transport import solve

from .results import Effort, Result, take_turns

CELLS = 200
STEPS = 100
"""Steps of a path."""
AT_ONCE = 1 << 15


def measure(effort: Effort) -> Iterator[Result]:
    """One table."""
    rounds, paths = effort.turns(3), 1000 if effort.quick else 1_000_000
    line, plane = ornstein_uhlenbeck(), ornstein_uhlenbeck(dimension=2, turn=1.0, scale=0.1)
    origin = torch.zeros(1, 1, dtype=torch.float64)
    walk = partial(expectation, line, paths=paths, steps=STEPS, seed=0)
    grid, double = f"grid of {CELLS} × {CELLS}, {CELLS} steps", f"{paths:,} paths × {STEPS} steps, 64 bits"
    arms: dict[str, Callable[[], object]] = {
        grid: partial(solve, plane, box(2, 4.0, CELLS - 1), CELLS),
        double: partial(walk, origin),
        f"{paths:,} paths × {STEPS} steps, 32 bits": partial(walk, origin.float()),
    }
    if find_spec("torchsde"):
        arms["the same by torchsde, 64 bits"] = partial(_by_torchsde, line, origin, paths)
    aims, title = {grid: "≤ 5 s", double: "≤ 10 s"}, f"theory, {torch.get_num_threads()} threads"
    yield Result(title, take_turns(arms, rounds), "s", double, aims, rounds)


class Equation(nn.Module):
    """A problem as torchsde wants it: drift f, N×d, and scale of the noise g, N×1."""

    noise_type, sde_type = "diagonal", "ito"

    def __init__(self, problem: Problem) -> None:
        super().__init__()
        self.f = lambda t, y: problem.drift(y, float(t))
        self.g = lambda t, y: problem.scale(y, float(t))[:, None]


@torch.no_grad()
def _by_torchsde(problem: Problem, point: Tensor, paths: int) -> None:
    """The same paths, in chunks of the same size, without an interval."""
    torchsde = import_module("torchsde")
    ends = torch.tensor([0.0, 1.0], dtype=point.dtype)
    for start in range(0, paths, AT_ONCE):
        size = (min(AT_ONCE, paths - start), problem.dimension)
        noise = torchsde.BrownianInterval(0.0, 1.0, size=size, dtype=point.dtype, entropy=start, dt=1 / STEPS)
        x = torchsde.sdeint(Equation(problem), point.expand(size), ends, bm=noise, dt=1 / STEPS, method="euler")
        problem.terminal(x[-1]).mean()
