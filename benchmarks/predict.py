"""What diffusion costs at test: off against the bare network, and a noisy pass."""

from collections.abc import Iterator

from ._cases import Case, prediction
from ._results import Effort, Result, compared
from ._timing import take_turns

BASE, OFF = "bare network", "diffusion off (E = 0)"


def measure(effort: Effort) -> Iterator[Result]:
    """One table."""
    width, batch, size = (8, 4, 16) if effort.quick else (64, 32, 32)
    bare = Case(preset="erm", width=width, batch=batch, size=size)
    diffused = Case(preset="pde_plus", width=width, batch=batch, size=size)
    arms = {BASE: prediction(bare, 0), OFF: prediction(diffused, 0), "E = 1": prediction(diffused, 1)}
    rounds = effort.turns(15)
    each = {name: 1000 * seconds / batch for name, seconds in take_turns(arms, rounds).items()}
    rows = compared(each, "ms/image", BASE, aims={OFF: "≤ 1.02"})
    yield Result(title=f"predict: {bare.sizes}", rows=rows, rounds=rounds)
