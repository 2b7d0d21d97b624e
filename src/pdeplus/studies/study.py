"""What an outcome is made from: the cells that are done, their runs and records, and what the scale comes to."""

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, final

from ..errors import UserError
from ..evaluation.loop import FILE as RECORDS
from ..evaluation.metrics import Estimate
from ..evaluation.records import Record, read_records
from ..evaluation.summary import Series, find_baseline, scores, series_of
from ..reports.figures import Figure, Row
from ..reports.tables import Table
from ..training.config import config_hash, to_tables
from ..training.run_folder import Run, build_method
from .cells import Cell, is_trained, suite_of
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


KnownTest = tuple[str, str, int, int]
"""Origin, corruption, severity and noisy passes: what one network is tested on."""


@final
class Known:
    """All records below a folder, such as an earlier outcome's."""

    def __init__(self, folder: str | Path) -> None:
        files = sorted(Path(folder).rglob(RECORDS))
        if not files:
            raise UserError(f"--records {folder}: there is no {RECORDS} in it or below it")
        self._networks = defaultdict[tuple[str, int], dict[tuple[str, str], dict[KnownTest, Record]]](dict)
        """By configuration and seed, by folder and weights: what was measured of that network."""
        for file in files:
            for record in read_records(file):
                if record.selection == "validation":
                    self._add(file.parent.name, record)
        self._suites = dict[str, list[tuple[str, str, int]]]()

    def _add(self, folder: str, record: Record) -> None:
        network = self._networks[record.config, record.seed].setdefault((folder, record.weights), {})
        network[record.origin, record.corruption, record.severity, record.samples] = record

    def records_of(self, cell: Cell) -> list[Record] | None:
        """What the cell's tests would give, under its label; None unless all of one network are known.

        The same test images are meant, to the pixel: the data set is read and compared. Where several networks were
        trained alike, such as on two machines, that of the cell's own experiment is taken.
        """
        networks = self._networks.get((config_hash(cell.config), cell.config.seed))
        if cell.tests == "none" or not networks:
            return None
        wanted = [(*test, samples) for samples in _passes(cell) for test in self._tests(cell)]
        for _, measured in sorted(networks.items(), key=lambda item: item[0][0] != cell.experiment):
            if all(test in measured for test in wanted):
                return [replace(measured[test], model=cell.label) for test in wanted]
        return None

    def _tests(self, cell: Cell) -> list[tuple[str, str, int]]:
        """Of each test set its images' origin, corruption and severity; read once for cells that have it in common."""
        key = str((cell.config.data, cell.tests, cell.limit, cell.augmentations))
        if key not in self._suites:
            suite = suite_of(cell)
            self._suites[key] = [(suite.origin, test.corruption, test.severity) for test in suite.sets]
        return self._suites[key]


def known_cells(cells: Sequence[Cell], runs: Path, records: str | Path | None) -> dict[int, Done]:
    """By place, the cells that are done according to records below a folder and are not trained here."""
    if records is None:
        return {}
    known, found = Known(records), dict[int, Done]()
    for place, cell in enumerate(cells):
        measured = None if is_trained(cell, runs) else known.records_of(cell)
        if measured is not None:
            found[place] = Done(cell=cell, run=Run(runs / cell.folder), records=measured)
    return found


def _passes(cell: Cell) -> tuple[int, ...]:
    """The numbers of noisy passes that the cell is tested with."""
    return cell.samples or (build_method(cell.config).samples,)
