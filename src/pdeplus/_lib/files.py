"""Files that survive a power cut, and one process at a time in a folder."""

import hashlib
import json
import os
import sys
import tomllib
import warnings
from collections.abc import Callable, Generator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from importlib.resources.abc import Traversable
from itertools import count
from pathlib import Path
from secrets import token_hex
from typing import Any, cast

import torch
from filelock import FileLock, Timeout
from safetensors.torch import load as parse_safetensors
from safetensors.torch import save as to_safetensors
from torch import Tensor

from ..errors import UserError, reason_of

if sys.platform != "win32":
    import fcntl

LOCK = "lock"
SUM = "sha256"
"""What the checksum of weights is called in their file."""
TEMPORARY = ".pdeplus-"
"""How the names of files begin that are being written."""
DEEPEST = 20
"""Tables within tables that a config may have."""
PATIENCE_SECONDS = 1.0
"""A killed process is gone a moment before its lock is."""


def make_folder(folder: Path) -> None:
    """Make a folder that is not there yet."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UserError(f"{folder} cannot be created: {error.strerror}; choose another folder") from error


def write_file(path: Path, data: bytes) -> None:
    """Write a file whole or not at all."""
    with aside(path) as temporary:
        write_synced(temporary, data)


@contextmanager
def aside(path: Path) -> Generator[Path]:
    """Within it there is a new empty file beside `path`, which takes its place at the end; after an error it is gone.

    Nobody else writes into it, and what writers left here that were killed is removed.
    """
    temporary = None
    try:
        _remove_left_over(path.parent)
        temporary, claim = _claim(path)
        with claim:
            yield temporary
            temporary.replace(path)
        sync_folder(path.parent)
    except OSError as error:
        raise UserError(f"{path} cannot be written: {error.strerror or error}") from error
    finally:
        if temporary is not None:
            temporary.unlink(missing_ok=True)


def _claim(path: Path) -> tuple[Path, AbstractContextManager[Any]]:
    """A file of a new name, locked as long as it is open, so that nobody takes it for left over."""
    while True:
        temporary = path.with_name(f"{TEMPORARY}{token_hex(8)}")
        file = temporary.open("xb")
        if sys.platform == "win32":  # where an open file cannot be renamed
            file.close()
            return temporary, nullcontext()
        with suppress(OSError):  # where the system has no locks, nothing is taken for left over
            fcntl.flock(file, fcntl.LOCK_EX)
        if temporary.exists():
            return temporary, file
        file.close()  # it was taken for left over before it was locked


def _remove_left_over(folder: Path) -> None:
    """Remove the files of `aside` in this folder whose writers are gone, which is when nobody holds their locks."""
    if sys.platform == "win32":
        return
    for path in folder.glob(f"{TEMPORARY}*"):
        with suppress(OSError), path.open("rb+") as file:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            path.unlink()


def write_synced(path: Path, data: bytes) -> None:
    """Write a file that is on disk when this returns."""
    with path.open("wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())


def sync_folder(folder: Path) -> None:
    """Make a rename in `folder` last through a power cut, where the system can."""
    if os.name == "posix":
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def read_toml(path: Path | Traversable, what: str) -> dict[str, Any]:
    """The tables in a TOML file; what cannot be read is answered in a line that begins with `what`."""
    return parse_toml(path.read_bytes(), what)


def parse_toml(data: bytes | str, what: str) -> dict[str, Any]:
    """The tables in TOML text; texts, numbers and depth are those that a config can have."""
    try:
        return cast(dict[str, Any], _plain(tomllib.loads(data if isinstance(data, str) else data.decode())))
    except (ValueError, RecursionError) as error:  # of which tomllib's own is one
        raise UserError(f"{what}: {reason_of(error, 200)}") from error


def parse_value(text: str, what: str) -> Any:
    """A value as TOML writes it; a bare word is a text."""
    try:
        return parse_toml(f"value = {text}", what)["value"]
    except UserError as error:
        if not isinstance(error.__cause__, tomllib.TOMLDecodeError) or "\0" in text:
            raise
        return text


def _plain(value: Any, depth: int = 0) -> Any:
    """The value, unless it goes too deep, or has a whole number of more than 64 bits or a text that names no file."""
    if depth > DEEPEST:
        raise ValueError(f"tables and lists go deeper than {DEEPEST} levels")
    if isinstance(value, int) and abs(value) >= 2**63:
        raise ValueError("a whole number has more than 64 bits")
    if isinstance(value, str) and "\0" in value:
        raise ValueError("a text has a zero byte in it")
    if isinstance(value, dict):
        table = cast(dict[str, Any], value)
        return {_plain(key): _plain(item, depth + 1) for key, item in table.items()}
    if isinstance(value, list):
        return [_plain(item, depth + 1) for item in cast(list[Any], value)]
    return value


def readable(text: object) -> str:
    """The text with what UTF-8 cannot hold, such as bytes of a file's name that are no text, as escapes."""
    return str(text).encode(errors="backslashreplace").decode()


