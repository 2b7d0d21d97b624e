"""A training epoch through the real loop (data, crop and flip, AugMix, logs) against as many bare steps.

A bare step learns from one fixed batch without augmentation. Epochs are of a few steps, and both take turns.
"""

from collections.abc import Callable, Iterator
from functools import partial

from .cases import Case, bare_step, epoch, open_case
from .results import Effort, Result, take_turns

METHODS = {
    "ERM": Case(preset="erm"),
    "AugMix": Case(preset="erm", settings=("method.name=augmix",)),
    "PDE+": Case(preset="pde_plus"),
    "PDE+ in stages": Case(preset="pde_plus_stages"),
}
STEPS = 3
BARE, WHOLE = "bare step", "step of an epoch"


def measure(effort: Effort) -> Iterator[Result]:
    """A table for each method."""
    for name, usual in METHODS.items():
        case, rounds = usual.tiny_if(effort.quick), effort.turns(3)
        whole = partial(epoch, open_case(case, bare=False, batches=STEPS))
        arms = {BARE: partial(_repeat, bare_step(case)), WHOLE: whole}
        seconds = {arm: value / STEPS for arm, value in take_turns(arms, rounds).items()}
        yield Result(f"epoch of {name}: {case}", seconds, "s", BARE, {WHOLE: "≤ 1.1"}, rounds)


def _repeat(step: Callable[[], object]) -> None:
    for _ in range(STEPS):
        step()
