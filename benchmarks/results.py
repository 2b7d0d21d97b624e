"""How long to measure, times in turns, least squares, and the tables that benchmarks yield."""

import math
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, TypeVar

import numpy as np

from pdeplus.reports.tables import MISSING, Table

Key = TypeVar("Key")


class Effort(NamedTuple):
    rounds: int | None = None
    """Turns of each arm; None for the benchmark's own number."""
    quick: bool = False
    """Tiny sizes and one round: whether all of it runs, not how fast."""
    tflops: float = 0.25 * 312
    """10¹² operations a second used of an accelerator: by default an assumed quarter of a 2020 one's peak in bf16."""

    def turns(self, usual: int) -> int:
        return self.rounds or (1 if self.quick else usual)


def take_turns(
    arms: Mapping[Key, Callable[[], object]],
    rounds: int,
    clock: Callable[[], float] = time.perf_counter,
    *,
    steady: bool = False,
    fresh: bool = False,
) -> dict[Key, float]:
    """Median seconds of each arm over `rounds` turns, after one turn that does not count.

    A `steady` arm runs once more in each turn before it is timed, so that it finds memory as it left it, as a training
    step does, and not as the other arms did. `fresh` arms work in processes that start anew: all their turns count.
    """
    seconds: dict[Key, list[float]] = {name: [] for name in arms}
    for turn in range(int(fresh), rounds + 1):
        for name, arm in arms.items():
            if steady and turn:
                arm()
            started = clock()
            arm()
            if turn:
                seconds[name].append(clock() - started)
    return {name: statistics.median(values) for name, values in seconds.items()}


def line(x: Sequence[float], y: Sequence[float]) -> tuple[float, float]:
    """The a and b of y = a + b · x."""
    slope, offset = np.polyfit(x, y, 1)
    return float(offset), float(slope)


def exponent(x: Sequence[float], y: Sequence[float]) -> float:
    """The b of y = a · xᵇ, fitted to logarithms."""
    return line(np.log(x), np.log(y))[1]


@dataclass(frozen=True)
class Result:
    """A table: figures by name, in one unit, each with its ratio to the one called `base`."""

    title: str
    figures: Mapping[str, float | None]
    """None where it could not be measured."""
    unit: str = ""
    base: str = ""
    """Empty where there are no ratios."""
    aims: Mapping[str, str] = field(default_factory=dict)
    """Those of ratios; of figures where they name the unit."""
    rounds: int = 0
    """Whose median the figures are; 0 where nothing was timed."""
    notes: tuple[str, ...] = ()
    chart: dict[str, Any] | None = None
    """In Vega-Lite, with its rows."""

    def rows(self) -> list[dict[str, Any]]:
        base, against = self.figures.get(self.base), f"× {self.base}" if self.base else ""
        rows = list[dict[str, Any]]()
        for name, figure in self.figures.items():
            ratio = figure / base if figure is not None and base else None
            row = {"name": name, "figure": figure, "unit": self.unit, "ratio": ratio, "against": against}
            rows.append(row | {"aim": self.aims.get(name, "")})
        return rows

    def table(self) -> Table:
        title, cells = f"{self.title}, median of {self.rounds}" if self.rounds else self.title, list[tuple[str, ...]]()
        for row in self.rows():
            ratio = "" if row["ratio"] is None else f"{row['ratio']:,.2f} {row['against']}"
            cells.append((row["name"], f"{_four_digits(row['figure'])} {self.unit}".rstrip(), ratio, row["aim"]))
        return Table(title, ("what", "figure", "ratio", "aim"), tuple(cells), self.notes)

    def __str__(self) -> str:
        """Title, aligned rows and notes, for a terminal."""
        table = self.table()
        n, f, r, _ = (max(map(len, column)) for column in zip(*table.rows, strict=True))
        rows = [f"{name:<{n}}  {a:>{f}}  {b:>{r}}  {'aim ' * bool(aim)}{aim}" for name, a, b, aim in table.rows]
        return "\n  ".join([table.title, *(row.rstrip() for row in rows), *(f"({note})" for note in self.notes)])


def _four_digits(value: float | None) -> str:
    if value is None:
        return MISSING
    places = 3 - math.floor(math.log10(abs(value))) if value else 0
    return f"{value:,.{max(places, 0)}f}"
