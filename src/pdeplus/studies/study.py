"""What an outcome is drawn from: an experiment's cells, those that are done, and their series, scores and titles."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, final

from ..evaluation.metrics import Estimate
from ..evaluation.records import Record
from ..evaluation.summary import Series, find_baseline, scores, series_of
from ..reports.figures import Figure, Row
from ..reports.paper import PaperFile, paper_numbers
from ..reports.tables import Table
from ..training.config import to_tables
from ..training.run_folder import Run
from .cells import Cell, Done
from .experiment import Experiment, Size

CBAR = "cbar"
"""The suite, and the score, of the second test."""
CBAR_NOTE = "C̄: mean over its ten corruptions and five severities, a second test that nothing is selected on"


@final
@dataclass(frozen=True, kw_only=True)
class Outcome:
    """What is written of a study: tables, figures, and the numbers behind the figures."""

    tables: Sequence[Table] = ()
    figures: Sequence[Figure] = ()
    rows: Mapping[str, Sequence[Row]] = field(default_factory=dict[str, Sequence[Row]])
    """Rows of figures, by the name of their file."""
    files: Mapping[str, bytes] = field(default_factory=dict[str, bytes])
    """Whole files by name: figures that are drawn already, a page."""


@final
@dataclass(frozen=True, kw_only=True)
class Study:
    """An experiment at one size, as far as it is done."""

    experiment: Experiment
    size: Size
    cells: Sequence[Cell]
    """All of them."""
    done: Sequence[Done]

    @property
    def options(self) -> dict[str, Any]:
        """Options of the outcome."""
        return {**self.experiment.options, **self.size.options}

    @property
    def title(self) -> str:
        """The experiment's title, with the size."""
        return f"{self.experiment.title} ({describe_size(self.size, self.cells)})"

    def columns(self, scores: Mapping[str, str]) -> dict[str, str]:
        """A table's scores and their titles, the accuracy on C̄ behind them where the cells are tested on it."""
        return {**scores, CBAR: "C̄"} if self.size.cbar else dict(scores)

    def caption(self, more: str = "") -> str:
        """The same for a figure, in lines that are not too long."""
        lines = [self.experiment.title, describe_size(self.size, self.cells), more]
        return "\n".join(filter(None, lines))

    @property
    def places(self) -> list[Mapping[str, str]]:
        """The combinations of varied settings that have a cell."""
        found = {tuple(cell.place.items()): cell.place for cell in self.cells}
        return list(found.values())

    def at(self, place: Mapping[str, str]) -> list[Done]:
        """What is done there, in the order of the experiment's rows; the seeds of a row are together."""
        labels = list(dict.fromkeys(cell.label for cell in self.cells))
        wanted = {row.name: i for i, row in enumerate(self.experiment.rows)}
        here = [done for done in self.done if done.cell.place == place]
        return sorted(here, key=lambda d: (wanted[d.cell.config.name], labels.index(d.cell.label), d.cell.config.seed))

    def table(
        self,
        columns: Iterable[str],
        rows: Iterable[Sequence[str]],
        *notes: str,
        place: Mapping[str, str] | None = None,
    ) -> Table:
        """A table about one place, or about all; its first notes are the rows of which nothing is done there."""
        title = ": ".join(filter(None, [self.title, describe_place(place or {})]))
        lacking = list[str]()
        for here in self.places if place is None else [place]:
            done = {one.cell.label for one in self.at(here)}
            labels = dict.fromkeys(c.label for c in self.cells if c.place == here and c.label not in done)
            lacking += [f"not done: {', '.join(filter(None, [label, describe_place(here)]))}" for label in labels]
        second = [CBAR_NOTE] * self.size.cbar
        return Table(title, tuple(columns), tuple(map(tuple, rows)), (*lacking, *notes, *second))

    @property
    def first_runs(self) -> dict[str, Run]:
        """The runs of seed 0, by row and place."""
        first = [one for one in self.done if one.cell.config.seed == 0]
        return {", ".join(filter(None, [one.cell.label, describe_place(one.cell.place)])): one.run for one in first}


