"""Files that survive a power cut, and one process at a time in a folder."""

import os
from collections.abc import Generator, Mapping
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

from filelock import FileLock, Timeout
from safetensors.torch import load as parse_safetensors
from safetensors.torch import save as to_safetensors
from torch import Tensor

from ..errors import UserError

LOCK = "lock"
PATIENCE_SECONDS = 1.0
"""A killed process is gone a moment before its lock is."""


def make_folder(folder: Path) -> None:
    """Make a folder that is not there yet."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UserError(f"{folder} cannot be made: {error.strerror}; choose another folder") from error


def write_file(path: Path, data: bytes) -> None:
    """Write a file whole or not at all."""
    temporary = path.with_name(path.name + ".tmp")
    try:
        write_synced(temporary, data)
        temporary.replace(path)
        sync_folder(path.parent)
    except OSError as error:
        temporary.unlink(missing_ok=True)
        raise UserError(f"{path} cannot be written: {error.strerror}") from error


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


def encode_weights(weights: Mapping[str, Tensor]) -> bytes:
    """Weights as safetensors; tensors that share memory are stored each for itself."""
    return to_safetensors({name: t.detach().cpu().contiguous().clone() for name, t in weights.items()})


def read_weights(path: Path) -> dict[str, Tensor]:
    """The weights in a safetensors file, or one line that says why not."""
    try:
        return parse_safetensors(path.read_bytes())
    except Exception as error:
        raise UserError(f"{path} cannot be read as weights: {error}") from error


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


def locked(folder: Path, patience: float = PATIENCE_SECONDS) -> AbstractContextManager[None]:
    """Within it no other process trains into the folder; where one does already, that is refused after `patience`."""
    way_out = "wait until it ends, or choose another folder"
    return held(folder / LOCK, f"{folder} is in use: another process trains into it; {way_out}", patience)
