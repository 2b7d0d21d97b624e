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

from .cases import Case, open_case
from .results import Effort, Result, take_turns

SEVERITY = 3
SETS = 1 + len(CORRUPTIONS)
PLAIN, FAST, OURS = "plain eager loop", "bare forward of the fast copy", "pp.evaluate: corrupts, predicts, scores"


def measure(effort: Effort) -> Iterator[Result]:
    """Three tables: clean and fifteen corruptions at severity 3, with ratios to each baseline; noisy passes."""
    bare, noisy = (
        Case(preset=name, settings=("train.channels_last=false",), width=64, batch=32).tiny_if(effort.quick)
        for name in ("erm", "pde_plus")
    )
    yield from _suite(bare, effort.turns(3))
    yield _noisy_passes(noisy, effort.turns(3))


def _suite(case: Case, rounds: int) -> Iterator[Result]:
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
        rates = {name: SETS * case.batch / seconds for name, seconds in take_turns(arms, rounds).items()}
    with torch.inference_mode():
        same = torch.equal(net(x).argmax(-1), fast(x).argmax(-1))
    for base, aim in ((PLAIN, "≥ 1.2"), (FAST, "≥ 0.9")):
        title = f"evaluate against {base}, clean and {SETS - 1} corruptions at severity {SEVERITY}: {case}"
        yield Result(title, rates, "images/s", base, {OURS: aim}, rounds, (f"same predictions: {same}",))


def _noisy_passes(case: Case, rounds: int) -> Result:
    session = open_case(case)
    x = session.split.train.floats()
    fast = fast_copy(session.model.eval(), x[:2])
    seconds = take_turns({f"E = {e}": partial(predict, fast, x, samples=e) for e in (0, 1, 10)}, rounds)
    return Result(f"evaluate, noisy passes: {case}", seconds, "s", "E = 1", {"E = 10": "≤ 8"}, rounds)


@torch.inference_mode()
def _loop(net: nn.Module, x: Tensor) -> None:
    """What one would write: the images through the network, as often as there are test sets."""
    for _ in range(SETS):
        net(x).softmax(-1).argmax(-1)
