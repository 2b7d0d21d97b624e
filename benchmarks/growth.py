"""How cost grows: time and peak memory of ERM and PDE+ against width, batch, image size, blocks, E and processes.

Each is varied alone, from a ResNet-18 of width 16, a batch of 64 and 32 pixels. Exponents are fitted to logarithms by
least squares: time ∝ widthᵇ. With the number of ADD blocks cost grows along a line: an offset, and as much for each.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import final

from pdeplus._lib.progress import counting_bar
from pdeplus.errors import RunFailed

from ._cases import Case, bare_step, prediction
from ._fits import exponent, line
from ._growth_figure import BLOCKS, Point, Quantity, growth_figure, known
from ._memory import Make, peak_memory
from ._results import Effort, Result, Row, ratio_of
from ._timing import take_turns
from ._torchrun import step_of_processes

ERM, PDE = "ERM", "PDE+"
PLACES = {
    1: ["layer2"],
    2: ["layer2", "layer3"],
    4: [f"layer{k}" for k in range(1, 5)],
    8: [f"layer{k}.{i}" for k in range(1, 5) for i in range(2)],
}
"""ADD blocks behind stages, whose middle ones cost the average, or behind all residual blocks."""
WORLDS = (1, 2)
UNITS: dict[Quantity, tuple[str, str]] = {"seconds": ("time", "s"), "mebibytes": ("peak memory", "MiB")}


@final
@dataclass(frozen=True, kw_only=True)
class Axis:
    """What is varied, and the work at each of its values."""

    name: str
    work: str
    makes: Mapping[tuple[str, int], Make]
    """By series and value."""


def measure(effort: Effort) -> Iterator[Result]:
    """Two tables for each axis, times and memory; the last has the figure."""
    rounds, found = effort.turns(3), list[Point]()
    base = Case(preset="", width=8, batch=4, size=16) if effort.quick else Case(preset="", batch=64)
    for axis in axes(base, quick=effort.quick):
        points = _points(axis, rounds)
        found += points
        yield _result(axis.name, axis.work, points, "seconds", rounds=rounds)
        yield _result(axis.name, axis.work, points, "mebibytes")
    points, notes = _points_of_processes(base, rounds, quick=effort.quick)
    found += points
    name, work = "processes", "a step of the real loop, the same batch shared out, one thread each"
    yield _result(name, work, points, "seconds", rounds=rounds, notes=notes)
    last = _result(name, work, points, "mebibytes", notes=notes)
    yield replace(last, figure=growth_figure(found, base.sizes))


def axes(base: Case, *, quick: bool) -> list[Axis]:
    """All but processes; `quick` takes two values of each, and leaves out what differs from width by a word."""
    cases = {ERM: replace(base, preset="erm"), PDE: replace(base, preset="pde_plus")}

    def steps(field: str, *values: int) -> dict[tuple[str, int], Make]:
        return {(s, v): partial(bare_step, replace(c, **{field: v})) for s, c in cases.items() for v in values}

    placed: dict[tuple[str, int], Make] = {(ERM, 0): partial(bare_step, cases[ERM])}
    for number, names in list(PLACES.items())[: 2 if quick else None]:
        settings = (f"method.placement={names}",)
        placed[PDE, number] = partial(bare_step, replace(cases[PDE], settings=settings))
    passes = (1, 2) if quick else (1, 2, 5, 10, 20)
    drawn = {(PDE, samples): partial(prediction, cases[PDE], samples) for samples in passes}
    sizes = {"width": steps("width", 8, 16)}
    if not quick:
        sizes = {
            "width": steps("width", 8, 16, 32, 64),
            "batch": steps("batch", 16, 32, 64, 128, 256),
            "image size": steps("size", 16, 32, 64),
        }
    stepped = [Axis(name=name, work="a training step", makes=m) for name, m in (sizes | {BLOCKS: placed}).items()]
    return [*stepped, Axis(name="E", work="a prediction", makes=drawn)]


def _points(axis: Axis, rounds: int) -> list[Point]:
    """Times of all values in turns, then the memory of each in a process of its own."""
    arms = {f"{series} {value}": make() for (series, value), make in axis.makes.items()}
    seconds, found = take_turns(arms, rounds, steady=True), list[Point]()
    with counting_bar(f"memory over {axis.name}", len(axis.makes), " processes") as count:
        for (series, value), make in axis.makes.items():
            time, memory = seconds[f"{series} {value}"], peak_memory(make)
            found.append(Point(axis=axis.name, series=series, value=value, seconds=time, mebibytes=memory))
            count(1)
    return found


def _points_of_processes(base: Case, rounds: int, *, quick: bool) -> tuple[list[Point], tuple[str, ...]]:
    """And why some are missing."""
    found, notes = list[Point](), list[str]()
    for series, preset in ((PDE, "pde_plus"),) if quick else ((ERM, "erm"), (PDE, "pde_plus")):
        for world in WORLDS[-1:] if quick else WORLDS:
            point = Point(axis="processes", series=series, value=world)
            try:
                seconds, added = step_of_processes(world, replace(base, preset=preset), rounds)
                point = replace(point, seconds=seconds, mebibytes=added)
            except RunFailed as error:
                notes.append(f"{series}, {world} processes: skipped, {error}")
            found.append(point)
    return found, tuple(notes)


def _result(
    axis: str, work: str, points: Sequence[Point], quantity: Quantity, *, rounds: int = 0, notes: tuple[str, ...] = ()
) -> Result:
    what, unit = UNITS[quantity]
    first = {point.series: point for point in reversed(points)}
    origin = next((point for point in points if point.value == 0), None)
    rows = list[Row]()
    for point in points:
        base, cost = origin or first[point.series], point.cost(quantity)
        ratio, against = ratio_of(cost, base.cost(quantity)), f"× {base.series}" if origin else f"× {axis} {base.value}"
        rows.append(
            Row(name=f"{point.series}, {axis} {point.value}", figure=cost, unit=unit, ratio=ratio, against=against)
        )
    for series in dict.fromkeys(point.series for point in points):
        rows += fitted(axis, [p for p in points if p.series == series], quantity)
    return Result(title=f"growth with {axis}, {what} of {work}", rows=tuple(rows), rounds=rounds, notes=notes)


def fitted(axis: str, points: Sequence[Point], quantity: Quantity) -> list[Row]:
    """What is fitted to one series: an exponent, or with ADD blocks an offset and a slope; nothing to one point."""
    (x, y), series, unit = known(points, quantity), points[0].series, UNITS[quantity][1]
    if len(x) < 2:
        return []
    if axis != BLOCKS:
        return [Row(name=f"{series}, fitted exponent", figure=exponent(x, y))]
    offset, slope = line(x, y)
    named = ((f"{series}, fitted offset without blocks", offset), (f"{series}, fitted share of each block", slope))
    return [Row(name=name, figure=figure, unit=unit) for name, figure in named]
