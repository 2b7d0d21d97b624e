"""Reproduce: run an experiment's cells, here or on a cluster, and write what they end in.

OUT/SCALE/runs/…        run folders, shared by all experiments of the scale
OUT/SCALE/EXPERIMENT/   result.md, tables as CSV and LaTeX, figures, records.jsonl, cells.json
"""

import json
import time
import warnings
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from typing import Any, Literal

from .._lib.environment import environment
from .._lib.files import make_folder, write_file
from ..errors import RunFailed, UserError, check_choice
from ..evaluation.records import to_json
from .analysis.figures import save_figure, save_rows
from .cells import Cell, plan
from .experiment import Experiment, Scale, ScaleName, load_experiment
from .local import Failure, Result, Results, attempt_alone, collect, note_of, run_here
from .study import Done, Made, Study, known_cells

On = Literal["local", "ray", "none"]
"""In this process; on a Ray cluster; nowhere: only what is done already is collected."""


def prepare(
    name: str | Path, scale: ScaleName, seeds: int | None, overrides: Sequence[str]
) -> tuple[Experiment, Scale, list[Cell]]:
    """The experiment, the scale and its cells; every setting is checked."""
    check_choice("scale", scale, ScaleName)
    experiment = load_experiment(name)
    if seeds is not None and seeds < 1:
        raise UserError(f"seeds={seeds} must be at least 1")
    size = _size(experiment, scale, seeds)
    parts = [_part(part, experiment.name) for part in experiment.parts]
    cells = [cell for part in parts for cell in plan(part, _size(part, scale, seeds), overrides)]
    return experiment, size, cells if parts else plan(experiment, size, overrides)


def _part(name: str, whole: str) -> Experiment:
    part = load_experiment(name)
    if part.parts:
        raise UserError(f"experiment {whole}: its part {name} has parts itself; name those instead")
    return part


def _size(experiment: Experiment, scale: ScaleName, seeds: int | None) -> Scale:
    size = experiment.scales[scale]
    return size if seeds is None else replace(size, seeds=seeds)


