"""Cells: one run of an experiment each, trained and tested into a folder that other experiments share."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from pathlib import Path
from typing import Any, final

from .._errors import UserError
from .._given import as_source
from .._measure import FILE as RECORDS
from .._measure import Watch as Count
from .._registry import unknown
from ..config import Config, config_hash, load_config
from ..evaluate import evaluate
from ..recipes import recipes, settings
from ..records import Record, read_records
from ..run import Run, build_method, build_source, train_or_resume
from ..suites import TestSuite, build_suite
from ..trainer import Watch
from .augmented import AugmentedTests
from .experiment import Experiment, Row, Scale, Tests


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
    if row.recipe and row.recipe not in recipes():
        raise unknown(f"experiment {experiment.name}: recipe {row.recipe!r}", row.recipe, list(recipes()))
    varied = [f"{key}={value}" for key, value in place.items()]
    chosen = [*experiment.set, *(settings(row.recipe) if row.recipe else ()), *row.set, *scale.set, *varied, *overrides]
    config = load_config(row.preset or experiment.preset, [*chosen, f"name={row.name}", f"seed={seed}"])
    if row.stretch != 1:
        epochs = max(1, round(row.stretch * config.train.epochs))
        config = replace(config, train=replace(config.train, epochs=epochs))
    label = row.label or str(getattr(build_method(config), "label", row.name))
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
