"""Where data sets lie and how a folder is known to hold one."""

import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import final

from .._errors import UserError


@final
@dataclass(frozen=True, kw_only=True)
class Download:
    """One official file."""

    url: str
    md5: str

    @property
    def file(self) -> str:
        """The file's name."""
        return self.url.rpartition("/")[2].partition("?")[0]


@final
@dataclass(frozen=True, kw_only=True)
class SecondSource:
    """Another place that holds the same images, reached by a command of the system."""

    about: str
    command: str
    """Must be on the machine."""
    make: Callable[[Path], None]
    """Writes the data set's folder, in the original layout, into an empty folder."""


@final
@dataclass(frozen=True, kw_only=True)
class Origin:
    """A data set's folder, and how to get it."""

    name: str
    folder: str
    """The folder's name, as the official archive has it."""
    marks: tuple[str, ...]
    """What the folder must hold to be taken for the data set (patterns)."""
    size: str
    """Of the download, for people."""
    downloads: tuple[Download, ...] = ()
    second: SecondSource | None = None
    by_hand: str = ""
    """What to do where there is no official download."""
    aliases: tuple[str, ...] = ()
    """Other names that the folder goes by."""


def data_root(root: str = "") -> Path:
    """The folder that data sets lie in: `root`, else $PDEPLUS_DATA, else ~/.cache/pdeplus."""
    return Path(root or os.environ.get("PDEPLUS_DATA") or "~/.cache/pdeplus").expanduser()


def find(origin: Origin, root: str = "") -> Path | None:
    """The data set's folder: in `root` under its own name, or `root` itself; None where it is not complete."""
    base = data_root(root)
    candidates = [*(base / name for name in (origin.folder, *origin.aliases)), base]
    return next((folder for folder in candidates if not lacking(origin, folder)), None)


def require(origin: Origin, root: str = "") -> Path:
    """The data set's folder; where it is missing, one line says how to get it."""
    folder, base = find(origin, root), data_root(root)
    if folder is not None:
        return folder
    begun = base / origin.folder
    what = f"{begun} has no {lacking(origin, begun)}" if begun.is_dir() else f"{base} has no {origin.folder}"
    where = f" --root {base}" if root else ""
    raise UserError(
        f"data set {origin.name}: {what}; get it: pdeplus data get {origin.name}{where}, "
        f"or set data.root to the folder that holds it"
    )


def lacking(origin: Origin, folder: Path) -> str:
    """The first thing the folder lacks to be this data set; empty if nothing."""
    return next((mark for mark in origin.marks if not any(folder.glob(mark))), "")
