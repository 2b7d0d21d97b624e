"""The training step of each PDE+ schedule against the authors' and against ERM: time, arithmetic, memory.

`authors` is the published step: three passes, two full backward passes, ReLU head, N×C×H×W memory. All arms learn from
a fixed batch without augmentation. The fraction of the matrix-multiply peak says how much of the machine is used.
"""

import time
from collections.abc import Iterator
from dataclasses import replace
from functools import partial

import torch

from pdeplus._lib.seeds import generator_for
from pdeplus.evaluation.cost import operations_of

from ._cases import Case, bare_step
from ._memory import peak_memory
from ._results import Effort, Result, Row, compared, ratio_of
from ._timing import take_turns

BASE, AUTHORS, DEFAULT = "ERM", "authors", "default"
PAPER, LIGHT = "method.block=paper", "method.block=light"
ARMS = {
    BASE: Case(preset="erm"),
    AUTHORS: Case(preset="authors", settings=("train.channels_last=false",)),
    "authors, channels-last": Case(preset="authors"),
    "alternating": Case(preset="pde_plus", settings=("method.schedule=alternating", PAPER, "method.twins=plain")),
    "fused, the paper's block": Case(preset="pde_plus", settings=(PAPER, "method.twins=plain")),
    "fused, light block": Case(preset="pde_plus", settings=(LIGHT, "method.twins=plain")),
    "fused, light block, diffused twins": Case(preset="pde_plus", settings=(LIGHT, "method.twins=diffused")),
    DEFAULT: Case(preset="pde_plus"),
}
SIZES = ((64, 32), (16, 128))
"""Widths and batches."""
COUNTED = 2
"""Images of the step whose operations are counted: they grow with the images and with nothing else."""
MATRICES = (1024, 2048)
TRIES = 8


def measure(effort: Effort) -> Iterator[Result]:
    """Four tables for each size."""
    for width, batch in ((8, 4),) if effort.quick else SIZES:
        size = 16 if effort.quick else 32
        cases = {name: replace(arm, width=width, batch=batch, size=size) for name, arm in ARMS.items()}
        yield from _measure(cases, effort)


def _measure(cases: dict[str, Case], effort: Effort) -> Iterator[Result]:
    rounds, sizes, batch = effort.turns(3), cases[BASE].sizes, cases[BASE].batch
    matrices = (64,) if effort.quick else MATRICES
    peak = matrix_peak(matrices)
    seconds = take_turns({name: bare_step(case) for name, case in cases.items()}, rounds, steady=True)
    peak = max(peak, matrix_peak(matrices))  # other work may have disturbed the first
    yield Result(title=f"step, time: {sizes}", rows=compared(seconds, "s", BASE), rounds=rounds)
    rates = {name: batch / value for name, value in seconds.items() if name != BASE}
    rows = compared(rates, "images/s", AUTHORS, aims={DEFAULT: "≥ 3"})
    yield Result(title=f"step, speed: {sizes}", rows=rows, rounds=rounds)
    done = {name: operations(case) / 1e9 / seconds[name] for name, case in cases.items()}
    yield Result(title=f"step, arithmetic: {sizes}", rows=_of_peak(done, peak), rounds=rounds)
    added = {name: peak_memory(partial(bare_step, case)) for name, case in cases.items()}
    rows = compared(added, "MiB", AUTHORS, aims={DEFAULT: "≤ 1"})
    yield Result(title=f"step, peak memory it adds to a process: {sizes}", rows=rows)


def operations(case: Case) -> float:
    """Of one step of the case, in matrix products and convolutions."""
    return operations_of(bare_step(replace(case, batch=COUNTED))) / COUNTED * case.batch


def matrix_peak(sizes: tuple[int, ...]) -> float:
    """GFLOP/s of torch's fastest product of two square matrices of 32-bit numbers, on all threads."""
    best = 0.0
    for n in sizes:
        a, b = torch.rand(2, n, n, generator=generator_for(0, "matrices"))
        for _ in range(TRIES):
            started = time.perf_counter()
            torch.mm(a, b)
            best = max(best, 2e-9 * n**3 / (time.perf_counter() - started))
    return best


def _of_peak(done: dict[str, float], peak: float) -> tuple[Row, ...]:
    rows = [Row(name="matrix product, at best", figure=peak, unit="GFLOP/s", ratio=1.0, against="× the peak")]
    for name, rate in done.items():
        ratio = ratio_of(rate, peak)
        rows.append(Row(name=name, figure=rate, unit="GFLOP/s", ratio=ratio, against="× the peak"))
    return tuple(rows)
