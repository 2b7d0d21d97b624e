"""Memory that stays with the process between steps."""

import resource
import sys
from pathlib import Path

import pytest
import torch

from pdeplus._lib.memory import kept_memory

PAGES = 16384
"""Of 4 kB in what `fill` takes."""


def fill(times: int) -> int:
    """Take, fill and free 64 MB so many times; the pages that the system handed out for it."""
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    for _ in range(times):
        torch.ones(16 * 2**20)
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before


def resident() -> float:
    """MB of this process."""
    return int(Path("/proc/self/status").read_text().partition("VmRSS:")[2].split()[0]) / 1024


@pytest.mark.skipif(sys.platform != "linux", reason="mallopt is glibc's")
def test_freed_memory_is_taken_again_within_and_given_back_after():
    with kept_memory():
        fill(30)  # until it has found its places
        assert fill(10) < 3 * PAGES
        within = resident()
    assert resident() < within - 40


def test_it_ends_with_an_error_too():
    with pytest.raises(ValueError, match="mine"), kept_memory():
        raise ValueError("mine")
