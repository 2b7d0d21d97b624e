"""Memory: what the machine has, errors of its lack, and what a process keeps for its own next allocation."""

import ctypes
import os
from collections.abc import Generator
from contextlib import contextmanager

TRIM_THRESHOLD, MMAP_MAX = -1, -4
"""Of glibc's mallopt: the free memory above which the heap shrinks, and how many blocks may lie outside of it."""
NEVER, USUAL_TRIM, USUAL_BLOCKS = 2**31 - 1, 128 * 1024, 65536


def machine_memory() -> int:
    """Bytes of the machine's memory; where it does not tell, as many as there can be."""
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, ValueError, OSError):
        return 2**63


def lacks_memory(error: BaseException) -> bool:
    """Whether this is Python's, numpy's or torch's way to say that memory does not suffice."""
    told = str(error).lower()
    return isinstance(error, MemoryError) or "allocate memory" in told or "out of memory" in told


@contextmanager
def kept_memory() -> Generator[None]:
    """Within it freed memory stays with the process: the tensors of one step take the places of the step before.

    Otherwise the system hands out large tensors page by page, each set to zero first, in every step: a sixth of its
    time in the fast regime. Afterwards free memory goes back to the system. Nothing happens without glibc.
    """
    try:
        libc = ctypes.CDLL(None)
        mallopt, malloc_trim = libc.mallopt, libc.malloc_trim
    except (OSError, TypeError, AttributeError):
        yield
        return
    mallopt(MMAP_MAX, 0)
    mallopt(TRIM_THRESHOLD, NEVER)
    try:
        yield
    finally:
        mallopt(MMAP_MAX, USUAL_BLOCKS)
        mallopt(TRIM_THRESHOLD, USUAL_TRIM)
        malloc_trim(0)
