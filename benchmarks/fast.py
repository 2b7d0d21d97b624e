"""The fast regime: steps of the methods against ERM's, AugMix against a step, an epoch against its steps, the peak.

Steps are those of the real loop, augmentation included, in batches of 1,000 images and in both precisions; bf16 is left
out where a step in it is not faster. Times are CPU time.
"""

import time
from collections.abc import Iterator
from dataclasses import replace
from functools import partial

import torch

from pdeplus._lib.memory import kept_memory
from pdeplus._lib.seeds import generator_for
from pdeplus.augment.augmix import AugMix

from .cases import Case, bare_step, epoch, open_case
from .results import Effort, Result, take_turns
from .step import matrix_peak, operations

ARMS = {
    "ERM": (),
    "AugMix": ("method.name=augmix",),
    "AugMix + JSD": ("method.name=augmix", "method.jsd=12"),
    "PDE+": ("method.name=pde_plus",),
    "PDE+, diffused twins": ("method.name=pde_plus", "method.twins=diffused"),
}
BARE, ALONE, WHOLE, PEAK = "bare step of ERM", "AugMix alone", "step of an epoch of ERM", "matrix product, at best"


def measure(effort: Effort) -> Iterator[Result]:
    """Three tables for each precision."""
    rounds = effort.turns(5)
    with kept_memory():
        for precision in ("fp32", "bf16"):
            usual = Case(preset="fast", width=32, batch=1000, settings=(f"train.precision={precision}",))
            case = usual.tiny_if(effort.quick)
            cases = {name: replace(case, settings=(*case.settings, *more)) for name, more in ARMS.items()}
            arms = {name: partial(epoch, open_case(one, bare=False)) for name, one in cases.items()}
            images = torch.rand(case.batch, 3, case.size, case.size, generator=generator_for(0, "bench"))
            arms |= {BARE: bare_step(case), ALONE: partial(AugMix(), images, generator_for(0, "bench"))}
            seconds = take_turns(arms, rounds, time.process_time)
            alone, bare = seconds.pop(ALONE), seconds.pop(BARE)
            title = f"{precision}: {case}"
            yield Result(f"fast regime, step in {title}", seconds, "s", "ERM", {"PDE+": "≤ 2.2"}, rounds)
            parts = {BARE: bare, WHOLE: seconds["ERM"], ALONE: alone}
            yield Result(f"fast regime, parts in {title}", parts, "s", BARE, {WHOLE: "≤ 1.05", ALONE: "≤ 0.06"}, rounds)
            dtype = torch.bfloat16 if precision == "bf16" else torch.float32
            rates = {PEAK: matrix_peak(effort, dtype), "ERM": operations(case) / 1e9 / bare}
            aims = {"ERM": "≥ 0.6"} if precision == "fp32" else {}
            yield Result(f"fast regime, share of the peak in {title}", rates, "GFLOP/s", PEAK, aims, rounds)
            if precision == "fp32" and not effort.quick and not _bf16_pays(case):
                return


def _bf16_pays(case: Case) -> bool:
    small = replace(case, batch=64)
    arms = {p: bare_step(replace(small, settings=(f"train.precision={p}",))) for p in ("fp32", "bf16")}
    seconds = take_turns(arms, 1)
    return seconds["bf16"] < seconds["fp32"]
