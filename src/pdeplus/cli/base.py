"""What several commands share; torch is not loaded before it is needed."""

import argparse
from argparse import SUPPRESS
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from .._lib import registry

if TYPE_CHECKING:
    from ..data.base import Source


def pick(options: argparse.Namespace, *names: str) -> dict[str, Any]:
    """Some of the options, as keyword arguments."""
    return {name: getattr(options, name) for name in names}


def add_choice(parser: argparse.ArgumentParser, flag: str, hint: Any, *, old: str = "", **given: Any) -> None:
    """Add a flag whose choices are those of a Literal; `old` is a former spelling, which --help does not show."""
    choices = registry.choices(hint)
    parser.add_argument(flag, choices=choices, **given)
    if old:
        parser.add_argument(old, dest=flag.strip("-"), choices=choices, default=SUPPRESS, help=SUPPRESS)


def add_selection(parser: argparse.ArgumentParser) -> None:
    """Add --selection, of one of a run's two sets of weights."""
    from ..training.run_folder import Selection

    about = "weights of the last epoch, or with the best validation score (default)"
    add_choice(parser, "--selection", Selection, default="validation", help=about)


def add_trust(parser: argparse.ArgumentParser) -> None:
    """Add --trust-code, for commands that read a run folder."""
    about = "import modules outside pdeplus that the run folder names: they can do anything you can"
    parser.add_argument("--trust-code", action="store_true", help=about)


def build_data(name: str, settings: Sequence[str]) -> "Source":
    """The data set of this name with KEY=VALUE settings, each with or without `data.` before its key."""
    from ..training.config import insert

    tables = dict[str, Any]()
    for setting in settings:
        insert(tables, setting.removeprefix("data."))
    known = registry.names("data")
    if "." not in name and name not in known:
        raise registry.unknown(f"{name!r} is no folder here; a data set of this name", name, known)
    return registry.build("data", name, tables)
