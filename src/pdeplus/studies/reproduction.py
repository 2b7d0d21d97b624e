"""Reproduce: run an experiment's cells, here or on a cluster, and write what they end in.

OUT/SIZE/runs/…        run folders, shared by all experiments of that size
OUT/SIZE/EXPERIMENT/   result.md, tables as CSV and LaTeX, figures, records.jsonl, cells.json
"""

import json
import time
import warnings
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

from .._lib.environment import environment
from .._lib.files import make_folder, write_file
from .._lib.long_work import counting_bar
from .._lib.registry import require
from ..errors import RunFailed, UserError, check_choice, check_least
from ..evaluation.records import RECORDS, to_json
from ..training.session import progress_bar
from .analysis.figures import save_figure, save_rows
from .cells import Cell, Done, Failure, Result, Results, attempt_alone, collect, known_cells, note_of, plan
from .experiment import Experiment, Size, SizeName, load_experiment
from .jobs import choose_jobs, run_here
from .outcomes import OUTCOMES
from .study import Study

On = Literal["local", "ray", "none"]
"""On this machine; on a Ray cluster; nowhere: only what is done already is collected."""


def reproduce(
    name: str | Path | Experiment,
    *,
    size: SizeName = "small",
    seeds: int | None = None,
    out: str | Path = "reproduced",
    overrides: Sequence[str] = (),
    on: On = "local",
    cpus: int | None = None,
    gpus: int | None = None,
    jobs: int | None = None,
    records: str | Path | None = None,
) -> Path:
    """Run whatever is not done yet and write the outcome; returns the folder it stands in.

    Finished cells are kept, interrupted ones go on, failed ones are tried again. A cell that fails does not stop the
    others: the outcome is written without it, and what failed is raised at the end as one `RunFailed`.

    Args:
        name: one of `experiments()`, a .toml file, or an experiment itself.
        size: "full", "fast", "small", "smoke", or "own" for the preset's own settings.
        seeds: repetitions; None for the size's own.
        out: folder of all experiments and sizes.
        overrides: settings of every cell, such as "data.root=DIR".
        on: where cells run: "local" for processes of one thread on this machine, "ray" for all at once on a Ray
            cluster, "none" for nowhere, so that the outcome is of what is done.
        cpus: of a cell on Ray, and its threads; None for 1.
        gpus: of a cell on Ray; None for 1 where the cluster has any.
        jobs: runs at once on this machine, which change no bit; None for one on each core, or 1 where there is a GPU.
        records: a folder with records of cells done elsewhere, which are then not run here.
    """
    check_choice("on", on, On)
    check_needs(cpus, gpus)
    if on != "ray" and (cpus, gpus) != (None, None):
        raise UserError(f"cpus={cpus}, gpus={gpus} are for runs on a cluster: leave them out with on={on!r}")
    if on != "local" and jobs is not None:
        raise UserError(f"jobs={jobs} is for runs on this machine: leave it out with on={on!r}")
    at_once = choose_jobs(jobs)
    experiment, chosen, cells = prepare(name, size, seeds, overrides)
    require("vl_convert", purpose="pdeplus reproduce", extra="plots")  # before hours of training
    home = Path(out) / size
    folder = home / experiment.name
    make_folder(folder)
    results = dict[int, Result](known_cells(cells, home / "runs", records))
    _write_cells(folder, cells, results)
    left = [index for index in range(len(cells)) if index not in results]
    with closing(_run([cells[index] for index in left], home / "runs", on, cpus, gpus, at_once)) as coming:
        for index, result in coming:
            results[left[index]] = result
            _write_cells(folder, cells, results)
    ended = [results[index] for index in sorted(results)]
    for part in experiment.parts:
        own, size_of_part, its_cells = prepare(part, size, seeds, overrides)
        _write(own, size_of_part, its_cells, [one for one in ended if one.cell.experiment == own.name], home)
    _write(experiment, chosen, cells, ended, home)
    failed = [one for one in ended if isinstance(one, Failure)]
    if failed:
        lack, again = "failed", "the same command tries the failed ones again"
        if on == "none":
            lack, again = "are not done", "run them without --on none"
        many = f"{len(failed)} of {len(cells)} runs {lack}, the first is {failed[0].cell.name}: {failed[0].reason}"
        raise RunFailed(f"{many}; the others are kept in {folder}; {again}")
    return folder


def reproduce_cell(
    name: str | Path,
    number: int,
    *,
    size: SizeName = "small",
    seeds: int | None = None,
    out: str | Path = "reproduced",
    overrides: Sequence[str] = (),
    records: str | Path | None = None,
) -> Path:
    """Run one cell, counted from 1, and write no outcome; returns its run folder, or that of its known records.

    It is what a job of a cluster does. It waits while another process trains into that folder. The other arguments are
    those of `reproduce`.
    """
    _, _, cells = prepare(name, size, seeds, overrides)
    if not 1 <= number <= len(cells):
        raise UserError(f"cell={number} is not among the {len(cells)} runs; see them with --dry-run")
    cell, runs = cells[number - 1], Path(out) / size / "runs"
    if records is not None and known_cells([cell], runs, records):
        return Path(records)
    waits = f"{runs / cell.folder} is in use: waiting until the other process ends"
    title = f"{number}/{len(cells)} {cell.name}"
    with progress_bar(title) as watch, counting_bar(f"{title}, testing", None, " images") as count:
        result = attempt_alone(cell, runs, lambda: warnings.warn(waits, stacklevel=2), watch, count)
    if isinstance(result, Failure):
        raise RunFailed(f"{cell.name}: {result.reason}; traceback in {note_of(cell, runs)}")
    return result.run.path


