"""Run benchmarks by their names and write what they give; each is a file of this folder with a `measure`.

OUT/speed.md     a table of each result, with command, commit and hardware
OUT/speed.csv    all rows
OUT/growth.*     figure and points of `growth`
"""

import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, replace
from importlib import import_module
from pathlib import Path
from typing import Any

import torch

from pdeplus._lib.environment import environment
from pdeplus._lib.files import make_folder, write_file
from pdeplus._lib.registry import unknown
from pdeplus.reports.tables import escape_markdown
from pdeplus.studies.analysis.figures import save_figure, save_rows

from ._results import TFLOPS, Effort, Result

BENCHMARKS = ("step", "epoch", "predict", "evaluate", "corruptions", "data", "theory")
LONG_BENCHMARKS = ("options", "growth", "table1")
EVERY = "all"
QUICK = "--quick: tiny sizes, these figures mean nothing"


def run_bench(
    names: Sequence[str] = (),
    *,
    rounds: int | None = None,
    quick: bool = False,
    out: str | Path | None = None,
    tflops: float = TFLOPS,
) -> Iterator[Result]:
    """The results of the named benchmarks, each as soon as it is there.

    Arguments are checked before anything is measured. Files hold what has been measured so far.

    Args:
        names: of the benchmarks, or "all"; none for those that take minutes in all.
        rounds: turns of each arm; None for each benchmark's own number.
        quick: tiny sizes, to see whether all of it runs.
        out: folder for files; files of the same names in it are replaced.
        tflops: 10¹² operations a second of an accelerator, for `table1`.
    """
    chosen, effort = _chosen(names), Effort(rounds=rounds, quick=quick, tflops=tflops)
    folder = None if out is None else Path(out)
    if folder is not None:
        make_folder(folder)
    return _run(chosen, effort, folder)


def _chosen(names: Sequence[str]) -> list[str]:
    known = [*BENCHMARKS, *LONG_BENCHMARKS, EVERY]
    for name in names:
        if name not in known:
            raise unknown(f"benchmark {name!r}", name, known)
    wanted = known[:-1] if EVERY in names else names or BENCHMARKS
    return list(dict.fromkeys(wanted))


def _run(names: Sequence[str], effort: Effort, folder: Path | None) -> Iterator[Result]:
    done = list[tuple[str, Result]]()
    for name in names:
        results: Iterator[Result] = import_module(f".{name}", __package__).measure(effort)
        for result in results:
            shown = replace(result, notes=(*result.notes, *([QUICK] if effort.quick else [])))
            done.append((name, shown))
            if folder is not None:
                _write(done, folder)
            yield shown


def _write(done: Sequence[tuple[str, Result]], folder: Path) -> None:
    now: dict[str, Any] = environment()
    rows = list[dict[str, Any]]()
    for name, result in done:
        kept = {key: now[key] for key in ("command", "commit", "system", "cores", "devices", "threads", "torch")}
        about = {"benchmark": name, "table": result.title}
        rows += [about | asdict(row) | {"rounds": result.rounds} | kept for row in result.rows]
    save_rows(rows, folder, "speed")
    parts = ["# Speed", _made_by(now), *(result.to_table().to_markdown().strip() for _, result in done)]
    write_file(folder / "speed.md", ("\n\n".join(parts) + "\n").encode())
    figure = done[-1][1].figure
    if figure is not None:
        save_figure(figure, folder)
        save_rows(figure.rows, folder, figure.name)


def _made_by(now: dict[str, Any]) -> str:
    """Command, commit, hardware."""
    vectors = torch.backends.cpu.get_cpu_capability()
    machine = f"{now['system']} with {vectors}, {now['cores']} cores, {now['threads']} threads, {now['devices']}"
    made = f"commit {now['commit'] or 'unknown'}, {time.strftime('%Y-%m-%d')}"
    versions = f"pdeplus {now['pdeplus']}, torch {now['torch']}, Python {now['python']}"
    return f"Made by `{now['command']}`, {escape_markdown(f'{made}; {machine}; {versions}')}."
