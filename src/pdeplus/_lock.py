"""One process at a time in a run folder."""

import sys
import time
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

from ._errors import UserError

if sys.platform != "win32":
    import fcntl

FILE = "lock"
PATIENCE_SECONDS = 1.0
"""A killed process is gone a moment before its lock is."""
PAUSE_SECONDS = 0.02


@contextmanager
def locked(folder: Path, patience: float = PATIENCE_SECONDS) -> Generator[None]:
    """Within it no other process trains into the folder; where one does already, that is refused after `patience`.

    The system itself lets go of the lock when a process dies, so that none is ever left behind.
    """
    with (folder / FILE).open("ab") as file:
        end = time.monotonic() + patience
        while not _locks(file):
            if time.monotonic() >= end:
                way_out = "wait until it ends, or choose another folder"
                raise UserError(f"{folder} is in use: another process trains into it; {way_out}")
            time.sleep(PAUSE_SECONDS)
        yield


def _locks(file: BinaryIO) -> bool:
    """Whether this process has the lock now; some network file systems have no locks."""
    if sys.platform != "win32":
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        except OSError:
            pass
    return True