def reproduce(
    name: str | Path,
    *,
    scale: ScaleName = "small",
    seeds: int | None = None,
    out: str | Path = "reproduced",
    overrides: Sequence[str] = (),
    on: On = "local",
    cpus: int | None = None,
    gpus: int | None = None,
    records: str | Path | None = None,
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
        on: where cells run: "local" for one after another in this process, "ray" for all at once on a Ray cluster,
            "none" for nowhere, so that the outcome is of what is done.
        cpus: of a cell on Ray, and its threads; None for 1.
        gpus: of a cell on Ray; None for 1 where the cluster has any.
        records: a folder with records of cells done elsewhere, which are then not run here.
    """
    check_choice("on", on, On)
    check_needs(cpus, gpus)
    if on != "ray" and (cpus, gpus) != (None, None):
        raise UserError(f"cpus={cpus}, gpus={gpus} are what a cell has on a cluster: leave them out with on={on!r}")
    experiment, size, cells = prepare(name, scale, seeds, overrides)
    home = Path(out) / scale
    folder = home / experiment.name
    make_folder(folder)
    results = dict[int, Result](known_cells(cells, home / "runs", records))
    _write_cells(folder, cells, results)
    left = [place for place in range(len(cells)) if place not in results]
    with closing(_run([cells[place] for place in left], home / "runs", on, cpus, gpus)) as coming:
        for place, result in coming:
            results[left[place]] = result
            _write_cells(folder, cells, results)
    ended = [results[place] for place in sorted(results)]
    for part in experiment.parts:
        own, scale_of_part, cells_of_part = prepare(part, scale, seeds, overrides)
        _write(own, scale_of_part, cells_of_part, [one for one in ended if one.cell.experiment == own.name], home)
    _write(experiment, size, cells, ended, home)
    _raise_failed([one for one in ended if isinstance(one, Failure)], len(cells), folder, on)
    return folder


def _write(experiment: Experiment, size: Scale, cells: Sequence[Cell], ended: Sequence[Result], home: Path) -> None:
    """The outcome of what is done."""
    done, failed = [one for one in ended if isinstance(one, Done)], [one for one in ended if isinstance(one, Failure)]
    study = Study(experiment=experiment, scale=size, cells=cells, done=done)
    if done or not cells:
        folder = home / experiment.name
        make_folder(folder)
        made: Made = import_module(f".outcomes.{experiment.outcome}", __package__).make(study)
        write_outcome(study, made, folder, [f"{one.cell.name}: {one.reason}" for one in failed])


def _raise_failed(failed: Sequence[Failure], cells: int, folder: Path, on: On) -> None:
    if failed:
        first = f"{failed[0].cell.name}: {failed[0].reason}"
        lack = "are not done" if on == "none" else "failed"
        many = f"{len(failed)} of {cells} cells {lack}, the first is {first}"
        again = "run them without --on none" if on == "none" else "the same command tries the failed ones again"
        raise RunFailed(f"{many}; the others are kept in {folder}; {again}")


def reproduce_cell(
    name: str | Path,
    number: int,
    *,
    scale: ScaleName = "small",
    seeds: int | None = None,
    out: str | Path = "reproduced",
    overrides: Sequence[str] = (),
    records: str | Path | None = None,
) -> Path:
    """Run one cell, counted from 1, and write no outcome; returns its run folder, or that of its known records.

    It is what a job of a cluster does. It waits while another process trains into that folder. The other arguments are
    those of `reproduce`.
    """
    _, _, cells = prepare(name, scale, seeds, overrides)
    if not 1 <= number <= len(cells):
        raise UserError(f"cell={number} is not among the {len(cells)} cells; see them with --dry-run")
    cell, runs = cells[number - 1], Path(out) / scale / "runs"
    if records is not None and known_cells([cell], runs, records):
        return Path(records)
    waits = f"{runs / cell.folder} is in use: waiting until the other process ends"
    result = attempt_alone(cell, runs, f"{number}/{len(cells)} {cell.name}", lambda: warnings.warn(waits, stacklevel=2))
    if isinstance(result, Failure):
        raise RunFailed(f"{cell.name}: {result.reason}; traceback in {note_of(cell, runs)}")
    return result.run.path


def check_needs(cpus: int | None, gpus: int | None) -> None:
    """Refuse numbers that no cell can have."""
    if cpus is not None and cpus < 1:
        raise UserError(f"cpus={cpus} must be at least 1")
    if gpus is not None and gpus < 0:
        raise UserError(f"gpus={gpus} must be at least 0")


def _run(cells: Sequence[Cell], runs: Path, on: On, cpus: int | None, gpus: int | None) -> Results:
    if on == "ray":
        from .ray import run_on_ray

        return run_on_ray(cells, runs, cpus or 1, gpus)
    return run_here(cells, runs) if on == "local" else collect(cells, runs)


def _write_cells(folder: Path, cells: Sequence[Cell], results: Mapping[int, Result]) -> None:
    """What became of each cell, for people and programs."""
    states = list[dict[str, Any]]()
    for place, cell in enumerate(cells):
        result = results.get(place)
        state = "done" if isinstance(result, Done) else "failed" if result is not None and result.tried else "waiting"
        reason = result.reason if isinstance(result, Failure) else ""
        seed, run = cell.config.seed, cell.folder
        states.append({"cell": cell.name, "seed": seed, "run": run, "state": state, "reason": reason})
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
    if records and not study.experiment.parts:  # which have them
        write_file(folder / "records.jsonl", "".join(to_json(record) + "\n" for record in records).encode())
    shown = [f"{figure.name}.png" for figure in made.figures] + [n for n in made.pictures if n.endswith(".png")]
    parts = [f"# {study.title}", study.experiment.expect.strip(), *(table.to_markdown() for table in made.tables)]
    parts += [f"![{name}]({name})" for name in shown]
    lacks = [f"- {reason}" + (f" ({cells} cells)" if cells > 1 else "") for reason, cells in Counter(failures).items()]
    parts += ["Not done:\n\n" + "\n".join(lacks)] if lacks else []
    parts.append(_provenance(study))
    write_file(folder / "result.md", ("\n\n".join(part.strip() for part in parts) + "\n").encode())


def _provenance(study: Study) -> str:
    """Command, commit, hardware, seeds; the commits of the cells where they were run by others."""
    now: dict[str, Any] = environment()
    seeds = sorted({cell.config.seed for cell in study.cells})
    machine = f"{now['system']}, {now['cores']} cores, {now['threads']} threads, {now['devices']}"
    made = f"`{now['command']}`, commit {now['commit'] or 'unknown'}, {time.strftime('%Y-%m-%d')}"
    versions = f"pdeplus {now['pdeplus']}, torch {now['torch']}, Python {now['python']}"
    others = sorted({record.commit for one in study.done for record in one.records if record.commit} - {now["commit"]})
    earlier = f"; cells tested at commits {', '.join(others)}" if others else ""
    return f"Made by {made}{earlier}; {machine}; {versions}; seeds {', '.join(map(str, seeds)) or 0}."
