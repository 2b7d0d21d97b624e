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

TIME, MEMORY = "time, s", "peak memory, MiB"
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
    """Two tables for each line of the figure, times and memory; the last has the figure."""
    base, rounds, points = Case(preset="erm", batch=64).tiny_if(effort.quick), effort.turns(3), list[dict[str, Any]]()
    for axis, series, makes in lines(base, effort.quick):
        times = take_turns({x: make() for x, make in makes.items()}, rounds, steady=True)
        memory = {x: peak_memory(make) for x, make in makes.items()}
        for quantity, costs in ((TIME, times), (MEMORY, memory)):
            points += chart_points(axis, series, quantity, costs)
            yield table(axis, series, quantity, costs, rounds)
    for series, preset in (("ERM", "erm"), ("PDE+", "pde_plus"))[1 if effort.quick else 0 :]:
        times, memory, notes = several_processes(replace(base, preset=preset), (1, 2)[effort.quick :], rounds)
        for quantity, costs in ((TIME, times), (MEMORY, memory)):
            points += chart_points(PROCESSES, series, quantity, costs)
            yield replace(table(PROCESSES, series, quantity, costs, rounds, notes), chart=chart(points, str(base)))


def lines(base: Case, quick: bool) -> Iterator[tuple[str, str, dict[int, Make]]]:
    """What is varied, the method, and the work at each value; `quick` takes two values of what differs most."""
    pde, passes = replace(base, preset="pde_plus"), (1, 2) if quick else (1, 2, 5, 10, 20)
    fields = {"width": (8, 16, 32, 64), "batch": (16, 32, 64, 128, 256), "size": (16, 32, 64)}
    for field, values in ({"width": (8, 16)} if quick else fields).items():
        for series, case in (("ERM", base), ("PDE+", pde)):
            makes = {value: partial(bare_step, replace(case, **{field: value})) for value in values}
            yield field.replace("size", "image size"), series, makes
    placed = {
        n: replace(pde, settings=(f"method.placement={names}",)) for n, names in PLACES.items() if not quick or n < 4
    }
    yield BLOCKS, "PDE+", {n: partial(bare_step, case) for n, case in ({0: base} | placed).items()}
    yield PASSES, "PDE+", {samples: partial(prediction, pde, samples) for samples in passes}


def several_processes(case: Case, worlds: tuple[int, ...], rounds: int) -> tuple[Costs, Costs, tuple[str, ...]]:
    """Seconds of a step of the real loop, MiB that it adds to the first process, and why some are missing."""
    found, notes = dict[int, list[float | None]](), list[str]()
    launcher = [sys.executable, "-m", "torch.distributed.run", "--standalone"]
    run = partial(
        subprocess.run, stdout=subprocess.PIPE, check=True, timeout=MOST_SECONDS, cwd=Path(__file__).parents[1]
    )
    for world in worlds:
        job = ["-m", "benchmarks.growth", json.dumps(asdict(case)), str(rounds)]
        try:
            done = run([*launcher, f"--nproc_per_node={world}", *job], env=os.environ | {"OMP_NUM_THREADS": "1"})
            found[world] = json.loads(done.stdout)
        except (OSError, subprocess.SubprocessError) as error:
            found[world] = [None, None]
            notes.append(f"{world} processes: skipped, torchrun: {error}")
    seconds, added = ({world: pair[k] for world, pair in found.items()} for k in (0, 1))
    return seconds, added, tuple(notes)


def one_of_the_processes(case: Case, rounds: int) -> None:
    """Measure; the first process prints what it found."""
    warm_up()
    before = resident("VmRSS") if STATUS.is_file() else None
    session = open_case(case, bare=False, batches=STEPS)
    seconds = take_turns({"epoch": partial(epoch, session)}, rounds)["epoch"] / STEPS
    if session.processes.main:
        print(json.dumps([seconds, None if before is None else resident("VmHWM") - before]))


def table(axis: str, series: str, quantity: str, costs: Costs, rounds: int, notes: tuple[str, ...] = ()) -> Result:
    """Costs against the first of them, and what is fitted to them."""
    words, unit = quantity.split(", ")
    title = f"growth of {series} with {axis}, {words} of {WORK.get(axis, 'a training step')}"
    named = {f"{axis} {x}": cost for x, cost in costs.items()}
    notes = (*notes, *fitted(axis, unit, costs))
    return Result(title, named, unit, next(iter(named)), rounds=rounds if quantity == TIME else 0, notes=notes)


def fitted(axis: str, unit: str, costs: Costs) -> list[str]:
    """An exponent, or with ADD blocks an offset and a slope, in words; nothing is fitted to one point."""
    known = {x: cost for x, cost in costs.items() if x and cost is not None}
    if len(known) < 2:
        return []
    x, y = list(known), list(known.values())
    if axis != BLOCKS:
        return [f"fitted: {axis}^{exponent(x, y):.2f}"]
    offset, slope = line(x, y)
    return [f"fitted: {offset:.3g} {unit} + {slope:.3g} {unit} for each block"]


def chart_points(axis: str, series: str, quantity: str, costs: Costs) -> list[dict[str, Any]]:
    """Of one line; its last point has what is fitted."""
    about = {"axis": axis, "quantity": quantity, "series": series}
    points = [about | {"x": x, "y": cost, "fitted": ""} for x, cost in costs.items() if x and cost is not None]
    for words in fitted(axis, "", costs) if axis != BLOCKS else []:
        points[-1]["fitted"] = words.rpartition("^")[2].replace("-", "−")
    return points


def chart(points: list[dict[str, Any]], about: str) -> dict[str, Any]:
    """A panel for each axis, times above memory; a line for each method, its fitted exponent at its end."""
    log = {"type": "quantitative", "title": None, "scale": {"type": "log", "nice": False}}
    encoding = {
        "x": log | {"field": "x", "axis": {"values": [2**k for k in range(9)], "format": "d"}},
        "y": log | {"field": "y", "axis": {"tickCount": 3}},
        "color": {"field": "series", "type": "nominal", "title": None},
    }
    words = {"mark": {"type": "text", "align": "left", "dx": 6}, "encoding": {"text": {"field": "fitted"}}}
    title = {"text": "How cost grows, with fitted exponents", "subtitle": f"one thing varied at a time, from {about}"}
    return {
        "title": title | {"anchor": "start", "offset": 14},
        "data": {"values": points},
        "facet": {s: {"field": f, "title": None, "sort": None} for s, f in (("column", "axis"), ("row", "quantity"))},
        "spec": {
            "width": 170,
            "height": 150,
            "encoding": encoding,
            "layer": [{"mark": {"type": "line", "point": True}}, words],
        },
        "resolve": {"scale": {"x": "independent", "y": "independent"}},
    }


if __name__ == "__main__":
    one_of_the_processes(Case(**json.loads(sys.argv[1])), int(sys.argv[2]))
