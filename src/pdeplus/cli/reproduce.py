"""Reproduce a table or figure of the paper, from training to its values beside ours; finished runs are kept.

pdeplus list experiments
pdeplus reproduce table1_cifar10 --size small --dry-run
pdeplus reproduce table1_cifar10 --size small --jobs 4
pdeplus reproduce table2_pacs --size small data.root=DIR
pdeplus reproduce study --size fast --records results
pdeplus reproduce table1_cifar10 --size full --on ray --cpus 8 --gpus 1
pdeplus reproduce table1_cifar10 --size full --on slurm --cpus 8 --gpus 1 --dry-run
"""

import argparse
from pathlib import Path

from .._lib.registry import choices
from ..errors import UserError
from ..studies.cells import known_cells
from ..studies.estimates import estimate, format_estimates
from ..studies.experiment import SizeName
from ..studies.jobs import choose_jobs
from ..studies.reproduction import On, prepare, reproduce, reproduce_cell
from ..studies.slurm import submit
from .base import add_choice, pick


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("experiment", help="name (see: pdeplus list experiments) or a .toml file")
    parser.add_argument("overrides", nargs="*", metavar="KEY=VALUE", help="change a setting of every run")
    size = "full (the paper's), fast (converges in minutes), small (narrow; default), smoke (seconds), own (preset's)"
    add_choice(parser, "--size", SizeName, old="--scale", default="small", help=size)
    parser.add_argument("--seeds", type=int, metavar="N", help="repetitions (default: the size's own)")
    out = "folder for runs and results (default: reproduced)"
    parser.add_argument("--out", default="reproduced", metavar="DIR", help=out)
    records = "folder with records of runs done elsewhere, such as results; those runs are not repeated"
    parser.add_argument("--records", metavar="DIR", help=records)
    dry = "only print the runs, hours and disk space; with --on slurm, print the script"
    parser.add_argument("--dry-run", action="store_true", help=dry)
    on = "on this machine (default), on a Ray cluster, none (only collect finished runs), or as Slurm jobs"
    parser.add_argument("--on", choices=(*choices(On), "slurm"), default="local", help=on)
    jobs = "runs at once on this machine, one thread each; results stay the same (default: one per core, 1 with a GPU)"
    parser.add_argument("--jobs", type=int, metavar="N", help=jobs)
    parser.add_argument("--cpus", type=int, metavar="N", help="CPUs per run on a cluster (default: 1)")
    gpus = "GPUs per run on a cluster (default: 1 on Ray if it has any, else 0)"
    parser.add_argument("--gpus", type=int, metavar="N", help=gpus)
    parser.add_argument("--cell", type=int, metavar="N", help="do only the Nth run, and write no result")


def run(options: argparse.Namespace) -> None:
    """Run what is not done yet and print the result; or one cell, a Slurm job, an estimate."""
    chosen = pick(options, "size", "seeds", "out", "overrides", "records")
    needs = pick(options, "cpus", "gpus")
    if options.cell is not None:
        if options.on != "local" or options.dry_run or {*needs.values(), options.jobs} != {None}:
            raise UserError("--cell N does one run here: leave out --on, --cpus, --gpus, --jobs and --dry-run")
        print(reproduce_cell(options.experiment, options.cell, **chosen))
    elif options.jobs is not None and options.on != "local":
        raise UserError(f"--jobs {options.jobs} is for runs on this machine: leave it out with --on {options.on}")
    elif options.on == "slurm":
        print(submit(options.experiment, **chosen, **needs, dry_run=options.dry_run))
    elif options.dry_run:
        jobs = choose_jobs(options.jobs) if options.on == "local" else None
        cells = prepare(options.experiment, options.size, options.seeds, options.overrides)[2]
        runs = Path(options.out) / options.size / "runs"
        print(format_estimates(estimate(cells, runs, known_cells(cells, runs, options.records)), jobs))
    else:
        folder = reproduce(options.experiment, **chosen, **needs, on=options.on, jobs=options.jobs)
        print((folder / "result.md").read_text("utf-8"))
        print(folder)
