"""The command line: parse, call, print. Heavy imports wait until a command needs them."""

import argparse
import os
import sys
import warnings
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from functools import partial
from typing import Any, NoReturn

from .._lib.signals import stopping
from ..errors import RunFailed, Stopped, UserError
from .arguments import build_parser


def main(arguments: Sequence[str] | None = None) -> NoReturn:
    """Run one command and exit: 0 done, 2 a user's error in one line, 1 a failure, 130 interrupted."""
    parser = build_parser(partial(_leave, 2))
    options, rest = parser.parse_known_args(arguments)
    takes_settings = hasattr(options, "overrides")
    if any("=" not in word or word.startswith("-") for word in rest) or (rest and not takes_settings):
        parser.error(f"{' '.join(rest)} is not understood")
    if rest:  # KEY=VALUE behind an option, where argparse does not look for it
        options.overrides.extend(rest)
    try:
        with warnings.catch_warnings(), stopping():
            warnings.showwarning = _warn
            _check_alone(options.command)
            COMMANDS[options.command](options)
    except UserError as error:
        _leave(2, str(error))
    except RunFailed as error:
        _leave(1, str(error))
    except KeyboardInterrupt:
        _leave(130, "interrupted; the same command goes on where it stopped (training: pdeplus train --resume DIR)")
    except Stopped as error:
        _leave(0, f"{error}; the same command goes on where it stopped (training: pdeplus train --resume DIR)")
    except OSError as error:
        _leave(2, f"{error.filename or ''}: {error.strerror or error}".lstrip(": "))
    sys.exit(0)


def _check_alone(command: str) -> None:
    """Refuse several processes to a command that would do all its work in each of them."""
    if command != "train" and int(os.environ.get("WORLD_SIZE", "1")) > 1:
        raise UserError(
            f"WORLD_SIZE={os.environ['WORLD_SIZE']}: {command} works in one process; only train takes several"
        )


def _warn(message: Warning | str, category: type[Warning], filename: str, lineno: int, *rest: object) -> None:
    print(f"pdeplus: {' '.join(str(message).split())}", file=sys.stderr)


def _leave(code: int, message: str) -> NoReturn:
    print(f"pdeplus: {' '.join(message.split())}", file=sys.stderr)
    sys.exit(code)


def _demo(options: argparse.Namespace) -> None:
    from ..studies.demo import run_demo

    run_demo(options.out, options.overrides)


def _train(options: argparse.Namespace) -> None:
    from ..training.distributed import join
    from ..training.session import progress_bar

    processes = join()
    job = processes.on_main(lambda: _training(options))
    with progress_bar("training") if processes.main else nullcontext() as watch:
        run = job(watch=watch)
    if not processes.main:
        return
    last = run.metrics[-1]
    shown = f"{run.path}: {last['epoch']} epochs, validation accuracy {100 * last['validation/accuracy']:.2f} %"
    shifted = last.get("validation/shifted_accuracy")
    print(shown if shifted is None else f"{shown}, under the four extra corruptions {100 * shifted:.2f} %")


def _training(options: argparse.Namespace) -> Callable[..., Any]:
    """What gives the run: training anew, or going on."""
    from ..training.config import load_config
    from ..training.run_folder import Run, resume, train

    if (options.preset is None) == (options.resume is None):
        raise UserError("train needs either a PRESET (see: pdeplus list experiments) or --resume DIR")
    if options.resume is None:
        return partial(train, load_config(options.preset, options.overrides), options.out)
    if Run.load(options.resume).finished:
        raise UserError(f"{options.resume} is finished; train anew into another folder with --out")
    return partial(resume, options.resume)


def _evaluate(options: argparse.Namespace) -> None:
    from .evaluating import evaluate_models

    chosen = _only(options, "suite", "selection", "average", "files", "limit", "seed", "name", "out", "compile")
    threat = _only(options, "attack", "norm", "epsilon", "steps", "restarts", "eot")
    print(evaluate_models(options.models, options.samples, options.data, options.severity, chosen, threat))


def _report(options: argparse.Namespace) -> None:
    from ..reports.page import report

    print(report(options.runs, options.out, **_only(options, "baseline", "files", "title")))


