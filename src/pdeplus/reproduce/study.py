"""What an outcome is made from: the cells that are done, their runs and records, and what the scale comes to."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, final

from ..config import to_tables
from ..records import Record
from ..report.specs import Figure, Row
from ..report.tables import Table
from ..run import Run
from ..summary import Estimate, Series, find_baseline, scores, series_of
from .cells import Cell
from .experiment import Experiment, Scale


@final
@dataclass(frozen=True, kw_only=True)
class Done:
    """A cell that is trained and tested."""

    cell: Cell
    run: Run
    """Its folder may lack where the records were given (`known_cells`)."""
    records: Sequence[Record]


@final
@dataclass(frozen=True, kw_only=True)
class Study:
    """An experiment at one scale, as far as it is done."""

    experiment: Experiment
    scale: Scale
    cells: Sequence[Cell]
    """All of them."""
    done: Sequence[Done]

    @property
    def options(self) -> dict[str, Any]:
        """Of the outcome."""
        return {**self.experiment.options, **self.scale.options}

    @property
    def title(self) -> str:
        """The experiment's, with the scale."""
        return f"{self.experiment.title} ({describe_scale(self.scale, self.cells)})"

    def caption(self, more: str = "") -> str:
        """The same for a figure, in lines that are not too long."""
        lines = [self.experiment.title, describe_scale(self.scale, self.cells), more]
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

    def title_at(self, place: Mapping[str, str]) -> str:
        """The title of a table about one place."""
        return ": ".join(filter(None, [self.title, describe_place(place)]))

    def lacking(self, place: Mapping[str, str]) -> list[str]:
        """A note for each row of which nothing is done there."""
        done = {one.cell.label for one in self.at(place)}
        labels = dict.fromkeys(c.label for c in self.cells if c.place == place and c.label not in done)
        return [f"not done: {', '.join(filter(None, [label, describe_place(place)]))}" for label in labels]

    @property
    def all_lacking(self) -> list[str]:
        """The same of all places."""
        return [note for place in self.places for note in self.lacking(place)]

    @property
    def first_runs(self) -> dict[str, Run]:
        """The runs of seed 0, by row and place."""
        first = [one for one in self.done if one.cell.config.seed == 0]
        return {", ".join(filter(None, [one.cell.label, describe_place(one.cell.place)])): one.run for one in first}


@final
@dataclass(frozen=True, kw_only=True)
class Made:
    """Tables and figures, and the numbers behind the figures."""

    tables: Sequence[Table] = ()
    figures: Sequence[Figure] = ()
    rows: Mapping[str, Sequence[Row]] = field(default_factory=dict[str, Sequence[Row]])
    pictures: Mapping[str, bytes] = field(default_factory=dict[str, bytes])
    """Files that are made already, by name: drawn figures, a page."""


def series_by_label(done: Iterable[Done]) -> dict[str, list[Series]]:
    """Of each row its series, one for each number of noisy passes; all of one place."""
    found = dict[str, list[Series]]()
    for series in series_of(record for one in done for record in one.records):
        found.setdefault(series.label.partition(" #")[0], []).append(series)
    return found


@final
@dataclass(frozen=True, kw_only=True)
class Line:
    """What a row of a table of scores is made from."""

    name: str
    """The row's label, with the number of noisy passes where it has several."""
    cell: Cell
    series: Series
    baseline: Series | None
    """ERM, as far as it is done."""
    scores: Mapping[str, Estimate]


def lines_of(done: Sequence[Done]) -> list[Line]:
    """One for each series, all of one place."""
    cells = {one.cell.label: one.cell for one in done}
    found = series_by_label(done)
    every = [series for group in found.values() for series in group]
    lines = list[Line]()
    for label, group in found.items():
        for series in group:
            name = f"{label}, E={series.samples}" if len(group) > 1 else label
            base = find_baseline(series, every, "ERM")
            line = Line(name=name, cell=cells[label], series=series, baseline=base, scores=scores(series, base))
            lines.append(line)
    return lines


def describe_scale(scale: Scale, cells: Sequence[Cell]) -> str:
    """The scale in words: network, images, epochs and seeds, as the cells really have them."""
    if not cells:
        return f"scale {scale.name}"
    tables = to_tables(cells[0].config)
    model, train = tables["model"], tables["train"]
    sizes = sorted({cell.config.train.epochs for cell in cells})
    epochs = " or ".join(map(str, sizes)) if len(sizes) < 4 else f"{sizes[0]} to {sizes[-1]}"
    data = sorted({cell.config.data.name for cell in cells})
    learnt = f"{train['limit']} training images" if train["limit"] else "all training images"
    tested = "" if cells[0].tests == "none" else f", {scale.limit or 'all'} test images"
    width = f" of width {model['width']}" if "width" in model else ""
    repeated = Counter((cell.experiment, cell.label, *cell.place.values()) for cell in cells).values()
    few, most = min(repeated), max(repeated)
    many = f"{few} to {most} seeds" if few < most else f"{most} seed{'s' * (most > 1)}"
    return (
        f"scale {scale.name}: {' and '.join(data)}, {model['name']}{width}, {learnt}, "
        f"{epochs} epoch{'s' * (sizes != [1])}{tested}, {many}"
    )


def in_words(name: str) -> str:
    """A corruption's or augmentation's name for people."""
    return name.replace("_", " ")


def describe_place(place: Mapping[str, str]) -> str:
    """Such as "photo" for data.source=photo; empty where nothing varies."""
    return ", ".join(place.values())
