"""Cells that were done elsewhere: their records are at hand, their run folders are not."""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import final

from .._errors import UserError
from .._measure import FILE as RECORDS
from ..config import config_hash
from ..records import Record, read_records
from ..run import Run, build_method
from .cells import Cell, is_trained, suite_of
from .study import Done

TestKey = tuple[str, str, int, int]
"""Origin, corruption, severity and noisy passes: what one network is tested on."""


@final
class Known:
    """All records below a folder, such as an earlier outcome's."""

    def __init__(self, folder: str | Path) -> None:
        files = sorted(Path(folder).rglob(RECORDS))
        if not files:
            raise UserError(f"--records {folder}: there is no {RECORDS} in it or below it")
        self._networks = defaultdict[tuple[str, int], dict[tuple[str, str], dict[TestKey, Record]]](dict)
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
    return cell.samples or (int(getattr(build_method(cell.config), "samples", 0)),)
