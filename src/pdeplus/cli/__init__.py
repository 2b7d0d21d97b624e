"""The command line: a command is a file of this folder.

The file's docstring is the help of the command, with examples; `arguments` adds its arguments to a parser, and `run`
does the work. Only the file of the command that is called is imported: `pdeplus --help` does not wait for torch.
"""

import argparse
import ast
import os
import sys
import warnings
from collections.abc import Sequence
from importlib import import_module
from io import TextIOWrapper
from pathlib import Path
from textwrap import indent, shorten
from typing import Any, NoReturn, final

from .. import __version__
from .._lib.long_work import stopping, tell
from .._lib.memory import lacks_memory
from ..errors import RunFailed, Stopped, UserError, own_place

FIRST = ("demo", "train", "evaluate", "report")
"""The commands that --help shows first; the others follow in alphabetical order."""
MOVED = {"bench": "benchmarks live in the repository: python -m benchmarks"}
"""Former commands, and what has taken their place."""
AGAIN = "the same command continues where it stopped"


def main(arguments: Sequence[str] | None = None) -> NoReturn:
    """Run one command and exit: 0 done, 2 a user's error in one line, 1 a failure, 130 interrupted.

    Whoever reads the output may stop before its end, as `head` does: that is no error.
    """
    command = ""
    try:
        with warnings.catch_warnings(), stopping():
            warnings.showwarning = _warn
            if isinstance(sys.stdout, TextIOWrapper):  # names of files may hold what UTF-8 cannot
                sys.stdout.reconfigure(errors="backslashreplace")
            options = parse(sys.argv[1:] if arguments is None else arguments)
            command = options.command
            _check_alone(command)
            options.handler(options)
            sys.stdout.flush()
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # for what is still to be flushed
    except UserError as error:
        _leave(2, str(error))
    except RunFailed as error:
        _leave(1, str(error))
    except (KeyboardInterrupt, Stopped) as error:
        code, told = 130 if isinstance(error, KeyboardInterrupt) else 0, str(error) or "interrupted"
        if command != "train":  # the way to go on with a run of a larger work is not the command itself
            told = told.partition(",")[0]
        _leave(code, told if "; continue with" in told else f"{told}; {AGAIN}")
    except OSError as error:
        _leave(2, f"{error.filename or ''}: {error.strerror or error}".lstrip(": "))
    except Exception as error:
        told = _why(error)
        if told is None:
            raise
        _leave(1, told)
    sys.exit(0)


def parse(arguments: Sequence[str]) -> argparse.Namespace:
    """The options of a command; `command` is its name, and `handler` does what they ask for.

    A mistake is a UserError.
    """
    parser = build_parser()
    if any("\0" in word for word in arguments):
        raise UserError("an argument contains a zero byte, which no file name can")
    if arguments and arguments[0] in MOVED:
        raise UserError(f"{arguments[0]} is not a command; {MOVED[arguments[0]]}")
    options, rest = parser.parse_known_args(arguments)
    takes_settings = hasattr(options, "overrides")
    if any("=" not in word or word.startswith("-") for word in rest) or (rest and not takes_settings):
        raise UserError(f"{' '.join(rest)} is not understood; see: pdeplus {options.command} --help")
    if rest:  # KEY=VALUE behind an option, where argparse does not look for it
        options.overrides.extend(rest)
    return options


def build_parser() -> argparse.ArgumentParser:
    """The parser of the whole command line; a command's arguments are added when that command is parsed."""
    parser = _Parser(
        prog="pdeplus",
        description="Train image classifiers that hold up under distribution shift.",
        epilog="example: pdeplus demo",
    )
    parser.add_argument("--version", action="version", version=f"pdeplus {__version__}")
    commands = parser.add_subparsers(title="commands", required=True, metavar="COMMAND")
    for name, path in command_files().items():
        about, _, examples = (ast.get_docstring(ast.parse(path.read_text("utf-8"))) or "").partition("\n\n")
        about = " ".join(about.split())
        command = commands.add_parser(
            name,
            help=about[:1].lower() + about[1:].rstrip("."),
            description=about,
            epilog=f"example:\n{indent(examples, '  ')}",
            formatter_class=argparse.RawDescriptionHelpFormatter,
        )
        command.set_defaults(command=name)
        command.module = f"{__name__}.{path.stem}"
    return parser


def command_files() -> dict[str, Path]:
    """The commands' names and files, in the order of --help; an underscore may end a file's name, as in `list_.py`."""
    paths = [path for path in Path(__file__).parent.glob("[!_]*.py") if path.stem != "base"]
    found = {path.stem.rstrip("_"): path for path in sorted(paths)}
    return {name: found[name] for name in FIRST} | found


@final
class _Parser(argparse.ArgumentParser):
    """Raises a mistake as a UserError; the parser of a command imports the command when it parses."""

    module = ""

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:  # type: ignore[reportIncompatibleMethodOverride]
        if self.module:
            command = import_module(self.module)
            self.module = ""
            command.arguments(self)
            self.set_defaults(handler=command.run)
        return super().parse_known_args(args, namespace)

    def error(self, message: str) -> NoReturn:
        raise UserError(f"{message}; see: {self.prog} --help")


def _check_alone(command: str) -> None:
    """Refuse several processes to a command that would do all its work in each of them."""
    world = os.environ.get("WORLD_SIZE", "")
    if command != "train" and world not in ("", "0", "1"):
        raise UserError(f"WORLD_SIZE={world}: {command} works in one process; only train takes several")


def _why(error: Exception) -> str | None:
    """In one line why it came to this: memory, or the user's own code and where in it; None for a fault of pdeplus."""
    reason = shorten(f"{type(error).__name__}: {error}", 300, placeholder=" …")
    if lacks_memory(error):
        way_out = "take a smaller train.batch_size, data.size or model, or train.accumulate=4"
        return f"memory does not suffice ({reason}); {way_out}"
    place = own_place(error)
    return f"your own code failed: {place}: {reason}; for all of the traceback call it from Python" if place else None


def _warn(message: Warning | str, category: type[Warning], filename: str, lineno: int, *rest: object) -> None:
    tell(f"pdeplus: {' '.join(str(message).split())}")


def _leave(code: int, message: str) -> NoReturn:
    _warn(message, UserWarning, "", 0)
    sys.exit(code)
