"""What a run was trained with, what its network expects, and checksums of its small files.

What has changed since is noticed when it is read.
"""

import json
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast, final

from .._lib.files import parse_toml, read_toml, readable, sum_of, write_file
from ..errors import UserError
from ..models._libraries import Facts
from .config import setting_changes
from .session import Checkpoint

SUMS = "sums.json"
"""The settings of a run, and checksums of the files that its results depend on; weights have one of their own too."""
SHOWN_CHANGES = 5
"""Changed settings that a message names."""
UNCHECKED = f"restore it from a backup, or delete {SUMS} to continue without checks"


@final
@dataclass(frozen=True, kw_only=True)
class Expects:
    """What a network tells apart and takes: the names of its classes, the channels×height×width of an image."""

    classes: tuple[str, ...]
    shape: tuple[int, int, int]
    facts: Facts | None = None
    """Of a network by URI, what its library said of it."""
    pictures: str = ""
    """Of a folder of pictures, a checksum of their names and sizes when training began."""


def parse_expects(data: bytes, path: Path) -> Expects:
    """From the contents of model.json; what is damaged is refused."""
    with suppress(ValueError, KeyError, TypeError, OverflowError, RecursionError):
        content = json.loads(data)
        channels, height, width = map(int, content["shape"])
        if min(channels, height, width) > 0 and isinstance(content["classes"], list):
            facts = Facts.read(content["facts"]) if "facts" in content else None
            classes = tuple(map(readable, content["classes"]))
            pictures = str(content.get("pictures", ""))
            return Expects(classes=classes, shape=(channels, height, width), facts=facts, pictures=pictures)
    way_out = "restore it from a backup, or delete it, and the run's data set is read instead"
    raise UserError(f"{path} is damaged; {way_out}")


def read_sums(folder: Path) -> Mapping[str, Any]:
    """The contents of sums.json; empty in a folder of an older version."""
    path = folder / SUMS
    if not path.is_file():
        return {}
    with suppress(ValueError, RecursionError):
        content = json.loads(path.read_bytes())
        if isinstance(content, dict) and isinstance(content.get("config"), dict):
            return cast(Mapping[str, Any], content)
    raise UserError(f"{path} is damaged; restore it from a backup, or delete it to continue without checks")


def write_sums(folder: Path, *names: str, more: Mapping[str, str] | None = None) -> None:
    """What the run is trained with, the checksums of these files as they are now, and of `more` as they will be."""
    path = folder / "config.toml"
    content: dict[str, Any] = {"config": read_toml(path, str(path))}
    content |= {name: sum_of((folder / name).read_bytes()) for name in names} | dict(more or {})
    write_file(folder / SUMS, json.dumps(content, indent=1).encode())


def check_sum(folder: Path, path: Path, data: bytes) -> None:
    """Refuse a file of a run that has changed since its checksum was written; other folders' files have none here."""
    name = path.relative_to(folder).as_posix() if path.is_relative_to(folder) else ""
    if read_sums(folder).get(name, sum_of(data)) != sum_of(data):
        raise UserError(f"{path} has changed since it was written: it does not match {SUMS}; {UNCHECKED}")


def check_config(folder: Path) -> None:
    """Refuse a finished run's config whose settings have changed since training ended."""
    path = folder / "config.toml"
    changes = setting_changes(read_sums(folder).get("config", now := read_toml(path, str(path))), now)
    if changes:
        raise UserError(f"{path} is not what the run was trained with: {_some(changes)}; {UNCHECKED}")


def check_unchanged(folder: Path, checkpoint: Checkpoint | None) -> None:
    """Refuse to go on with settings other than those that the run began with, and its checkpoint was saved with."""
    path, earlier = folder / "config.toml", [read_sums(folder).get("config", {})]
    if checkpoint is not None and checkpoint.config is not None:
        earlier.append(parse_toml(checkpoint.config, f"{checkpoint.path}/config.toml"))
    now = read_toml(path, str(path))
    changes = [change for then in earlier if then for change in setting_changes(then, now)]
    if changes:
        copy = checkpoint.path / "config.toml" if checkpoint is not None and checkpoint.path is not None else "a copy"
        way_out = f"restore it from {copy}, or start a new run: pdeplus train {path} --out DIR"
        raise UserError(f"{path} is not what the run began with: {_some(list(dict.fromkeys(changes)))}; {way_out}")


def _some(changes: Sequence[str]) -> str:
    """The first few, and how many more there are."""
    more = f" and {len(changes) - SHOWN_CHANGES} more" if len(changes) > SHOWN_CHANGES else ""
    return ", ".join(changes[:SHOWN_CHANGES]) + more
