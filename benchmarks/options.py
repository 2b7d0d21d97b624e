"""What compiling, lower precision and the layout of memory gain: the step with each option against that without.

Compiling takes a minute for each arm before anything is timed; `--quick` leaves it out.
"""

import copy
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial

import torch
from torch import Tensor, nn

from pdeplus.core.network import compile_network
from pdeplus.evaluation.tested_models import fast_copy

from ._cases import Case, bare_step, open_case
from ._results import Effort, Result, compared
from ._timing import take_turns

PLAIN = "as it is"
COMPILED = "torch.compile"
STEPS = {
    PLAIN: (),
    "bf16": ("train.precision=bf16",),
    "N×C×H×W memory": ("train.channels_last=false",),
    COMPILED: ("train.compile=true",),
}


def measure(effort: Effort) -> Iterator[Result]:
    """A table for each method, and one of predicting."""
    rounds = effort.turns(3)
    base = Case(preset="erm", width=8, batch=4, size=16) if effort.quick else Case(preset="erm")
    for preset in ("erm", "pde_plus"):
        arms = {name: s for name, s in STEPS.items() if name != COMPILED or not effort.quick}
        cases = {name: replace(base, preset=preset, settings=settings) for name, settings in arms.items()}
        seconds = take_turns({name: bare_step(case) for name, case in cases.items()}, rounds, steady=True)
        rows = compared(seconds, "s", PLAIN)
        yield Result(title=f"options of a step, {preset}: {base.sizes}", rows=rows, rounds=rounds)
    yield _of_prediction(base, rounds, compile=not effort.quick)


def _of_prediction(case: Case, rounds: int, *, compile: bool) -> Result:
    session = open_case(case)
    images, _ = session.on_device(session.split.train)
    plain = session.model.eval()
    fast = fast_copy(plain, images[:2])
    arms = {PLAIN: _predicting(plain, images), "folded copy, as pp.evaluate has it": _predicting(fast, images)}
    if compile:
        compiled = copy.deepcopy(fast)
        compile_network(compiled)
        arms["folded copy, torch.compile"] = _predicting(compiled, images)
    rows = compared(take_turns(arms, rounds, steady=True), "s", PLAIN)
    return Result(title=f"options of predicting: {case.sizes}", rows=rows, rounds=rounds)


def _predicting(net: nn.Module, images: Tensor) -> Callable[[], object]:
    return partial(_predict, net, images)


@torch.inference_mode()
def _predict(net: nn.Module, images: Tensor) -> Tensor:
    return net(images)
