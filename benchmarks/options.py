"""What compiling, lower precision and the layout of memory gain: the step with each option against that without.

Compiling takes a minute for each arm before anything is timed; `--quick` leaves it out.
"""

import copy
from collections.abc import Iterator
from dataclasses import replace
from functools import partial

import torch
from torch import Tensor, nn

from pdeplus.core.network import compile_network
from pdeplus.evaluation.tested_models import fast_copy

from .cases import Case, bare_step, open_case
from .results import Effort, Result, take_turns

PLAIN, FOLDED, COMPILED = "as it is", "folded copy, as pp.evaluate has it", "torch.compile"
SETTINGS = {
    PLAIN: (),
    "bf16": ("train.precision=bf16",),
    "N×C×H×W memory": ("train.channels_last=false",),
    COMPILED: ("train.compile=true",),
}


def measure(effort: Effort) -> Iterator[Result]:
    """A table for each method, and one of predicting."""
    rounds, base = effort.turns(3), Case(preset="erm").tiny_if(effort.quick)
    for preset in ("erm", "pde_plus"):
        chosen = {name: settings for name, settings in SETTINGS.items() if name != COMPILED or not effort.quick}
        arms = {name: bare_step(replace(base, preset=preset, settings=more)) for name, more in chosen.items()}
        seconds = take_turns(arms, rounds, steady=True)
        yield Result(f"options of a step, {preset}: {base}", seconds, "s", PLAIN, rounds=rounds)
    session = open_case(base)
    images, _ = session.on_device(session.split.train)
    nets = {PLAIN: session.model.eval()}
    nets[FOLDED] = fast_copy(nets[PLAIN], images[:2])
    if not effort.quick:
        nets["folded copy, torch.compile"] = copy.deepcopy(nets[FOLDED])
        compile_network(nets["folded copy, torch.compile"])
    seconds = take_turns({name: partial(_predict, net, images) for name, net in nets.items()}, rounds, steady=True)
    yield Result(f"options of predicting: {base}", seconds, "s", PLAIN, rounds=rounds)


@torch.inference_mode()
def _predict(net: nn.Module, images: Tensor) -> Tensor:
    return net(images)
