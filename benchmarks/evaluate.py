"""What evaluation costs: clean images and fifteen corruptions, against a plain eager loop and the bare forward."""

import warnings
from collections.abc import Iterator
from functools import partial

import torch
from torch import Tensor, nn

from pdeplus.corruptions.suite import CORRUPTIONS
from pdeplus.evaluation.loop import evaluate
from pdeplus.evaluation.tested_models import fast_copy

from .cases import Case, open_case
from .results import Effort, Result, take_turns

SEVERITY, SETS = 3, 1 + len(CORRUPTIONS)
PLAIN, FAST, OURS = "plain eager loop", "bare forward of the fast copy", "pp.evaluate: corrupts, predicts, scores"


def measure(effort: Effort) -> Iterator[Result]:
    """A table against each of the two."""
    case = Case(preset="erm", settings=("train.channels_last=false",), width=64, batch=32).tiny_if(effort.quick)
    session, rounds = open_case(case), effort.turns(3)
    net, data, x = session.model.eval(), session.split.train, session.split.train.floats()
    fast = fast_copy(net, x[:2])
    ours = partial(evaluate, net, data=(data.images, data.labels), severities=[SEVERITY], name="bare")
    arms = {PLAIN: partial(_loop, net, x), FAST: partial(_loop, fast, x), OURS: ours}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # an untrained network is no better than chance
        rates = {name: SETS * case.batch / seconds for name, seconds in take_turns(arms, rounds).items()}
    with torch.inference_mode():
        notes = (f"same predictions: {torch.equal(net(x).argmax(-1), fast(x).argmax(-1))}",)
    for base, aim in ((PLAIN, "≥ 1.2"), (FAST, "≥ 0.9")):
        title = f"evaluate against {base}, clean and {SETS - 1} corruptions at severity {SEVERITY}: {case}"
        yield Result(title, rates, "images/s", base, {OURS: aim}, rounds, notes)


@torch.inference_mode()
def _loop(net: nn.Module, x: Tensor) -> None:
    """What one would write: the images through the network, as often as there are test sets."""
    for _ in range(SETS):
        net(x).softmax(-1).argmax(-1)
