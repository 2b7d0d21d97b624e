"""Reproduce: run an experiment's cells one by one and write what they end in.

OUT/SCALE/runs/…        run folders, shared by all experiments of the scale
OUT/SCALE/EXPERIMENT/   result.md, tables as CSV and LaTeX, figures, records.jsonl, cells.json
"""

import json
import time
import traceback
from collections.abc import Sequence
from dataclasses import dataclass, replace
from importlib import import_module
from pathlib import Path
from typing import Any, final

from .._checkpoint import make_folder, write_file
from .._environment import environment
from .._errors import RunFailed, UserError, check_choice
from .._progress import counting_bar, progress_bar
from ..analysis.figures import save_figure, save_rows
from ..records import to_json
from .cells import Cell, plan, run_cell
from .experiment import Experiment, Scale, ScaleName, load_experiment
from .study import Done, Made, Study


@final
@dataclass(frozen=True, kw_only=True)
class Failure:
    """A cell that could not be done, and why in one line."""

    cell: Cell
    reason: str


def prepare(
    name: str | Path, scale: ScaleName, seeds: int | None, overrides: Sequence[str]
) -> tuple[Experiment, Scale, list[Cell]]:
    """The experiment, the scale and its cells; every setting is checked."""
    check_choice("scale", scale, ScaleName)
    experiment = load_experiment(name)
    if seeds is not None and seeds < 1:
        raise UserError(f"seeds={seeds} must be at least 1")
    size = experiment.scales[scale]
    size = size if seeds is None else replace(size, seeds=seeds)
    return experiment, size, plan(experiment, size, overrides)


def reproduce(
    name: str | Path,
    *,
    scale: ScaleName = "small",
    seeds: int | None = None,
    out: str | Path = "reproduced",
    overrides: Sequence[str] = (),
) -> Path:
    """Run whatever is not done yet and write the outcome; returns the folder it stands in.

    Finished cells are kept, interrupted ones go on, failed ones are tried again. A cell that fails does not stop the
    others: the outcome is written without it, and what failed is raised at the end as one `RunFailed`.

    Args:
        name: one of `experiments()`, or a .toml file.
        scale: "full", "small" or "smoke".
        seeds: repetitions; None for the scale's own.
        out: folder of all experiments and scales.
        overrides: settings of every cell, such as "data.root=DIR".
    """
    experiment, size, cells = prepare(name, scale, seeds, overrides)
    home = Path(out) / scale
    folder = home / experiment.name
    make_folder(folder)
    done, failed = list[Done](), list[Failure]()
    for number, cell in enumerate(cells, 1):
        result = _try(cell, home / "runs", f"{number}/{len(cells)} {cell.name}")
        if isinstance(result, Failure):
            failed.append(result)
        else:
            done.append(result)
        _write_cells(folder, cells, done, failed)
    study = Study(experiment=experiment, scale=size, cells=cells, done=done)
    if done or not cells:
        made: Made = import_module(f".outcomes.{experiment.outcome}", __package__).make(study)
        write_outcome(study, made, folder, [f"{one.cell.name}: {one.reason}" for one in failed])
    if failed:
        first = f"{failed[0].cell.name}: {failed[0].reason}"
        many = f"{len(failed)} of {len(cells)} cells failed, the first is {first}"
        raise RunFailed(f"{many}; the others are kept in {folder}; the same command tries the failed ones again")
    return folder


def _try(cell: Cell, runs: Path, title: str) -> Done | Failure:
    """Whatever goes wrong in a cell stays in the cell; its traceback stands in a file beside the runs."""
    note = runs / f"{cell.folder}.failed.txt"
    try:
        with progress_bar(title) as watch, counting_bar(f"{title}, testing", None, " images") as count:
            run, records = run_cell(cell, runs, watch, count)
        note.unlink(missing_ok=True)
        return Done(cell=cell, run=run, records=records)
    except Exception as error:
        make_folder(runs)
        write_file(note, traceback.format_exc().encode(errors="backslashreplace"))
        return Failure(cell=cell, reason=" ".join(str(error).split()) or type(error).__name__)


def _write_cells(folder: Path, cells: Sequence[Cell], done: Sequence[Done], failed: Sequence[Failure]) -> None:
    """What became of each cell, for people and programs."""
    finished = {one.cell.folder for one in done}
    reasons = {one.cell.folder: one.reason for one in failed}
    states = [
        {
            "cell": cell.name,
            "seed": cell.config.seed,
            "run": cell.folder,
            "state": "done" if cell.folder in finished else "failed" if cell.folder in reasons else "waiting",
            "reason": reasons.get(cell.folder, ""),
        }
        for cell in cells
    ]
    write_file(folder / "cells.json", json.dumps(states, indent=1, ensure_ascii=False).encode())


def write_outcome(study: Study, made: Made, folder: Path, failures: Sequence[str]) -> None:
    """result.md with everything in it, and its parts as files of their own."""
    for number, table in enumerate(made.tables, 1):
        name = "table" if len(made.tables) == 1 else f"table{number}"
        write_file(folder / f"{name}.csv", table.to_csv().encode())
        write_file(folder / f"{name}.tex", table.to_latex().encode())
    for figure in made.figures:
        save_figure(figure, folder)
    for name, picture in made.pictures.items():
        write_file(folder / name, picture)
    for name, rows in made.rows.items():
        save_rows(rows, folder, name)
    records = [record for one in study.done for record in one.records]
    if records:
        write_file(folder / "records.jsonl", "".join(to_json(record) + "\n" for record in records).encode())
    shown = [f"{figure.name}.png" for figure in made.figures] + [n for n in made.pictures if n.endswith(".png")]
    parts = [f"# {study.title}", study.experiment.expect.strip(), *(table.to_markdown() for table in made.tables)]
    parts += [f"![{name}]({name})" for name in shown]
    parts += ["Failed:\n\n" + "\n".join(f"- {failure}" for failure in failures)] if failures else []
    parts.append(_provenance(study))
    write_file(folder / "result.md", ("\n\n".join(part.strip() for part in parts) + "\n").encode())


def _provenance(study: Study) -> str:
    """Command, commit, hardware, seeds."""
    now: dict[str, Any] = environment()
    seeds = sorted({cell.config.seed for cell in study.cells})
    machine = f"{now['system']}, {now['cores']} cores, {now['threads']} threads, {now['devices']}"
    made = f"`{now['command']}`, commit {now['commit'] or 'unknown'}, {time.strftime('%Y-%m-%d')}"
    versions = f"pdeplus {now['pdeplus']}, torch {now['torch']}, Python {now['python']}"
    return f"Made by {made}; {machine}; {versions}; seeds {', '.join(map(str, seeds)) or 0}."
