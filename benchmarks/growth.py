"""How cost grows: time and peak memory of ERM and PDE+ against width, batch, image size, blocks, E and processes.

Each is varied alone, from a ResNet-18 of width 16, a batch of 64 and 32 pixels. Exponents are fitted to logarithms by
least squares: time ∝ widthᵇ. With the number of ADD blocks cost grows along a line: an offset, and as much for each.

torchrun runs this file for the axis of processes: `python -m benchmarks.growth CASE ROUNDS` is one process.
"""

import json
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from typing import Any

from .cases import STATUS, Case, Make, bare_step, epoch, open_case, peak_memory, prediction, resident, warm_up
from .results import Effort, Result, exponent, line, take_turns

BLOCKS, PASSES, PROCESSES = "ADD blocks", "E", "processes"
WORK = {
    BLOCKS: "a training step, without blocks ERM's",
    PASSES: "a prediction",
    PROCESSES: "a step of the real loop, the same batch shared out, one thread each",
}
PLACES = {
    1: ["layer2"],
    2: ["layer2", "layer3"],
    4: [f"layer{k}" for k in range(1, 5)],
    8: [f"layer{k}.{i}" for k in range(1, 5) for i in range(2)],
}
"""ADD blocks behind stages, whose middle ones cost the average, or behind all residual blocks."""
STEPS, MOST_SECONDS = 3, 600
"""Steps of an epoch in several processes, and how long all its rounds may take."""
Costs = Mapping[int, float | None]
"""By the value of what is varied; None where it could not be measured."""


def measure(effort: Effort) -> Iterator[Result]:
    """Two tables for each axis and method, times and memory, with the figure of all so far."""
    base, rounds, points = Case(preset="erm", batch=64).tiny_if(effort.quick), effort.turns(3), list[dict[str, Any]]()
    for axis, series, times, memory, notes in measured(base, rounds, effort.quick):
        work = WORK.get(axis, "a training step")
        for words, unit, costs in (("time", "s", times), ("peak memory", "MiB", memory)):
            figures, timed = {f"{axis} {x}": cost for x, cost in costs.items()}, rounds if unit == "s" else 0
            known = {x: cost for x, cost in costs.items() if x and cost is not None}
            fit = fitted(axis, unit, known)
            about = {"axis": axis, "quantity": f"{words}, {unit}", "series": series}
            points += [
                about | {"x": x, "y": cost, "fitted": fit if x == max(known) else ""} for x, cost in known.items()
            ]
            result = Result(f"growth of {series} with {axis}, {words} of {work}", figures, unit, next(iter(figures)))
            more = (*notes, f"fitted: {fit}") if fit else notes
            yield replace(result, rounds=timed, notes=more, chart=chart(points, str(base)))


def measured(base: Case, rounds: int, quick: bool) -> Iterator[tuple[str, str, Costs, Costs, tuple[str, ...]]]:
    """What is varied, the method, seconds, MiB, and why some are missing."""
    for axis, series, makes in makes_of(base, quick):
        times = take_turns({x: make() for x, make in makes.items()}, rounds, steady=True)
        yield axis, series, times, {x: peak_memory(make) for x, make in makes.items()}, ()
    for series, preset in (("PDE+", "pde_plus_stages"),) if quick else (("ERM", "erm"), ("PDE+", "pde_plus_stages")):
        yield PROCESSES, series, *several_processes(replace(base, preset=preset), (2,) if quick else (1, 2), rounds)


def makes_of(base: Case, quick: bool) -> Iterator[tuple[str, str, dict[int, Make]]]:
    """What is varied, the method, and the work at each value; `quick` takes two values of what differs most."""
    pde, passes = replace(base, preset="pde_plus_stages"), (1, 2) if quick else (1, 2, 5, 10, 20)
    sizes = {"width": (8, 16, 32, 64), "batch": (16, 32, 64, 128, 256), "size": (16, 32, 64)}
    for field, values in ({"width": (8, 16)} if quick else sizes).items():
        for series, case in (("ERM", base), ("PDE+", pde)):
            makes = {value: partial(bare_step, replace(case, **{field: value})) for value in values}
            yield field.replace("size", "image size"), series, makes
    placed = {0: partial(bare_step, base)}
    for number, names in list(PLACES.items())[: 2 if quick else None]:
        placed[number] = partial(bare_step, replace(pde, settings=(f"method.placement={names}",)))
    yield BLOCKS, "PDE+", placed
    yield PASSES, "PDE+", {samples: partial(prediction, pde, samples) for samples in passes}


