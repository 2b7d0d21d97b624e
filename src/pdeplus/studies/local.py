"""Cells in this process: trained and tested one after another, each with its result or why there is none."""

import time
import traceback
from collections.abc import Callable, Generator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import final

from .._lib.files import LOCK, locked, make_folder, write_file
from .._lib.long_work import counting_bar
from ..errors import UserError
from ..evaluation.loop import Watch as Count
from ..training.session import progress_bar
from .cells import Cell, Done, is_trained, run_cell

POLL_SECONDS = 0.5


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


def run_here(cells: Sequence[Cell], runs: Path) -> Results:
    """Run the cells one after another."""
    for index, cell in enumerate(cells):
        yield index, attempt(cell, runs, f"{index + 1}/{len(cells)} {cell.name}")


def collect(cells: Sequence[Cell], runs: Path) -> Results:
    """Collect what is trained and tested; nothing else is begun. A reason is the last line of an earlier traceback."""
    for index, cell in enumerate(cells):
        if is_trained(cell, runs):
            yield index, attempt(cell, runs, f"{index + 1}/{len(cells)} {cell.name}", testing=_refuse)
        else:
            note = note_of(cell, runs)
            lines = note.read_text("utf-8").strip().splitlines() if note.is_file() else []
            reason = f"not trained: {lines[-1]}" if lines else "not trained yet"
            yield index, Failure(cell=cell, reason=reason, tried=note.is_file())


class _NotTested(Exception):
    """A cell is trained, but its tests are not done."""


def _refuse(done: int, of: int) -> None:
    """Called after the first batch of a test set, before anything is written."""
    raise _NotTested


def attempt(cell: Cell, runs: Path, title: str, *, testing: Count | None = None) -> Result:
    """Whatever goes wrong in a cell stays in the cell; its traceback stands in a file beside the runs.

    `testing` is called as tests go on, by default by a progress bar.
    """
    note = note_of(cell, runs)
    try:
        with progress_bar(title) as watch, counting_bar(f"{title}, testing", None, " images") as count:
            done = run_cell(cell, runs, watch, testing or count)
        note.unlink(missing_ok=True)
        return done
    except _NotTested:
        return Failure(cell=cell, reason="not tested yet", tried=False)
    except Exception as error:
        make_folder(runs)
        write_file(note, traceback.format_exc().encode(errors="backslashreplace"))
        return Failure(cell=cell, reason=" ".join(str(error).split()) or type(error).__name__)


def note_of(cell: Cell, runs: Path) -> Path:
    """The file that holds the traceback of a cell that failed."""
    return runs / f"{cell.folder}.failed.txt"


def attempt_alone(cell: Cell, runs: Path, title: str, tell: Callable[[], object]) -> Result:
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
                return attempt(cell, runs, title)
        else:
            result = attempt(replace(cell, tests="none"), runs, title)
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
