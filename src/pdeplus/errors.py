"""The errors that the command line answers in one line, without a traceback."""

from pathlib import Path
from sysconfig import get_path
from textwrap import shorten
from traceback import extract_tb
from typing import Any, get_args


class UserError(ValueError):
    """Something the user can put right (exit code 2); the message names the value and the way out."""


class RunFailed(RuntimeError):
    """A run that could not go on (exit code 1); the message says where it stopped and what to try."""


class Stopped(BaseException):
    """The system asked the work to stop (exit code 0); all is saved. No `Exception`, since no cell may survive it."""


def check_choice(name: str, value: object, choices: Any) -> None:
    """Refuse a value that is not among those of a Literal."""
    if value not in get_args(choices):
        raise UserError(f"{name}={value!r} is not known; choose from {', '.join(map(str, get_args(choices)))}")


def check_least(name: str, value: float, least: float) -> None:
    """Refuse a value below the least."""
    if not value >= least:
        raise UserError(f"{name}={value} must be at least {least}")


def reason_of(error: BaseException, most: int = 10_000) -> str:
    """What an error says, in one line of at most so many letters; its kind where it says nothing."""
    return shorten(str(error), most, placeholder=" …") or type(error).__name__


def own_place(error: BaseException) -> str:
    """Where in the user's own code an error arose; "" where it was not there."""
    others = (str(Path(__file__).parent), get_path("stdlib"), get_path("purelib"), get_path("platlib"), "<")
    own = [frame for frame in extract_tb(error.__traceback__) if not frame.filename.startswith(others)]
    return f"{own[-1].filename} line {own[-1].lineno}, in {own[-1].name}" if own else ""


def counted(n: int, word: str) -> str:
    """So many things in words: 1 image, 2 images."""
    return f"{n:,} {word}" if n == 1 else f"{n:,} {word}s"
