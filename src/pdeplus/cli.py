"""The command line: parse, call, print. Heavy imports wait until a command needs them."""

import argparse
import sys
from collections.abc import Callable, Sequence
from typing import NoReturn

from . import __version__
from ._errors import RunFailed, UserError

Command = Callable[[argparse.Namespace], None]


def main(arguments: Sequence[str] | None = None) -> NoReturn:
    """Run one command and exit: 0 done, 2 a user's error in one line, 1 a failure, 130 interrupted."""
    parser = _parser()
    options, rest = parser.parse_known_args(arguments)
    if any("=" not in word or word.startswith("-") for word in rest) or (rest and not hasattr(options, "overrides")):
        parser.error(f"{' '.join(rest)} is not understood")
    if rest:  # KEY=VALUE behind an option, where argparse does not look for it
        options.overrides.extend(rest)
    command: Command = options.command
    try:
        command(options)
    except UserError as error:
        _leave(2, str(error))
    except RunFailed as error:
        _leave(1, str(error))
    except KeyboardInterrupt:
        _leave(130, "interrupted; an interrupted training run goes on with: pdeplus train --resume DIR")
    except OSError as error:
        _leave(2, f"{error.filename or ''}: {error.strerror or error}".lstrip(": "))
    sys.exit(0)


def _leave(code: int, message: str) -> NoReturn:
    print(f"pdeplus: {' '.join(message.split())}", file=sys.stderr)
    sys.exit(code)


class _Parser(argparse.ArgumentParser):
    """Answers a mistake in one line."""

    def error(self, message: str) -> NoReturn:
        _leave(2, f"{message}; see: {self.prog} --help")


def _parser() -> argparse.ArgumentParser:
    parser = _Parser(
        prog="pdeplus",
        description="Train image classifiers that hold up under distribution shift.",
        epilog="example: pdeplus demo",
    )
    parser.add_argument("--version", action="version", version=f"pdeplus {__version__}")
    commands = parser.add_subparsers(title="commands", required=True, metavar="COMMAND")

    demo = _command(
        commands.add_parser,
        "demo",
        _demo,
        "the whole story in minutes on a laptop CPU, on data that comes with the install",
        "pdeplus demo --out my_demo",
    )
    demo.add_argument("--out", default="demo", metavar="DIR", help="folder for runs, table and figure (default: demo)")
    demo.add_argument("overrides", nargs="*", metavar="KEY=VALUE", help="change a setting, e.g. train.epochs=3")

    train = _command(
        commands.add_parser,
        "train",
        _train,
        "train a network; an interrupted run goes on exactly where it stopped",
        "pdeplus train demo method.name=erm train.epochs=5 --out runs/erm\n  pdeplus train --resume runs/erm",
    )
    train.add_argument("preset", nargs="?", help="name (see: pdeplus list experiments) or a .toml file")
    train.add_argument("overrides", nargs="*", metavar="KEY=VALUE", help="change a setting; values as in TOML")
    train.add_argument("--out", metavar="DIR", help="new run folder (default: runs/PRESET-METHOD-seedN)")
    train.add_argument("--resume", metavar="DIR", help="go on with the run in this folder")

    families = ("methods", "models", "data", "augment", "experiments")
    listing = _command(
        commands.add_parser, "list", _list, "what there is to choose from, with its options", "pdeplus list methods"
    )
    listing.add_argument("family", choices=families)
    return parser


def _command(
    add: Callable[..., argparse.ArgumentParser], name: str, command: Command, help: str, example: str
) -> argparse.ArgumentParser:
    parser = add(
        name,
        help=help,
        description=help[0].upper() + help[1:] + ".",
        epilog=f"example:\n  {example}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.set_defaults(command=command)
    return parser


def _demo(options: argparse.Namespace) -> None:
    from .demo import run_demo

    run_demo(options.out, options.overrides)


def _train(options: argparse.Namespace) -> None:
    from ._progress import progress_bar
    from .config import load_config
    from .run import Run, resume, train

    if (options.preset is None) == (options.resume is None):
        raise UserError("train needs either a PRESET (see: pdeplus list experiments) or --resume DIR")
    with progress_bar("training") as watch:
        if options.resume is None:
            run = train(load_config(options.preset, options.overrides), options.out, watch=watch)
        elif Run.load(options.resume).finished:
            raise UserError(f"{options.resume} is finished; train anew into another folder with --out")
        else:
            run = resume(options.resume, watch=watch)
    last = run.metrics[-1] if run.metrics else {"epoch": 0, "validation/accuracy": float("nan")}
    print(f"{run.path}: {last['epoch']} epochs, validation accuracy {100 * last['validation/accuracy']:.2f} %")


def _list(options: argparse.Namespace) -> None:
    from ._listing import describe_family, describe_presets

    print(describe_presets() if options.family == "experiments" else describe_family(options.family))
