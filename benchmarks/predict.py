"""What diffusion costs at test: off against the bare network, and noisy passes."""

from collections.abc import Iterator
from dataclasses import replace

from .cases import Case, prediction
from .results import Effort, Result, take_turns

BARE, OFF = "bare network", "diffusion off (E = 0)"


def measure(effort: Effort) -> Iterator[Result]:
    """One table against the bare network, one against a noisy pass."""
    bare, rounds = Case(preset="erm", width=64, batch=32).tiny_if(effort.quick), effort.turns(15)
    diffused = replace(bare, preset="pde_plus_stages")
    noisy = {f"E = {samples}": prediction(diffused, samples) for samples in (1, 10)}
    arms = {BARE: prediction(bare, 0), OFF: prediction(diffused, 0)} | noisy
    each = {name: 1000 * seconds / bare.batch for name, seconds in take_turns(arms, rounds).items()}
    yield Result(f"predict: {bare}", each, "ms/image", BARE, {OFF: "≤ 1.02"}, rounds)
    passes = {name: each[name] for name in noisy}
    yield Result(f"predict, noisy passes: {bare}", passes, "ms/image", "E = 1", {"E = 10": "≤ 8"}, rounds)
