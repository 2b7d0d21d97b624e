"""Memory that stays with the process between steps."""

import resource
import sys

import pytest
import torch

from pdeplus._lib.memory import kept_memory


def page_faults(n: int = 10) -> int:
    """Pages that the system hands out while 64 MB are taken, filled and freed n times."""
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    for _ in range(n):
        torch.ones(16 * 2**20)
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before


@pytest.mark.skipif(sys.platform != "linux", reason="mallopt is glibc's")
def test_freed_memory_is_taken_again_within_and_given_back_after():
    pages = 10 * 16384  # of 4 kB
    with kept_memory():
        page_faults(2)
        within = page_faults()
    assert within < 0.2 * pages
    assert page_faults() > 0.8 * pages


def test_it_ends_with_an_error_too():
    with pytest.raises(ValueError, match="mine"), kept_memory():
        raise ValueError("mine")