def sync_all() -> None:
    """Make all that was written last through a power cut, where the system can: many files at once."""
    if hasattr(os, "sync"):
        os.sync()


def sum_of(data: bytes) -> str:
    """The SHA-256 of some bytes."""
    return hashlib.sha256(data).hexdigest()


def encode_weights(weights: Mapping[str, Tensor]) -> bytes:
    """Weights as safetensors with their checksum; tensors that share memory are stored each for itself."""
    alone = {name: t.detach().cpu().contiguous().clone() for name, t in weights.items()}
    return to_safetensors(alone, {SUM: _sum_of_weights(alone)})


def read_weights(path: Path) -> dict[str, Tensor]:
    """The weights in a safetensors file, or one line that says why not; the checksum must fit where there is one."""
    try:
        data = path.read_bytes()
        weights = parse_safetensors(data)
        header = json.loads(data[8 : 8 + int.from_bytes(data[:8], "little")])  # behind its length in eight bytes
        wanted = header.get("__metadata__", {}).get(SUM)
    except Exception as error:
        raise UserError(f"{path} cannot be read as weights: {error}") from error
    if wanted is not None and wanted != _sum_of_weights(weights):
        raise UserError(f"{path} is damaged: it does not match its checksum; restore it from a backup")
    return weights


def _sum_of_weights(weights: Mapping[str, Tensor]) -> str:
    """The SHA-256 of names, types, shapes and values."""
    digest = hashlib.sha256()
    for name, tensor in sorted(weights.items()):
        digest.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}\n".encode())
        row = torch.empty(tensor.numel(), dtype=tensor.dtype).copy_(tensor.reshape(-1))  # whose stride is 1
        digest.update(row.view(torch.uint8).numpy().tobytes())
    return digest.hexdigest()


@contextmanager
def held(lock: Path, refusal: str, patience: float = -1) -> Generator[None]:
    """Within it no other process holds this lock; where one does for longer than `patience` seconds, `refusal` says so.

    Less than 0 waits for ever. The system lets go of the lock when a process dies, so that none is ever left behind.
    """
    try:
        taken = FileLock(lock).acquire(timeout=patience, poll_interval=0.02)
    except Timeout as error:
        raise UserError(refusal) from error
    with taken:
        yield


@contextmanager
def held_in_turn(lock: Path, why: str) -> Generator[None]:
    """Within it no other process holds this lock; where one does, a warning says why, and its end is waited for.

    Where nothing can be written nobody else writes either, and there is no lock.
    """
    waiting = FileLock(lock)
    try:
        waiting.acquire(timeout=PATIENCE_SECONDS, poll_interval=0.02)
    except Timeout:
        warnings.warn(f"{why}; waiting for its end", stacklevel=3)
        waiting.acquire(poll_interval=0.2)
    except OSError:
        pass
    try:
        yield
    finally:
        waiting.release()


def locked(folder: Path, patience: float = PATIENCE_SECONDS) -> AbstractContextManager[None]:
    """Within it no other process trains into the folder; where one does already, that is refused after `patience`."""
    way_out = "wait until it ends, or choose another folder"
    return held(folder / LOCK, f"{folder} is in use: another process trains into it; {way_out}", patience)


def move_aside(folder: Path) -> Path:
    """Give a run folder another name, which is returned; one that is being trained into is refused."""
    with locked(folder):
        name = unused(folder, ".old")
        folder.rename(name)
    return name


def unused(folder: Path, mark: str, used: Callable[[Path], bool] = Path.exists) -> Path:
    """The first of the names FOLDER+mark+1, 2, … that is not used."""
    return next(p for n in count(1) if not used(p := folder.with_name(f"{folder.name}{mark}{n}")))
