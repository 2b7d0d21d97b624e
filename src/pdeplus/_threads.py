"""Small arrays on one thread."""

from collections.abc import Generator
from contextlib import contextmanager

import torch


@contextmanager
def one_thread() -> Generator[None]:
    """Run torch on one thread; the number that was set comes back.

    The arrays here are small: threads wait for each other longer than they work, ten times longer on a busy machine.
    """
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)
