"""Run benchmarks by name: each is a file of this folder, whose `measure` yields tables."""

import argparse
import math
import sys
import time
from collections.abc import Sequence
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from typing import NoReturn

import torch

from pdeplus._lib.environment import environment
from pdeplus._lib.files import make_folder, write_file
from pdeplus._lib.registry import unknown
from pdeplus.errors import UserError
from pdeplus.reports.figures import write_figure
from pdeplus.reports.tables import escape_markdown
from pdeplus.studies.analysis.figures import save_rows

from .results import Effort, Result

PROGRAM = "python -m benchmarks"
SHORT = ("step", "epoch", "predict", "evaluate", "corruptions", "data", "theory")
"""About ten minutes together: what runs where no name is given."""
OTHERS = ("fast", "options", "growth", "table1", "fidelity", "jobs", "augment", "finetune")
HELP = f"""examples:
  {PROGRAM}                             {", ".join(SHORT)}: about ten minutes
  {PROGRAM} step --quick                does it run? its figures mean nothing
  {PROGRAM} growth table1 --out speed   also writes speed/speed.md, speed.csv and growth.png, .svg, .pdf, .csv"""


class Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        self.exit(2, f"benchmarks: {' '.join(message.split())}; see: {PROGRAM} --help\n")


def main(arguments: Sequence[str] | None = None) -> None:
    """Exit codes: 0 done, 2 a user's error in one line, 130 interrupted."""
    style = argparse.RawDescriptionHelpFormatter
    parser = Parser(prog=PROGRAM, description="Measure speed and cost.", epilog=HELP, formatter_class=style)
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"{', '.join((*SHORT, *OTHERS))}, or all of them: all")
    parser.add_argument("--rounds", type=int, metavar="N", help="turns whose median counts (default: the benchmark's)")
    parser.add_argument("--quick", action="store_true", help="tiny sizes and one round, to see whether it runs")
    parser.add_argument("--out", type=Path, metavar="DIR", help="also write tables and figures; replaces older ones")
    about = "10¹² operations a second that table1 assumes of an accelerator (default: %(default)g)"
    parser.add_argument("--tflops", type=float, default=Effort().tflops, metavar="X", help=about)
    options = parser.parse_args(arguments)
    if options.rounds is not None and options.rounds < 1:
        parser.error(f"rounds={options.rounds} must be at least 1")
    if not 0 < options.tflops < math.inf:
        parser.error(f"tflops={options.tflops} must be a number above 0")
    command = " ".join([PROGRAM, *(sys.argv[1:] if arguments is None else arguments)])
    try:
        run(options.names, Effort(options.rounds, options.quick, options.tflops), options.out, command)
    except (UserError, OSError) as error:
        parser.error(str(error))
    except KeyboardInterrupt:
        parser.exit(130, "benchmarks: interrupted; tables measured so far are kept\n")


def run(names: Sequence[str], effort: Effort, out: Path | None, command: str) -> None:
    """Print each table as soon as it is measured, and write those so far; names are checked before anything runs."""
    known = [*SHORT, *OTHERS, "all"]
    for name in names:
        if name not in known:
            raise unknown(f"benchmark {name!r}", name, known)
    if out is not None:
        make_folder(out)
    done = list[tuple[str, Result]]()
    for name in dict.fromkeys(known[:-1] if "all" in names else names or SHORT):
        for result in import_module(f"benchmarks.{name}").measure(effort):
            warned = ("--quick: tiny sizes, these figures mean nothing",) if effort.quick else ()
            done.append((name, replace(result, notes=(*result.notes, *warned))))
            print(done[-1][1], end="\n\n", flush=True)
            if out is not None:
                write(done, out, environment() | {"command": command})


def write(done: Sequence[tuple[str, Result]], out: Path, now: dict) -> None:
    """speed.md with command, commit and hardware above the tables; speed.csv with all rows; the last table's chart."""
    kept = {key: now[key] for key in ("command", "commit", "system", "cores", "devices", "threads", "torch")}
    rows = list[dict]()
    for name, result in done:
        about = {"benchmark": name, "table": result.title}
        rows += [about | row | {"rounds": result.rounds} | kept for row in result.rows()]
    save_rows(rows, out, "speed")
    vectors = torch.backends.cpu.get_cpu_capability()
    machine = f"{now['system']} with {vectors}, {now['cores']} cores, {now['threads']} threads, {now['devices']}"
    versions = f"pdeplus {now['pdeplus']}, torch {now['torch']}, Python {now['python']}"
    about = f"commit {now['commit'] or 'unknown'}, {time.strftime('%Y-%m-%d')}; {machine}; {versions}"
    parts = ["# Speed", f"Measured by `{now['command']}`, {escape_markdown(about)}."]
    parts += [result.table().to_markdown().strip() for _, result in done]
    write_file(out / "speed.md", ("\n\n".join(parts) + "\n").encode())
    name, last = done[-1]
    if last.chart is not None:
        write_figure(last.chart, out, name)
        save_rows(last.chart["data"]["values"], out, name)


if __name__ == "__main__":
    main()
