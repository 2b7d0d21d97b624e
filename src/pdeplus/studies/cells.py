"""Cells: one run of an experiment each, trained and tested into a folder that other experiments share.

`plan` lists them, `run_cell` runs one, `attempt` does so without taking others along where it fails, `collect` takes
what is done, and `known_cells` finds those whose records were written elsewhere.
"""

import time
import traceback
from collections import defaultdict
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any, final

from .._lib.files import LOCK, locked, make_folder, write_file
from .._lib.long_work import Count
from .._lib.registry import unknown
from ..errors import UserError, reason_of
from ..evaluation.loop import evaluate
from ..evaluation.records import RECORDS, Record, read_records
from ..evaluation.test_sets import as_source, build_suite
from ..training.config import Config, config_hash, load_config
from ..training.run_folder import Run, Selection, build_method, build_source, train_or_resume
from ..training.session import Watch
from .experiment import Experiment, Row, Size, Tests, named_methods, settings
from .other_tests import AugmentedTests, HeldOut

POLL_SECONDS = 0.5


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
    """The paper's name of the row; empty where it is not to be compared with."""
    about: str
    place: Mapping[str, str]
    """The varied settings and their values."""
    config: Config
    tests: Tests
    limit: int
    cbar: bool = False
    """Tested on C̄ too."""
    samples: tuple[int, ...] = ()
    """Noisy passes to test with; empty for what the method does."""
    selection: Selection = "validation"
    """Whose weights are tested: the best epoch's on held-out images, or the last one's."""
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


@final
@dataclass(frozen=True, kw_only=True)
class Failure:
    """A cell that could not be done, and why in one line."""

    cell: Cell
    reason: str
    tried: bool = True
    """Whether it was begun at all; not so where only what is done was collected."""


Result = Done | Failure
Results = Generator[tuple[int, Result]]
"""The index of each cell and what became of it, in the order in which they end."""


def plan(experiment: Experiment, size: Size, overrides: Sequence[str] = ()) -> list[Cell]:
    """All cells, the baseline's first; their settings are checked, so that a mistake is answered before any training.

    Seeds are 0, 1, …; `overrides` go over everything, for every cell.
    """
    for override in (*overrides, *(experiment.vary if size.vary is None else size.vary)):
        if override.partition("=")[0].strip() in ("name", "seed"):
            own = "each run has its own name and seed; --seeds N is for the seeds 0 to N - 1"
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
    own = [*(settings(row.method) if row.method else ()), *row.set]
    chosen = [*size.base, *experiment.set, *size.regime, *own, *size.set, *varied, *overrides]
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
        paper=row.paper or (label if experiment.packaged else ""),
        about=row.about,
        place=place,
        config=config,
        tests=experiment.tests,
        limit=size.limit,
        cbar=size.cbar,
        samples=row.samples,
        selection=row.selection,
        augmentations=tuple(options.get("augmentations", ())) if experiment.tests == "augmented" else (),
    )


def run_cell(cell: Cell, runs: Path, watch: Watch | None = None, count: Count | None = None) -> Done:
    """Train and test a cell; what is done already is kept, what was interrupted goes on.

    A folder that holds another run is refused.
    """
    run = train_or_resume(cell.config, runs / cell.folder, watch=watch)
    records = list[Record]()
    for tested_on in _tested_on(cell):
        for samples in cell.samples or (None,):
            records += evaluate(
                run, name=cell.label, samples=samples, selection=cell.selection, watch=count, **tested_on
            )
    return Done(cell=cell, run=run, records=records)


def is_trained(cell: Cell, runs: Path) -> bool:
    """Whether its run is finished; it may not be tested yet."""
    return Run(runs / cell.folder).finished


def is_tested(cell: Cell, runs: Path) -> bool:
    """Whether each of its run's tests was at least begun, under the cell's label."""
    file = runs / cell.folder / RECORDS
    records = read_records(file) if file.is_file() else []
    begun = {r.suite == "cbar" for r in records if (r.model, r.selection) == (cell.label, cell.selection)}
    return cell.tests == "none" or begun >= ({False, True} if cell.cbar else {False})


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


def collect(cells: Sequence[Cell], runs: Path) -> Results:
    """Collect what is trained and tested; nothing else is begun. A reason is the last line of an earlier traceback."""
    for index, cell in enumerate(cells):
        if is_trained(cell, runs):
            result = attempt(cell, runs, count=refuse)
            if isinstance(result, Failure) and cell.cbar:  # a run from before it was asked for has the other tests
                result = attempt(replace(cell, cbar=False), runs, count=refuse)
            yield index, replace(result, cell=cell)
        else:
            note = note_of(cell, runs)
            lines = note.read_text("utf-8", "replace").strip().splitlines() if note.is_file() else []
            reason = f"not trained: {lines[-1]}" if lines else "not trained yet"
            yield index, Failure(cell=cell, reason=reason, tried=note.is_file())


class _NotTested(Exception):
    """A cell is trained, but its tests are not done."""


def refuse(done: int, of: int) -> None:
    """A `count` that lets nothing be tested: it is called after the first batch, before anything is written."""
    raise _NotTested


