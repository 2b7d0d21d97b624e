"""The training step of each PDE+ schedule against the authors' and against ERM: time, arithmetic, memory.

`authors` is the published step: three passes, two full backward passes, ReLU head, N×C×H×W memory. All arms learn from
a fixed batch without augmentation. The fraction of the matrix-multiply peak says how much of the machine is used.
"""

import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial

import torch

from pdeplus._lib.seeds import generator_for
from pdeplus.evaluation.cost import operations_of

from .cases import Case, bare_step, peak_memory
from .results import Effort, Result, take_turns

ARMS = {
    "ERM": ("erm",),
    "authors": ("authors", "train.channels_last=false"),
    "authors, channels-last": ("authors",),
    "alternating": ("pde_plus_stages", "method.schedule=alternating", "method.block=paper", "method.twins=plain"),
    "fused, the paper's block": ("pde_plus_stages", "method.block=paper", "method.twins=plain"),
    "fused, light block": ("pde_plus_stages", "method.block=light", "method.twins=plain"),
    "fused, light block, diffused twins": ("pde_plus_stages", "method.block=light", "method.twins=diffused"),
    "default": ("pde_plus",),
}
"""Presets with settings."""
SIZES = ((64, 32), (16, 128))
"""Widths and batches."""
COUNTED = 2, 4
"""Images of the steps whose operations are counted: they are a part for each image and one for the optimiser."""
PEAK = "matrix product, at best"


def measure(effort: Effort) -> Iterator[Result]:
    """Four tables for each size."""
    for width, batch in SIZES[: 1 if effort.quick else None]:
        base = Case(preset="erm", width=width, batch=batch).tiny_if(effort.quick)
        cases = {name: replace(base, preset=preset, settings=tuple(more)) for name, (preset, *more) in ARMS.items()}
        rounds = effort.turns(3)
        peak = matrix_peak(effort)
        seconds = take_turns({name: bare_step(case) for name, case in cases.items()}, rounds, steady=True)
        peak = max(peak, matrix_peak(effort))  # other work may have disturbed the first
        yield Result(f"step, time: {base}", seconds, "s", "ERM", rounds=rounds)
        rates = {name: base.batch / value for name, value in seconds.items()}
        yield Result(f"step, speed: {base}", rates, "images/s", "authors", {"default": "≥ 3"}, rounds)
        done = {name: operations(case) / 1e9 / seconds[name] for name, case in cases.items()}
        yield Result(f"step, arithmetic: {base}", {PEAK: peak} | done, "GFLOP/s", PEAK, rounds=rounds)
        added = {name: peak_memory(partial(bare_step, case)) for name, case in cases.items()}
        yield Result(f"step, peak memory it adds to a process: {base}", added, "MiB", "authors", {"default": "≤ 1"})


def operations(case: Case) -> float:
    """Those of one step of the case, in matrix products and convolutions."""
    few, more = (operations_of(bare_step(replace(case, batch=images))) for images in COUNTED)
    return few + (more - few) / (COUNTED[1] - COUNTED[0]) * (case.batch - COUNTED[0])


def matrix_peak(
    effort: Effort, dtype: torch.dtype = torch.float32, clock: Callable[[], float] = time.perf_counter
) -> float:
    """GFLOP/s of torch's fastest product of two square matrices, on all threads; by CPU time, of one thread."""
    best = 0.0
    for n in (64,) if effort.quick else (1024, 2048):
        a, b = torch.rand(2, n, n, generator=generator_for(0, "matrices")).to(dtype)
        for _ in range(8):
            started = clock()
            torch.mm(a, b)
            best = max(best, 2e-9 * n**3 / (clock() - started))
    return best
