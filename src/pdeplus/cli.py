"""The command line: parse, call, print. Heavy imports wait until a command needs them."""

import argparse
import sys
import warnings
from collections.abc import Callable, Sequence
from typing import Any, NoReturn

from . import __version__
from ._errors import RunFailed, UserError

Command = Callable[[argparse.Namespace], None]


def main(arguments: Sequence[str] | None = None) -> NoReturn:
    """Run one command and exit: 0 done, 2 a user's error in one line, 1 a failure, 130 interrupted."""
    parser = _parser()
    options, rest = parser.parse_known_args(arguments)
    takes_settings = hasattr(options, "overrides")
    if any("=" not in word or word.startswith("-") for word in rest) or (rest and not takes_settings):
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
        _leave(130, "interrupted; the same command goes on where it stopped (training: pdeplus train --resume DIR)")
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

    _add_data(commands.add_parser)

    corrupt = _command(
        commands.add_parser,
        "corrupt",
        _corrupt,
        "corrupted copies of a data set's test images or of a folder of pictures; interrupted work goes on",
        "pdeplus corrupt cifar10 --out CIFAR-10-C\n"
        "  pdeplus corrupt my_pictures --out my_pictures_c --corruption fog snow --severity 3\n"
        "  pdeplus corrupt my_pictures --sheet sheet.png",
    )
    corrupt.add_argument("source", help="data set (see: pdeplus data list) or a folder of pictures")
    corrupt.add_argument("overrides", nargs="*", metavar="KEY=VALUE", help="the data set's options, e.g. size=64")
    corrupt.add_argument("--out", metavar="DIR", help="folder for the corrupted images")
    corrupt.add_argument("--corruption", nargs="+", metavar="NAME", help="which (default: all 19)")
    corrupt.add_argument("--severity", nargs="+", type=int, metavar="N", help="1 to 5 (default: all)")
    corrupt.add_argument("--scale", choices=("cifar", "tiny", "imagenet"), help="whose constants (default: by size)")
    corrupt.add_argument("--seed", type=int, default=0, help="of all randomness (default: 0)")
    corrupt.add_argument("--layout", choices=("npy", "folders"), help="of a data set (default: npy at scale cifar)")
    corrupt.add_argument("--workers", type=int, default=0, metavar="N", help="threads (default: one per core)")
    corrupt.add_argument("--sheet", metavar="FILE", help="draw the first image under every corruption instead")

    families = ("methods", "models", "data", "augment", "corruptions", "experiments")
    listing = _command(
        commands.add_parser, "list", _list, "what there is to choose from, with its options", "pdeplus list methods"
    )
    listing.add_argument("family", choices=families)
    return parser


def _add_data(add: Callable[..., argparse.ArgumentParser]) -> None:
    data = _command(
        add,
        "data",
        _data,
        "which data sets are here, and get the others",
        "pdeplus data list\n  pdeplus data get cifar10 --root datasets",
    )
    data.add_argument("action", choices=("list", "get"))
    data.add_argument("name", nargs="?", help="data set to get")
    data.add_argument(
        "--root", default="", metavar="DIR", help="data folder (default: $PDEPLUS_DATA, else ~/.cache/pdeplus)"
    )


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


def _data(options: argparse.Namespace) -> None:
    from .data._fetch import describe_data, get

    if (options.action == "get") != (options.name is not None):
        raise UserError("data list takes no name, data get NAME takes one")
    print(get(options.name, options.root) if options.name else describe_data(options.root))


def _corrupt(options: argparse.Namespace) -> None:
    from ._corrupting import corrupt_source, sheet_of

    if (options.out is None) == (options.sheet is None):
        raise UserError("corrupt needs either --out DIR or --sheet FILE")
    warnings.filterwarnings("ignore", "frost uses made ice", UserWarning)  # the last line of the output says it
    source = (options.source, options.overrides)
    if options.sheet is not None and (options.corruption or options.severity or options.layout):
        raise UserError("--sheet shows all corruptions: --corruption, --severity and --layout do not go with it")
    if options.sheet is not None:
        print(sheet_of(*source, options.sheet, scale=options.scale, seed=options.seed))
        return
    chosen = {"names": options.corruption, "severities": options.severity, "scale": options.scale}
    print(corrupt_source(*source, options.out, **chosen, **_only(options, "seed", "layout", "workers")))


def _only(options: argparse.Namespace, *names: str) -> dict[str, Any]:
    return {name: getattr(options, name) for name in names}


def _list(options: argparse.Namespace) -> None:
    from ._listing import describe_corruptions, describe_family, describe_presets

    special = {"experiments": describe_presets, "corruptions": describe_corruptions}
    print(special[options.family]() if options.family in special else describe_family(options.family))