@final
@dataclass(frozen=True, kw_only=True)
class Line:
    """What a row of a table of scores shows."""

    name: str
    """The row's label, with the number of noisy passes where it has several."""
    cell: Cell
    series: Series
    baseline: Series | None
    """ERM, as far as it is done."""
    scores: Mapping[str, Estimate]


def lines_of(done: Sequence[Done]) -> list[Line]:
    """One for each series, all of one place; its accuracy on C̄ is among the scores of the first test."""
    cells = {one.cell.label: one.cell for one in done}
    found = series_by_label(done)
    every = [series for group in found.values() for series in group]
    on_cbar = series_of(record for one in done for record in one.records if record.suite == CBAR)
    second = {(s.config, s.any.model, s.samples): scores(s) for s in on_cbar}
    lines = list[Line]()
    for label, series in ((label, series) for label, group in found.items() for series in group):
        name = f"{label}, E={series.samples}" if len(found[label]) > 1 else label
        base = find_baseline(series, every, "ERM")
        its = second.get((series.config, series.any.model, series.samples), {})
        both = {**scores(series, base), **{score: its[score] for score in (CBAR,) if score in its}}
        lines.append(Line(name=name, cell=cells[label], series=series, baseline=base, scores=both))
    return lines


def first_records(done: Iterable[Done]) -> list[Record]:
    """All records but those of C̄, the second test."""
    return [record for one in done for record in one.records if record.suite != CBAR]


def series_by_label(done: Iterable[Done]) -> dict[str, list[Series]]:
    """Of each row its series of the first test, one for each number of noisy passes; all of one place."""
    found = dict[str, list[Series]]()
    for series in series_of(first_records(done)):
        found.setdefault(series.label.partition(" #")[0], []).append(series)
    return found


def paper_rows(file: PaperFile, done: Sequence[Done], about: str = "") -> dict[str, Mapping[str, str]]:
    """The paper's numbers by our labels, for rows that it has; about the cells' data set, or as `paper_numbers`."""
    known = paper_numbers(file, about or done[0].cell.config.data.name) if done else {}
    return {one.cell.label: known[one.cell.paper] for one in done if one.cell.paper in known}


def describe_size(size: Size, cells: Sequence[Cell]) -> str:
    """The size in words: network, images, epochs and seeds, as the cells really have them."""
    if not cells:
        return f"scale {size.name}"
    tables = to_tables(cells[0].config)
    model, train = tables["model"], tables["train"]
    lengths = sorted({cell.config.train.epochs for cell in cells})
    epochs = " or ".join(map(str, lengths)) if len(lengths) < 4 else f"{lengths[0]} to {lengths[-1]}"
    data = sorted({cell.config.data.name for cell in cells})
    learnt = f"{train['limit']} training images" if train["limit"] else "all training images"
    kind = "held-out" if cells[0].tests == "held_out" else "test"
    tested = "" if cells[0].tests == "none" else f", {size.limit or 'all'} {kind} images"
    width = f" of width {model['width']}" if "width" in model else ""
    repeated = Counter((cell.experiment, cell.label, *cell.place.values()) for cell in cells).values()
    few, most = min(repeated), max(repeated)
    many = f"{few} to {most} seeds" if few < most else f"{most} seed{'s' * (most > 1)}"
    scale = "" if size.name == "own" else f"scale {size.name}: "
    return (
        f"{scale}{' and '.join(data)}, {model['name']}{width}, {learnt}, "
        f"{epochs} epoch{'s' * (lengths != [1])}{tested}, {many}"
    )


def describe_place(place: Mapping[str, str]) -> str:
    """Such as "photo" for data.source=photo; empty where nothing varies."""
    return ", ".join(place.values())
