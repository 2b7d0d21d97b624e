"""Cells: one run of an experiment each, trained and tested into a folder that other experiments share.

`plan` lists them, `run_cell` runs one, and `known_cells` finds those whose records were written elsewhere.
"""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any, final

import torch

from .._lib.registry import build, unknown
from .._lib.seeds import generator_for
from ..augment.base import Augmentor
from ..data.base import Images, Source
from ..errors import UserError
from ..evaluation.loop import FILE as RECORDS
from ..evaluation.loop import Watch as Count
from ..evaluation.loop import evaluate
from ..evaluation.records import Record, read_records
from ..evaluation.test_sets import as_source, build_suite, chosen_places
from ..training.config import Config, config_hash, load_config
from ..training.run_folder import Run, build_method, build_source, train_or_resume
from ..training.session import Watch
from .experiment import Experiment, Row, Size, Tests
from .variants import named_methods, settings


@final
@dataclass(frozen=True, kw_only=True)
class Cell:
    """A run to be trained and what it is tested on."""

    name: str
    experiment: str
    """The experiment that it belongs to."""
    label: str
    """What tables call it: its row."""
    paper: str
    """The paper's name of the row."""
    about: str
    place: Mapping[str, str]
    """The varied settings and their values."""
    config: Config
    tests: Tests
    limit: int
    samples: tuple[int, ...] = ()
    """Noisy passes to test with; empty for what the method does."""
    augmentations: tuple[str, ...] = ()
    """What test images are changed by, where tests are "augmented"."""

    @cached_property  # asked for after every cell, of every cell
    def folder(self) -> str:
        """The name of its run folder: equal for cells of any experiment that train the same."""
        config = self.config
        return f"{config.data.name}-{config.method.name}-{config_hash(config)[:8]}-seed{config.seed}"


@final
@dataclass(frozen=True, kw_only=True)
class Done:
    """A cell that is trained and tested."""

    cell: Cell
    run: Run
    """There may be no such folder where only records are known (`known_cells`)."""
    records: Sequence[Record]


def plan(experiment: Experiment, size: Size, overrides: Sequence[str] = ()) -> list[Cell]:
    """All cells, the baseline's first; their settings are checked, so that a mistake is answered before any training.

    Seeds are 0, 1, …; `overrides` go over everything, for every cell.
    """
    for override in overrides:
        if override.partition("=")[0].strip() in ("name", "seed"):
            own = "cells have names and seeds of their own; --seeds N is for the seeds 0 to N - 1"
            raise UserError(f"{override}: {own}")
    cells = [
        _cell(experiment, size, row, place, seed, overrides)
        for seed in range(size.seeds)
        for place in experiment.places(size)
        for row in experiment.rows
        if seed == 0 or not row.once
    ]
    return sorted(cells, key=lambda cell: cell.label != "ERM")  # what the others' mCE needs


def _cell(
    experiment: Experiment, size: Size, row: Row, place: Mapping[str, str], seed: int, overrides: Sequence[str]
) -> Cell:
    if row.method and row.method not in named_methods():
        raise unknown(f"experiment {experiment.name}: method {row.method!r}", row.method, list(named_methods()))
    varied = [f"{key}={value}" for key, value in place.items()]
    chosen = [*experiment.set, *(settings(row.method) if row.method else ()), *row.set, *size.set, *varied, *overrides]
    config = load_config(row.preset or experiment.preset, [*chosen, f"name={row.name}", f"seed={seed}"])
    if row.stretch != 1:
        epochs = max(1, round(row.stretch * config.train.epochs))
        config = replace(config, train=replace(config.train, epochs=epochs))
    label = row.label or build_method(config).label
    options = {**experiment.options, **size.options}
    return Cell(
        name="-".join([row.name, *place.values()]),
        experiment=experiment.name,
        label=label,
        paper=row.paper or label,
        about=row.about,
        place=place,
        config=config,
        tests=experiment.tests,
        limit=size.limit,
        samples=row.samples,
        augmentations=tuple(options.get("augmentations", ())) if experiment.tests == "augmented" else (),
    )