def _analyse(options: argparse.Namespace) -> None:
    from ..studies.analysis.summary import analyse
    from ..training.run_folder import Run

    runs = [Run.load(path) for path in options.runs]
    print(analyse(runs, options.out, **_only(options, "images", "seed")))


def _reproduce(options: argparse.Namespace) -> None:
    from ..studies.matrix import reproduce, reproduce_cell

    chosen = _only(options, "scale", "seeds", "out", "overrides", "records")
    needs = _only(options, "cpus", "gpus")
    if options.cell is not None:
        if options.on != "local" or options.dry_run or needs != {"cpus": None, "gpus": None}:
            raise UserError("--cell runs one cell here: leave --on, --cpus, --gpus and --dry-run out")
        print(reproduce_cell(options.experiment, options.cell, **chosen))
    elif options.on == "slurm":
        from ..studies.slurm import submit

        print(submit(options.experiment, **chosen, **needs, dry_run=options.dry_run))
    elif options.dry_run:
        _estimate(options)
    else:
        folder = reproduce(options.experiment, **chosen, **needs, on=options.on)
        print((folder / "result.md").read_text("utf-8"))
        print(folder)


def _estimate(options: argparse.Namespace) -> None:
    from pathlib import Path

    from ..studies.estimate import estimate, format_estimates
    from ..studies.matrix import prepare
    from ..studies.study import known_cells

    cells = prepare(options.experiment, options.scale, options.seeds, options.overrides)[2]
    runs = Path(options.out) / options.scale / "runs"
    print(format_estimates(estimate(cells, runs, known_cells(cells, runs, options.records))))


def _theory(options: argparse.Namespace) -> None:
    from ..theory.run import run_theory

    print(run_theory(options.out, **_only(options, "quick", "seed")))


def _data(options: argparse.Namespace) -> None:
    from ..data._download import describe_data, get

    if (options.action == "get") != (options.name is not None):
        raise UserError("data list takes no name, data get NAME takes one")
    print(get(options.name, options.root) if options.name else describe_data(options.root))


def _corrupt(options: argparse.Namespace) -> None:
    from .corrupting import corrupt_source, sheet_of

    if (options.out is None) == (options.sheet is None):
        raise UserError("corrupt needs either --out DIR or --sheet FILE")
    warnings.filterwarnings("ignore", "synthetic frost stands in", UserWarning)  # the last line of the output says it
    source = (options.source, options.overrides)
    if options.sheet is not None and (options.corruption or options.severity or options.layout):
        raise UserError("--sheet shows all corruptions: --corruption, --severity and --layout do not go with it")
    if options.sheet is not None:
        print(sheet_of(*source, options.sheet, constants=options.scale, seed=options.seed))
        return
    chosen = {"names": options.corruption, "severities": options.severity, "constants": options.scale}
    print(corrupt_source(*source, options.out, **chosen, **_only(options, "seed", "layout", "workers")))


def _predict(options: argparse.Namespace) -> None:
    from ..evaluation.deployment import Prediction, format_predictions, predict_pictures
    from ..training.run_folder import Run

    chosen = _only(options, "samples", "selection", "top", "seed")
    rows = list[Prediction]()
    try:
        for row in predict_pictures(Run.load(options.run), options.images, **chosen):
            if options.json:
                print(row.to_json())
            else:
                rows.append(row)
    finally:  # a broken picture among them is answered afterwards
        if rows:
            print(format_predictions(rows))


def _export(options: argparse.Namespace) -> None:
    from ..evaluation.deployment import export
    from ..training.run_folder import Run

    print(export(Run.load(options.run), options.format, options.out, **_only(options, "selection", "force")))


def _only(options: argparse.Namespace, *names: str) -> dict[str, Any]:
    return {name: getattr(options, name) for name in names}


def _list(options: argparse.Namespace) -> None:
    from .listing import describe_corruptions, describe_experiments, describe_family

    special = {"experiments": describe_experiments, "corruptions": describe_corruptions}
    print(special[options.family]() if options.family in special else describe_family(options.family))


COMMANDS = {
    "demo": _demo,
    "train": _train,
    "evaluate": _evaluate,
    "report": _report,
    "analyse": _analyse,
    "reproduce": _reproduce,
    "theory": _theory,
    "predict": _predict,
    "export": _export,
    "corrupt": _corrupt,
    "data": _data,
    "list": _list,
}
