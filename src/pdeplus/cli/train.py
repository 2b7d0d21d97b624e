"""Train a network; an interrupted run resumes exactly where it stopped.

pdeplus train demo method.name=erm train.epochs=5 --out runs/erm
pdeplus train fast method.name=augmix --dry-run
pdeplus train --resume runs/erm
pdeplus train --resume runs/erm train.epochs=30 train.lr=0.01
"""

import argparse
from collections.abc import Callable
from contextlib import nullcontext
from functools import partial
from typing import Any, cast

from ..errors import UserError, counted
from .base import add_trust


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("preset", nargs="?", help="name (see: pdeplus list presets) or a .toml file")
    parser.add_argument("overrides", nargs="*", metavar="KEY=VALUE", help="change a setting; values as in TOML")
    parser.add_argument("--out", metavar="DIR", help="new run folder (default: runs/PRESET-METHOD-seedN)")
    dry = "only print the FLOPs and minutes it would take, and the accuracy to expect"
    parser.add_argument("--dry-run", action="store_true", help=dry)
    going_on = (
        "resume the run in this folder; with KEY=VALUE, branch: continue from its last checkpoint in a new folder"
    )
    parser.add_argument("--resume", metavar="DIR", help=going_on)
    parser.add_argument(
        "--force", action="store_true", help="start over where a run exists; the old one is moved aside"
    )
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
    shown = (
        f"{run.path}: {counted(last['epoch'], 'epoch')}, validation accuracy {100 * last['validation/accuracy']:.2f} %"
    )
    shifted = last.get("validation/shifted_accuracy")
    print(shown if shifted is None else f"{shown}, under the four validation corruptions {100 * shifted:.2f} %")


def _print_cost(options: argparse.Namespace) -> None:
    from ..studies.estimates import format_run
    from ..training.config import load_config

    if options.preset is None:
        raise UserError("--dry-run needs a PRESET (see: pdeplus list presets)")
    print(format_run(load_config(options.preset, options.overrides)))


def _work(options: argparse.Namespace) -> Callable[..., Any]:
    """What gives the run: training anew, going on, or a branch."""
    from ..training.config import load_config, presets
    from ..training.run_folder import Run, resume, train

    if options.resume is not None and "=" in (options.preset or ""):  # there is no preset: it is the first setting
        options.overrides, options.preset = [options.preset, *options.overrides], cast(Any, None)
    if "=" in (options.preset or ""):
        raise UserError(f"{options.preset} is a setting; a PRESET comes first: pdeplus train demo {options.preset}")
    if (options.preset is None) == (options.resume is None):
        raise UserError("train needs either a PRESET (see: pdeplus list presets) or --resume DIR")
    if options.resume is None and options.preset not in presets():
        from ..studies.experiment import experiments

        if options.preset in experiments():
            raise UserError(f"{options.preset} is an experiment; run it with: pdeplus reproduce {options.preset}")
    if options.resume is None:
        config = load_config(options.preset, options.overrides)
        return partial(train, config, options.out, force=options.force, say=print)
    if options.overrides:
        from ..training.branches import branch

        how = {"trust_code": options.trust_code, "say": print}
        return partial(branch, options.resume, options.overrides, options.out, **how)
    if options.out or options.force:
        raise UserError("--resume continues in the run's own folder: leave out --out and --force, or change a setting")
    if Run.load(options.resume).finished:
        more = f"train it for longer with: pdeplus train --resume {options.resume} train.epochs=N"
        raise UserError(f"{options.resume} is finished; train again in another folder with --out, or {more}")
    return partial(resume, options.resume, trust_code=options.trust_code)