def run_cell(cell: Cell, runs: Path, watch: Watch | None = None, count: Count | None = None) -> Done:
    """Train and test a cell; what is done already is kept, what was interrupted goes on.

    A folder that holds another run is refused.
    """
    run = train_or_resume(cell.config, runs / cell.folder, watch=watch)
    records = list[Record]()
    if cell.tests != "none":
        tested_on = _tested_on(cell)
        for samples in cell.samples or (None,):
            records += evaluate(run, name=cell.label, samples=samples, watch=count, **tested_on)
    return Done(cell=cell, run=run, records=records)


def is_trained(cell: Cell, runs: Path) -> bool:
    """Whether its run is finished; it may not be tested yet."""
    return Run(runs / cell.folder).finished


def is_tested(cell: Cell, runs: Path) -> bool:
    """Whether its run's tests were at least begun, under the cell's label."""
    file = runs / cell.folder / RECORDS
    return cell.tests == "none" or (file.is_file() and any(r.model == cell.label for r in read_records(file)))


def known_cells(cells: Sequence[Cell], runs: Path, records: str | Path | None) -> dict[int, Done]:
    """By index, the cells that are done according to records below a folder and are not trained here."""
    if records is None:
        return {}
    known, found = KnownRecords(records), dict[int, Done]()
    for index, cell in enumerate(cells):
        measured = None if is_trained(cell, runs) else known.records_of(cell)
        if measured is not None:
            found[index] = Done(cell=cell, run=Run(runs / cell.folder), records=measured)
    return found


KnownTest = tuple[str, str, int, int]
"""Origin, corruption, severity and noisy passes: what one network is tested on."""


@final
class KnownRecords:
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
        passes = cell.samples or (build_method(cell.config).samples,)
        wanted = [(*test, samples) for samples in passes for test in self._tests(cell)]
        for _, measured in sorted(networks.items(), key=lambda item: item[0][0] != cell.experiment):
            if all(test in measured for test in wanted):
                return [replace(measured[test], model=cell.label) for test in wanted]
        return None

    def _tests(self, cell: Cell) -> list[tuple[str, str, int]]:
        """Of each test set its images' origin, corruption and severity; read once for cells that have it in common."""
        key = str((cell.config.data, cell.tests, cell.limit, cell.augmentations))
        if key not in self._suites:
            given = _tested_on(cell)
            suite = build_suite(*as_source(given.pop("data")), **given)
            self._suites[key] = [(suite.origin, test.corruption, test.severity) for test in suite.sets]
        return self._suites[key]


def _tested_on(cell: Cell) -> dict[str, Any]:
    """Suite, images and how many, as `evaluate` takes them."""
    source = build_source(cell.config)  # which may lie elsewhere now than when the run read it
    if cell.tests != "augmented":
        return {"suite": cell.tests, "limit": cell.limit, "data": source}
    augmented = AugmentedTests(source, cell.config.data.name, cell.augmentations, cell.limit)
    return {"suite": "domains", "data": augmented}


STRENGTH: Mapping[str, Mapping[str, float]] = {"gaussian_noise": {"std": 0.1, "fraction": 1.0}}
"""Options of the augmentations where their defaults leave some images as they are."""


@final
class AugmentedTests(Source):
    """Another data set whose test sets are its own test images, clean and under each augmentation.

    The changed images are drawn once and for all: every network is tested on the same ones.
    """

    def __init__(self, source: Source, name: str, augmentations: Sequence[str], limit: int = 0, seed: int = 0) -> None:
        self.source, self.name, self.augmentations, self.limit, self.seed = source, name, augmentations, limit, seed

    @property
    def classes(self) -> tuple[str, ...]:
        return self.source.classes

    @property
    def transform(self) -> Augmentor:
        return self.source.transform

    def train(self) -> Images:
        return self.source.train()

    def test(self) -> Mapping[str, Images]:
        own = next(iter(self.source.test().values()))
        clean = own.take(chosen_places(len(own), self.limit))
        return {self.name: clean, **{name: self._changed(clean, name) for name in self.augmentations}}

    def _changed(self, clean: Images, name: str) -> Images:
        augmentor: Augmentor = build("augment", name, STRENGTH.get(name, {}))
        views = augmentor(clean.floats(), generator_for(self.seed, "augmented", name))
        return Images(views.mul(255).round().to(torch.uint8), clean.labels)