def several_processes(case: Case, worlds: tuple[int, ...], rounds: int) -> tuple[Costs, Costs, tuple[str, ...]]:
    """Seconds of a step of the real loop, MiB that it adds to the first process, and why some are missing."""
    seconds, added, notes = dict[int, float | None](), dict[int, float | None](), list[str]()
    job = ["-m", "benchmarks.growth", json.dumps(asdict(case)), str(rounds)]
    alone, root = os.environ | {"OMP_NUM_THREADS": "1"}, Path(__file__).parents[1]
    for world in worlds:
        torchrun = [sys.executable, "-m", "torch.distributed.run", "--standalone", f"--nproc_per_node={world}", *job]
        found = [None, None]
        try:
            found = json.loads(subprocess.check_output(torchrun, env=alone, cwd=root, timeout=MOST_SECONDS))
        except (OSError, subprocess.SubprocessError) as error:
            notes.append(f"{world} processes: skipped, {error}")
        seconds[world], added[world] = found
    return seconds, added, tuple(notes)


def one_of_the_processes(case: Case, rounds: int) -> None:
    """Measure; the first process prints what it found."""
    warm_up()
    before = resident("VmRSS") if STATUS.is_file() else None
    session = open_case(case, bare=False, batches=STEPS)
    seconds = take_turns({"epoch": partial(epoch, session)}, rounds)["epoch"] / STEPS
    if session.processes.main:
        print(json.dumps([seconds, None if before is None else resident("VmHWM") - before]))


def fitted(axis: str, unit: str, known: Mapping[int, float]) -> str:
    """An exponent, or with ADD blocks an offset and a slope; nothing is fitted to one point."""
    if len(known) < 2:
        return ""
    x, y = list(known), list(known.values())
    if axis != BLOCKS:
        return f"{axis}^{exponent(x, y):.2f}"
    offset, slope = line(x, y)
    return f"{offset:.3g} {unit} + {slope:.3g} {unit} for each block"


def chart(points: list[dict[str, Any]], about: str) -> dict[str, Any]:
    """A panel for each axis, times above memory; a line for each method, with what is fitted in its last point."""
    log = {"type": "quantitative", "title": None, "scale": {"type": "log", "nice": False}}
    encoding = {
        "x": log | {"field": "x", "axis": {"values": [2**k for k in range(9)], "format": "d"}},
        "y": log | {"field": "y", "axis": {"tickCount": 3, "format": "~g"}},
        "color": {"field": "series", "type": "nominal", "title": None},
    }
    end = {"mark": {"type": "text", "align": "right", "dy": -8}, "encoding": {"text": {"field": "fitted"}}}
    sides = {"column": "axis", "row": "quantity"}
    ordered = {field: list(dict.fromkeys(point[field] for point in points)) for field in sides.values()}
    title = {"text": "How cost grows, with fitted exponents", "subtitle": f"one thing varied at a time, from {about}"}
    return {
        "title": title | {"anchor": "start", "offset": 14},
        "data": {"values": points},
        "facet": {side: {"field": field, "title": None, "sort": ordered[field]} for side, field in sides.items()},
        "spec": {
            "width": 170,
            "height": 150,
            "encoding": encoding,
            "layer": [{"mark": {"type": "line", "point": True}}, end],
        },
        "resolve": {"scale": {"x": "independent", "y": "independent"}},
    }


if __name__ == "__main__":
    one_of_the_processes(Case(**json.loads(sys.argv[1])), int(sys.argv[2]))