def prepare(
    name: str | Path | Experiment, size: SizeName, seeds: int | None, overrides: Sequence[str]
) -> tuple[Experiment, Size, list[Cell]]:
    """The experiment, its size and its cells; every setting is checked."""
    check_choice("size", size, SizeName)
    check_least("seeds", 1 if seeds is None else seeds, 1)
    experiment = name if isinstance(name, Experiment) else load_experiment(name)
    if experiment.outcome not in OUTCOMES:
        choices = f"choose from {', '.join(OUTCOMES)}"
        raise UserError(f"experiment {experiment.name}: outcome={experiment.outcome!r} is not known; {choices}")
    chosen = experiment.sizes[size] if seeds is None else replace(experiment.sizes[size], seeds=seeds)
    if not experiment.parts:
        return experiment, chosen, plan(experiment, chosen, overrides)
    cells = list[Cell]()
    for part in experiment.parts:
        if load_experiment(part).parts:
            raise UserError(f"experiment {experiment.name}: its part {part} has parts itself; name those instead")
        cells += prepare(part, size, seeds, overrides)[2]
    return experiment, chosen, cells


def check_needs(cpus: int | None, gpus: int | None) -> None:
    """Refuse numbers that no cell can have."""
    check_least("cpus", 1 if cpus is None else cpus, 1)
    check_least("gpus", 0 if gpus is None else gpus, 0)


def _run(cells: Sequence[Cell], runs: Path, on: On, cpus: int | None, gpus: int | None, jobs: int) -> Results:
    if on == "ray":
        from .ray import run_on_ray

        return run_on_ray(cells, runs, cpus or 1, gpus)
    return run_here(cells, runs, jobs) if on == "local" else collect(cells, runs)


def _write_cells(folder: Path, cells: Sequence[Cell], results: Mapping[int, Result]) -> None:
    """What became of each cell, for people and programs."""
    states = list[dict[str, Any]]()
    for index, cell in enumerate(cells):
        result = results.get(index)
        state = "done" if isinstance(result, Done) else "failed" if result is not None and result.tried else "waiting"
        reason = result.reason if isinstance(result, Failure) else ""
        seed, run = cell.config.seed, cell.folder
        states.append({"cell": cell.name, "seed": seed, "run": run, "state": state, "reason": reason})
    write_file(folder / "cells.json", json.dumps(states, indent=1, ensure_ascii=False).encode())


def _write(experiment: Experiment, size: Size, cells: Sequence[Cell], ended: Sequence[Result], home: Path) -> None:
    """Write the outcome of what is done: result.md with everything in it, and its parts as files of their own."""
    done = [one for one in ended if isinstance(one, Done)]
    if cells and not done:
        return
    study = Study(experiment=experiment, size=size, cells=cells, done=done)
    outcome, folder = OUTCOMES[experiment.outcome](study), home / experiment.name
    make_folder(folder)
    for number, table in enumerate(outcome.tables, 1):
        name = "table" if len(outcome.tables) == 1 else f"table{number}"
        write_file(folder / f"{name}.csv", table.to_csv().encode())
        write_file(folder / f"{name}.tex", table.to_latex().encode())
    for figure in outcome.figures:
        save_figure(figure, folder)
    for name, content in outcome.files.items():
        write_file(folder / name, content)
    for name, rows in outcome.rows.items():
        save_rows(rows, folder, name)
    records = [record for one in done for record in one.records]
    if records and not experiment.parts:  # which have them
        write_file(folder / RECORDS, "".join(to_json(record) + "\n" for record in records).encode())
    shown = [f"{figure.name}.png" for figure in outcome.figures] + [n for n in outcome.files if n.endswith(".png")]
    parts = [f"# {study.title}", experiment.expect.strip(), *(table.to_markdown() for table in outcome.tables)]
    parts += [f"![{name}]({name})" for name in shown]
    failures = [f"{one.cell.name}: {one.reason}" for one in ended if isinstance(one, Failure)]
    lacks = [f"- {reason}" + (f" ({cells} runs)" if cells > 1 else "") for reason, cells in Counter(failures).items()]
    parts += ["Not done:\n\n" + "\n".join(lacks)] if lacks else []
    parts.append(_provenance(study))
    write_file(folder / "result.md", ("\n\n".join(part.strip() for part in parts) + "\n").encode())


def _provenance(study: Study) -> str:
    """Command, commit, the cells' hardware, seeds; the commits of the cells where they were run by others."""
    now: dict[str, Any] = environment()
    seeds = sorted({cell.config.seed for cell in study.cells})
    machines = sorted({record.machine for one in study.done for record in one.records})
    machine = "; ".join(machines) or f"{now['system']}, {now['cores']} cores, {now['devices']}, torch {now['torch']}"
    made = f"`{now['command']}`, commit {now['commit'] or 'unknown'}, {time.strftime('%Y-%m-%d')}"
    versions = f"pdeplus {now['pdeplus']}, Python {now['python']}"
    others = sorted({record.commit for one in study.done for record in one.records if record.commit} - {now["commit"]})
    earlier = f"; runs tested at commits {', '.join(others)}" if others else ""
    return f"Made by {made}{earlier}; {machine}; {versions}; seeds {', '.join(map(str, seeds)) or 0}."
