"""One process at a time in a run folder."""

import sys
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

from ._errors import UserError

if sys.platform != "win32":
    import fcntl

FILE = "lock"


@contextmanager
def locked(folder: Path) -> Generator[None]:
    """Within it no other process trains into the folder; where one does already, that is refused.

    The system itself lets go of the lock when a process dies, so that none is ever left behind.
    """
    with (folder / FILE).open("ab") as file:
        if sys.platform != "win32":
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError as error:
                way_out = "wait until it ends, or choose another folder"
                raise UserError(f"{folder} is in use: another process trains into it; {way_out}") from error
            except OSError:
                pass  # some network file systems have no locks
        yield
