"""The fast regime: steps of the methods and augmentations against ERM's step, an epoch against its steps, the peak.

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
from pdeplus.augment.base import Augmentor
from pdeplus.augment.hybrid import Hybrid
from pdeplus.augment.p_norm_noise import PNormNoise
from pdeplus.augment.pixmix import PixMix
from pdeplus.augment.random_erasing import RandomErasing
from pdeplus.augment.trivial_augment import TrivialAugment

from .cases import Case, bare_step, epoch, open_case
from .results import Effort, Result, take_turns
from .step import matrix_peak, operations

ARMS = {
    "ERM": (),
    "AugMix": ("method.name=augmix",),
    "AugMix + JSD": ("method.name=augmix", "method.jsd=12"),
    "PDE+": ("method.name=pde_plus",),
    "PDE+ in stages": ("method.name=pde_plus_stages",),
    "PDE+ in stages, diffused twins": ("method.name=pde_plus_stages", "method.twins=diffused"),
    "two views + JSD": ("method.name=two_views",),
    "HybridAugment++": ("method.name=hybrid_augment",),
}
BARE, WHOLE, PEAK = "bare step of ERM", "step of an epoch of ERM", "matrix product, at best"
ALONE: dict[str, Augmentor] = {
    "AugMix alone": AugMix(),
    "HybridAugment++ alone": Hybrid(),
    "PixMix alone": PixMix(),
    "TrivialAugment alone": TrivialAugment(),
    "p-norm noise alone": PNormNoise(),
    "random erasing alone": RandomErasing(),
}
CALLS = 10
"""Of an augmentation in one turn, since some do now more, now less."""


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
            arms |= {BARE: bare_step(case)} | {name: partial(_often, one, images) for name, one in ALONE.items()}
            seconds = take_turns(arms, rounds, time.process_time)
            alone, bare = {name: seconds.pop(name) / CALLS for name in ALONE}, seconds.pop(BARE)
            title = f"{precision}: {case}"
            yield Result(f"fast regime, step in {title}", seconds, "s", "ERM", {"PDE+": "≤ 2.2"}, rounds)
            parts = {BARE: bare, WHOLE: seconds["ERM"], **alone}
            aims = {WHOLE: "≤ 1.05", "AugMix alone": "≤ 0.06", "HybridAugment++ alone": "≤ 0.10"}
            yield Result(f"fast regime, parts in {title}", parts, "s", BARE, aims, rounds)
            dtype = torch.bfloat16 if precision == "bf16" else torch.float32
            rates = {PEAK: matrix_peak(effort, dtype, time.process_time), "ERM": operations(case) / 1e9 / bare}
            aims = {"ERM": "≥ 0.6"} if precision == "fp32" else {}
            yield Result(f"fast regime, share of the peak in {title}", rates, "GFLOP/s a core", PEAK, aims, rounds)
            if precision == "fp32" and not effort.quick and not _bf16_pays(case):
                return


def _often(augmentor: Augmentor, images: torch.Tensor) -> None:
    stream = generator_for(0, "bench")
    for _ in range(CALLS):
        augmentor(images, stream)


def _bf16_pays(case: Case) -> bool:
    small = replace(case, batch=64)
    arms = {p: bare_step(replace(small, settings=(f"train.precision={p}",))) for p in ("fp32", "bf16")}
    seconds = take_turns(arms, 1)
    return seconds["bf16"] < seconds["fp32"]