def attempt(cell: Cell, runs: Path, watch: Watch | None = None, count: Count | None = None) -> Result:
    """Whatever goes wrong in a cell stays in the cell; its traceback stands in a file beside the runs."""
    note = note_of(cell, runs)
    try:
        done = run_cell(cell, runs, watch, count)
        note.unlink(missing_ok=True)
        return done
    except _NotTested:
        return Failure(cell=cell, reason="not tested yet", tried=False)
    except Exception as error:
        return failed(cell, runs, reason_of(error), traceback.format_exc())


def failed(cell: Cell, runs: Path, reason: str, note: str) -> Failure:
    """The failure of a cell, with a note beside the runs unless the disk is full."""
    with suppress(UserError):
        make_folder(runs)
        write_file(note_of(cell, runs), note.encode(errors="backslashreplace"))
    return Failure(cell=cell, reason=reason)


def note_of(cell: Cell, runs: Path) -> Path:
    """The file that holds the traceback of a cell that failed."""
    return runs / f"{cell.folder}.failed.txt"


def attempt_alone(
    cell: Cell, runs: Path, tell: Callable[[], object], watch: Watch | None = None, count: Count | None = None
) -> Result:
    """`attempt`, while no other process is in the cell's folder; `tell` is called where one has to be waited for.

    That may be a lost worker in its last moments, or one that trains the same for another row or experiment: its work
    is not done again.
    """
    folder = runs / cell.folder
    while True:
        if in_use(folder):
            tell()
        while in_use(folder):
            time.sleep(POLL_SECONDS)
        if is_trained(cell, runs):
            with suppress(UserError), locked(folder):  # which training does by itself, testing does not
                return attempt(cell, runs, watch, count)
        else:
            result = attempt(replace(cell, tests="none"), runs, watch)
            if isinstance(result, Failure) and not (in_use(folder) or is_trained(cell, runs)):
                return replace(result, cell=cell)  # no other process was a moment faster


def in_use(folder: Path) -> bool:
    """Whether a process trains into a run folder, or tests it for a cluster."""
    if not (folder / LOCK).exists():
        return False
    try:
        with locked(folder, patience=0):
            return False
    except UserError:
        return True


TestImages = tuple[str, str, str, int]
"""Suite, origin, corruption and severity."""
KnownTest = tuple[str, str, str, int, int]
"""These and noisy passes: what one network is tested on."""


@final
class KnownRecords:
    """All records below a folder, such as an earlier outcome's."""

    def __init__(self, folder: str | Path) -> None:
        files = sorted(Path(folder).rglob(RECORDS))
        if not files:
            raise UserError(f"--records {folder}: there is no {RECORDS} in it or below it")
        self._networks = defaultdict[tuple[str, int, str], dict[tuple[str, str], dict[KnownTest, Record]]](dict)
        """By configuration, seed and selection, by folder and weights: what was measured of that network."""
        for file in files:
            for record in read_records(file):
                alike = self._networks[record.config, record.seed, record.selection]
                network = alike.setdefault((file.parent.name, record.weights), {})
                test = record.suite, record.origin, record.corruption, record.severity, record.samples
                network[test] = record
        self._suites = dict[str, list[list[TestImages]]]()

    def records_of(self, cell: Cell) -> list[Record] | None:
        """What the cell's tests would give, under its label; None unless all of one network are known, but for C̄.

        The same test images are meant, to the pixel: the data set is read and compared. Where several networks were
        trained alike, such as on two machines, that of the cell's own experiment is taken.
        """
        networks = self._networks.get((config_hash(cell.config), cell.config.seed, cell.selection))
        if cell.tests == "none" or not networks:
            return None
        passes = cell.samples or (build_method(cell.config).samples,)
        needed, *second = [[(*test, samples) for samples in passes for test in suite] for suite in self._tests(cell)]
        for _, measured in sorted(networks.items(), key=lambda item: item[0][0] != cell.experiment):
            if all(test in measured for test in needed):
                found = [*needed, *(test for tests in second for test in tests if test in measured)]
                return [replace(measured[test], model=cell.label) for test in found]
        return None

    def _tests(self, cell: Cell) -> list[list[TestImages]]:
        """Of each suite its test sets, read once for cells that have them in common."""
        held_out = (cell.config.train, cell.config.seed) if cell.tests == "held_out" else ()
        key = str((cell.config.data, cell.tests, cell.limit, cell.cbar, cell.augmentations, held_out))
        if key not in self._suites:
            suites = [build_suite(*as_source(given.pop("data")), **given) for given in _tested_on(cell)]
            self._suites[key] = [
                [(s.name, s.origin, test.corruption, test.severity) for test in s.sets] for s in suites
            ]
        return self._suites[key]


def _tested_on(cell: Cell) -> list[dict[str, Any]]:
    """Suite, images and how many, as `evaluate` takes them; C̄ comes last."""
    if cell.tests == "none":
        return []
    source = build_source(cell.config)  # which may lie elsewhere now than when the run read it
    if cell.tests == "held_out":
        return [{"suite": "domains", "data": HeldOut(source, cell.config, cell.limit)}]
    if cell.tests == "augmented":
        return [
            {"suite": "domains", "data": AugmentedTests(source, cell.config.data.name, cell.augmentations, cell.limit)}
        ]
    suites = [cell.tests, *["cbar"] * cell.cbar]
    return [{"suite": suite, "limit": cell.limit, "data": source} for suite in suites]
