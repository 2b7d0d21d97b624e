"""What diffusion costs at test: off against the bare network, and a noisy pass."""

from collections.abc import Iterator
from dataclasses import replace

from .cases import Case, prediction
from .results import Effort, Result, take_turns

BASE, OFF = "bare network", "diffusion off (E = 0)"


def measure(effort: Effort) -> Iterator[Result]:
    """One table."""
    bare = Case(preset="erm", width=64, batch=32).tiny_if(effort.quick)
    diffused = replace(bare, preset="pde_plus")
    arms = {BASE: prediction(bare, 0), OFF: prediction(diffused, 0), "E = 1": prediction(diffused, 1)}
    rounds = effort.turns(15)
    each = {name: 1000 * seconds / bare.batch for name, seconds in take_turns(arms, rounds).items()}
    yield Result(f"predict: {bare}", each, "ms/image", BASE, {OFF: "≤ 1.02"}, rounds)
