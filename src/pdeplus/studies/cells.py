"""Cells: one run of an experiment each, trained and tested into a folder that other experiments share."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
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
from ..evaluation.test_sets import TestSuite, as_source, build_suite, chosen_places
from ..training.config import Config, config_hash, load_config
from ..training.run_folder import Run, build_method, build_source, train_or_resume
from ..training.session import Watch
from .experiment import Experiment, Row, Scale, Tests
from .variants import named_methods, settings

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


@final
@dataclass(frozen=True, kw_only=True)
class Cell:
    """A run to be trained and what it is tested on."""

    name: str
    experiment: str
    """Whose cell it is."""
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


def plan(experiment: Experiment, scale: Scale, overrides: Sequence[str] = ()) -> list[Cell]:
    """All cells, the baseline's first; their settings are checked, so that a mistake is answered before any training.

    Seeds are 0, 1, …; `overrides` go over everything, for every cell.
    """
    for override in overrides:
        if override.partition("=")[0].strip() in ("name", "seed"):
            raise UserError(
                f"{override}: cells have names and seeds of their own; --seeds N is for the seeds 0 to N - 1"
            )
    cells = [
        _cell(experiment, scale, row, place, seed, overrides)
        for seed in range(scale.seeds)
        for place in experiment.places(scale)
        for row in experiment.rows
        if seed == 0 or not row.once
    ]
    return sorted(cells, key=lambda cell: cell.label != "ERM")  # what the others' mCE needs


def _cell(
    experiment: Experiment, scale: Scale, row: Row, place: Mapping[str, str], seed: int, overrides: Sequence[str]
) -> Cell:
    if row.recipe and row.recipe not in named_methods():
        raise unknown(f"experiment {experiment.name}: recipe {row.recipe!r}", row.recipe, list(named_methods()))
    varied = [f"{key}={value}" for key, value in place.items()]
    chosen = [*experiment.set, *(settings(row.recipe) if row.recipe else ()), *row.set, *scale.set, *varied, *overrides]
    config = load_config(row.preset or experiment.preset, [*chosen, f"name={row.name}", f"seed={seed}"])
    if row.stretch != 1:
        epochs = max(1, round(row.stretch * config.train.epochs))
        config = replace(config, train=replace(config.train, epochs=epochs))
    label = row.label or build_method(config).label
    options = {**experiment.options, **scale.options}
    return Cell(
        name="-".join([row.name, *place.values()]),
        experiment=experiment.name,
        label=label,
        paper=row.paper or label,
        about=row.about,
        place=place,
        config=config,
        tests=experiment.tests,
        limit=scale.limit,
        samples=row.samples,
        augmentations=tuple(options.get("augmentations", ())) if experiment.tests == "augmented" else (),
    )


def run_cell(
    cell: Cell, runs: Path, watch: Watch | None = None, count: Count | None = None
) -> tuple[Run, list[Record]]:
    """Train and test a cell: its run and its records; what is done already is kept, what was interrupted goes on.

    A folder that holds another run is refused.
    """
    run = train_or_resume(cell.config, runs / cell.folder, watch=watch)
    return run, _records(cell, run, count)


def _records(cell: Cell, run: Run, count: Count | None) -> list[Record]:
    """None where nothing is tested."""
    if cell.tests == "none":
        return []
    test = partial(evaluate, run, name=cell.label, watch=count, **_tested_on(cell))
    return [record for samples in cell.samples or (None,) for record in test(samples=samples)]


def suite_of(cell: Cell) -> TestSuite:
    """The test sets of a cell that is tested."""
    given = _tested_on(cell)
    return build_suite(*as_source(given.pop("data")), **given)


def _tested_on(cell: Cell) -> dict[str, Any]:
    """Suite, images and how many, as `evaluate` takes them."""
    source = build_source(cell.config)  # which may lie elsewhere than where the run read it
    if cell.tests != "augmented":
        return {"suite": cell.tests, "limit": cell.limit, "data": source}
    augmented = AugmentedTests(source, cell.config.data.name, cell.augmentations, cell.limit)
    return {"suite": "domains", "data": augmented}


def is_trained(cell: Cell, runs: Path) -> bool:
    """Whether its run is finished; its tests may lack."""
    return Run(runs / cell.folder).finished


def is_tested(cell: Cell, runs: Path) -> bool:
    """Whether its run's tests were at least begun, under the cell's label."""
    file = runs / cell.folder / RECORDS
    return cell.tests == "none" or (file.is_file() and any(r.model == cell.label for r in read_records(file)))
