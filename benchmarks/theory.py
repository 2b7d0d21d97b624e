"""What solving the transport equation costs, on a grid and by paths, and against torchsde where it is installed.

python benchmarks/theory.py [--rounds 3] [--paths 1000000]
"""

import argparse
import importlib.util
from collections.abc import Callable
from functools import partial

import torch
from _timing import take_turns
from torch import Tensor, nn

from pdeplus.theory import Problem, expectation, solve
from pdeplus.theory.checks import box
from pdeplus.theory.problems import ornstein_uhlenbeck

STEPS = 100
AT_ONCE = 1 << 15


class Equation(nn.Module):
    """A problem as torchsde wants it."""

    noise_type, sde_type = "diagonal", "ito"

    def __init__(self, problem: Problem) -> None:
        super().__init__()
        self.problem = problem

    def f(self, t: Tensor, y: Tensor) -> Tensor:
        return self.problem.drift(y, float(t))

    def g(self, t: Tensor, y: Tensor) -> Tensor:
        return self.problem.scale(y, float(t))[:, None]


@torch.no_grad()
def by_torchsde(problem: Problem, point: Tensor, paths: int) -> None:
    """The same paths, in chunks of the same size, without an interval."""
    import torchsde

    ends = torch.tensor([0.0, 1.0], dtype=point.dtype)
    for start in range(0, paths, AT_ONCE):
        rows = min(AT_ONCE, paths - start)
        size = (rows, problem.dimension)
        noise = torchsde.BrownianInterval(0.0, 1.0, size=size, dtype=point.dtype, entropy=start, dt=1 / STEPS)
        x = torchsde.sdeint(Equation(problem), point.expand(size), ends, bm=noise, dt=1 / STEPS, method="euler")
        problem.terminal(x[-1]).mean()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--paths", type=int, default=1_000_000)
    options = parser.parse_args()
    line, plane = ornstein_uhlenbeck(), ornstein_uhlenbeck(dimension=2, turn=1.0, scale=0.1)
    origin = torch.zeros(1, 1, dtype=torch.float64)
    walk = partial(expectation, line, paths=options.paths, steps=STEPS, seed=0)
    arms: dict[str, Callable[[], object]] = {
        "grid of 200 × 200, 200 steps": partial(solve, plane, box(2, 4.0, 199), 200),
        f"{options.paths:,} paths × {STEPS} steps, 64 bits": partial(walk, origin),
        f"{options.paths:,} paths × {STEPS} steps, 32 bits": partial(walk, origin.float()),
    }
    if importlib.util.find_spec("torchsde"):
        arms["the same by torchsde, 64 bits"] = partial(by_torchsde, line, origin, options.paths)
    print(f"{torch.get_num_threads()} threads, median of {options.rounds}")
    for name, seconds in take_turns(arms, options.rounds).items():
        print(f"{name:45} {seconds:7.2f} s")


if __name__ == "__main__":
    main()
