"""What solving the transport equation costs, on a grid and by paths."""

from collections.abc import Iterator
from functools import partial

import torch

from pdeplus.theory.problems import ornstein_uhlenbeck
from pdeplus.theory.transport import box, expectation, solve

from .results import Effort, Result, take_turns

CELLS, STEPS = 200, 100
"""Cells of the grid along each side, steps of a path."""


def measure(effort: Effort) -> Iterator[Result]:
    """One table."""
    rounds, paths = effort.turns(3), 1000 if effort.quick else 1_000_000
    plane, origin = ornstein_uhlenbeck(dimension=2, turn=1.0, scale=0.1), torch.zeros(1, 1, dtype=torch.float64)
    walk = partial(expectation, ornstein_uhlenbeck(), paths=paths, steps=STEPS, seed=0)
    grid, double = f"grid of {CELLS} × {CELLS}, {CELLS} steps", f"{paths:,} paths × {STEPS} steps, 64 bits"
    arms = {grid: partial(solve, plane, box(2, 4.0, CELLS - 1), CELLS), double: partial(walk, origin)}
    arms[f"{paths:,} paths × {STEPS} steps, 32 bits"] = partial(walk, origin.float())
    aims, title = {grid: "≤ 5 s", double: "≤ 10 s"}, f"theory, {torch.get_num_threads()} threads"
    yield Result(title, take_turns(arms, rounds), "s", double, aims, rounds)
