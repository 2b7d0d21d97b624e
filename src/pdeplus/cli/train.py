"""Train a network; an interrupted run resumes exactly where it stopped.

pdeplus train demo method.name=erm train.epochs=5 --out runs/erm
pdeplus train fast method.name=augmix --dry-run
pdeplus train --resume runs/erm
"""

import argparse
from collections.abc import Callable
from contextlib import nullcontext
from functools import partial
from typing import Any

from ..errors import UserError
from .base import add_trust


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("preset", nargs="?", help="name (see: pdeplus list presets) or a .toml file")
    parser.add_argument("overrides", nargs="*", metavar="KEY=VALUE", help="change a setting; values as in TOML")
    parser.add_argument("--out", metavar="DIR", help="new run folder (default: runs/PRESET-METHOD-seedN)")
    dry = "only say how many FLOPs and minutes it would take, and what accuracy to expect"
    parser.add_argument("--dry-run", action="store_true", help=dry)
    parser.add_argument("--resume", metavar="DIR", help="resume the run in this folder")
    add_trust(parser)


def run(options: argparse.Namespace) -> None:
    """Train, in as many processes as there are, and print one line from the main one."""
    from ..training.distributed import join
    from ..training.session import progress_bar

    if options.dry_run:
        _print_cost(options)
        return
    processes = join()
    work = processes.on_main(lambda: _work(options))
    with progress_bar("training") if processes.main else nullcontext() as watch:
        run = work(watch=watch)
    if not processes.main:
        return
    last = run.metrics[-1]
    shown = f"{run.path}: {last['epoch']} epochs, validation accuracy {100 * last['validation/accuracy']:.2f} %"
    shifted = last.get("validation/shifted_accuracy")
    print(shown if shifted is None else f"{shown}, under the four extra corruptions {100 * shifted:.2f} %")


def _print_cost(options: argparse.Namespace) -> None:
    from ..studies.estimates import format_run
    from ..training.config import load_config

    if options.preset is None:
        raise UserError("--dry-run needs a PRESET (see: pdeplus list presets)")
    print(format_run(load_config(options.preset, options.overrides)))


def _work(options: argparse.Namespace) -> Callable[..., Any]:
    """What gives the run: training anew, or going on."""
    from ..training.config import load_config, presets
    from ..training.run_folder import Run, resume, train

    if (options.preset is None) == (options.resume is None):
        raise UserError("train needs either a PRESET (see: pdeplus list presets) or --resume DIR")
    if options.resume is None and options.preset not in presets():
        from ..studies.experiment import experiments

        if options.preset in experiments():
            raise UserError(f"{options.preset} is an experiment, of several runs: pdeplus reproduce {options.preset}")
    if options.resume is None:
        return partial(train, load_config(options.preset, options.overrides), options.out, say=print)
    if Run.load(options.resume).finished:
        raise UserError(f"{options.resume} is finished; train anew into another folder with --out")
    return partial(resume, options.resume, trust_code=options.trust_code)
