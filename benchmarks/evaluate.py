"""What evaluation costs: against a plain eager loop, against the bare forward, and with E noisy passes."""

import warnings
from collections.abc import Callable, Iterator
from functools import partial

import torch
from torch import Tensor, nn

from pdeplus.core.prediction import predict
from pdeplus.corruptions.suite import CORRUPTIONS
from pdeplus.evaluation.loop import evaluate
from pdeplus.evaluation.tested_models import fast_copy

from ._cases import Case, open_case
from ._results import Effort, Result, Row, compared
from ._timing import take_turns

SEVERITY = 3
SETS = 1 + len(CORRUPTIONS)
PLAIN, FAST, OURS = "plain eager loop", "bare forward of the fast copy", "pp.evaluate: corrupts, predicts, scores"


def measure(effort: Effort) -> Iterator[Result]:
    """Two tables: clean and fifteen corruptions at severity 3; noisy passes."""
    width, images, size = (8, 4, 16) if effort.quick else (64, 32, 32)
    plain = ("train.channels_last=false",)
    bare, noisy = (
        Case(preset=name, settings=plain, width=width, batch=images, size=size) for name in ("erm", "pde_plus")
    )
    yield _measure_suite(bare, effort.turns(3))
    yield _measure_samples(noisy, effort.turns(3))


def _measure_suite(case: Case, rounds: int) -> Result:
    session = open_case(case)
    net, data, x = session.model.eval(), session.split.train, session.split.train.floats()
    fast = fast_copy(net, x[:2])
    arms: dict[str, Callable[[], object]] = {
        PLAIN: partial(_loop, net, x),
        FAST: partial(_loop, fast, x),
        OURS: partial(evaluate, net, data=(data.images, data.labels), severities=[SEVERITY], name="bare"),
    }
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # an untrained network is no better than chance
        seconds = take_turns(arms, rounds)
    rates = {name: SETS * case.batch / value for name, value in seconds.items()}
    share = rates[OURS] / rates[FAST]
    rows = compared(rates, "images/s", PLAIN, aims={OURS: "≥ 1.2"})
    of_fast = Row(name=OURS, figure=rates[OURS], unit="images/s", ratio=share, against=f"× {FAST}", aim="≥ 0.9")
    with torch.inference_mode():
        same = torch.equal(net(x).argmax(-1), fast(x).argmax(-1))
    title = f"evaluate, clean and {SETS - 1} corruptions at severity {SEVERITY}: {case.sizes}"
    return Result(title=title, rows=(*rows, of_fast), rounds=rounds, notes=(f"same predictions: {same}",))


def _measure_samples(case: Case, rounds: int) -> Result:
    session = open_case(case)
    x = session.split.train.floats()
    fast = fast_copy(session.model.eval(), x[:2])
    seconds = take_turns({f"E = {e}": partial(predict, fast, x, samples=e) for e in (0, 1, 10)}, rounds)
    rows = compared(seconds, "s", "E = 1", aims={"E = 10": "≤ 8"})
    return Result(title=f"evaluate, noisy passes: {case.sizes}", rows=rows, rounds=rounds)


@torch.inference_mode()
def _loop(net: nn.Module, x: Tensor) -> None:
    """What one would write: the images through the network, as often as there are test sets."""
    for _ in range(SETS):
        net(x).softmax(-1).argmax(-1)
