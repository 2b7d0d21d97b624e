"""A training epoch through the real loop (data, crop and flip, AugMix, logs) against as many bare steps.

A bare step learns from one fixed batch without augmentation. Epochs are of a few steps, and both take turns.
"""

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial

from ._cases import Case, bare_step, epoch, open_case
from ._results import Effort, Result, Row
from ._timing import take_turns

METHODS = {
    "ERM": Case(preset="erm"),
    "AugMix": Case(preset="erm", settings=("method.name=augmix",)),
    "PDE+": Case(preset="pde_plus"),
}
STEPS = 3
AIM = "≤ 1.1"


def measure(effort: Effort) -> Iterator[Result]:
    """One table: of each method the epoch and its bare steps."""
    rounds, arms = effort.turns(3), dict[str, Callable[[], object]]()
    cases = {k: replace(c, width=8, batch=4, size=16) for k, c in METHODS.items()} if effort.quick else METHODS
    for name, case in cases.items():
        arms[f"{name}, epoch"] = partial(epoch, open_case(case, bare=False, batches=STEPS))
        arms[f"{name}, bare"] = partial(_repeat, bare_step(case))
    seconds = take_turns(arms, rounds)
    rows = list[Row]()
    for name in cases:
        whole, bare = seconds[f"{name}, epoch"] / STEPS, seconds[f"{name}, bare"] / STEPS
        rows.append(Row(name=f"{name}, bare step", figure=bare, unit="s", ratio=1.0, against="× the bare step"))
        through, ratio = f"{name}, step of an epoch", whole / bare
        rows.append(Row(name=through, figure=whole, unit="s", ratio=ratio, against="× the bare step", aim=AIM))
    yield Result(title=f"epoch: {cases['ERM'].sizes}", rows=tuple(rows), rounds=rounds)


def _repeat(step: Callable[[], object]) -> None:
    for _ in range(STEPS):
        step()
