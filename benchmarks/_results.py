"""What benchmarks give: rows of figures with ratios, and how much effort goes into them."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import final

from pdeplus.errors import UserError
from pdeplus.reports.figures import Figure
from pdeplus.reports.tables import MISSING, Table

TFLOPS = 0.25 * 312
"""Used of one accelerator: an assumed quarter of the peak of one of 2020 in bf16."""


@final
@dataclass(frozen=True, kw_only=True)
class Effort:
    """How long to measure."""

    rounds: int | None = None
    """Turns of each arm; None for the benchmark's own number."""
    quick: bool = False
    """Tiny sizes and one round: whether all of it runs, not how fast."""
    tflops: float = TFLOPS
    """10¹² operations that one accelerator does in a second, for what is only estimated."""

    def __post_init__(self) -> None:
        if self.rounds is not None and self.rounds < 1:
            raise UserError(f"rounds={self.rounds} must be at least 1")
        if not 0 < self.tflops < math.inf:
            raise UserError(f"tflops={self.tflops} must be a number above 0")

    def turns(self, usual: int) -> int:
        """The number of rounds where `usual` is the benchmark's own."""
        return self.rounds or (1 if self.quick else usual)


@final
@dataclass(frozen=True, kw_only=True)
class Row:
    """One figure, and its ratio to another."""

    name: str
    figure: float | None
    """None where it could not be measured."""
    unit: str = ""
    ratio: float | None = None
    against: str = ""
    """What the ratio is of, such as "× ERM"."""
    aim: str = ""
    """Of the ratio, or of the figure where there is none."""


@final
@dataclass(frozen=True, kw_only=True)
class Result:
    """A benchmark, or a part of one that makes a table of its own."""

    title: str
    rows: tuple[Row, ...]
    rounds: int = 0
    """Whose median the figures are; 0 where nothing was timed."""
    notes: tuple[str, ...] = ()
    figure: Figure | None = field(default=None, repr=False)
    """Drawn from its rows, which are worth keeping too."""

    @property
    def headline(self) -> str:
        """The title, with the number of rounds."""
        return f"{self.title}, median of {self.rounds}" if self.rounds else self.title

    def to_text(self) -> str:
        """Title, aligned rows and notes, for a terminal."""
        cells = [(*cells, f"aim {aim}" * bool(aim)) for *cells, aim in map(_cells, self.rows)]
        widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
        signs = ("<", ">", "<", ">", "<", "<")
        lines = ["  ".join(f"{c:{s}{w}}" for c, s, w in zip(row, signs, widths, strict=True)).rstrip() for row in cells]
        return "\n".join([self.headline, *(f"  {line}" for line in lines), *(f"  ({note})" for note in self.notes)])

    def to_table(self) -> Table:
        """The same as a table for files."""
        rows = tuple((n, f"{f} {u}".strip(), f"{r} {a}".strip(), aim) for n, f, u, r, a, aim in map(_cells, self.rows))
        return Table(self.headline, ("what", "figure", "ratio", "aim"), rows, self.notes)


def compared(
    figures: Mapping[str, float | None], unit: str, base: str, *, aims: Mapping[str, str] | None = None
) -> tuple[Row, ...]:
    """A row for each figure, with its ratio to the one called `base`."""
    rows = list[Row]()
    for name, figure in figures.items():
        ratio, aim = ratio_of(figure, figures[base]), (aims or {}).get(name, "")
        rows.append(Row(name=name, figure=figure, unit=unit, ratio=ratio, against=f"× {base}", aim=aim))
    return tuple(rows)


def ratio_of(figure: float | None, base: float | None) -> float | None:
    """Their quotient, where both are known."""
    return None if figure is None or not base else figure / base


def _cells(row: Row) -> tuple[str, str, str, str, str, str]:
    ratio = "" if row.ratio is None else f"{row.ratio:,.2f}"
    return row.name, _number(row.figure), row.unit, ratio, row.against * bool(ratio), row.aim


def _number(value: float | None) -> str:
    """Four digits, as people write them."""
    if value is None:
        return MISSING
    places = 3 - math.floor(math.log10(abs(value))) if value else 0
    return f"{value:,.{max(places, 0)}f}"
