"""The progress bar of long work; quiet where the output is not a terminal."""

from collections.abc import Generator
from contextlib import contextmanager
from typing import Protocol

from tqdm import tqdm


class Count(Protocol):
    """A function that is told of progress."""

    def __call__(self, n: int, total: int | None = None) -> object:
        """Count `n` more as done; `total` is how many there are in all, where that is known only now."""
        ...


@contextmanager
def counting_bar(title: str, total: int | None, unit: str) -> Generator[Count]:
    """Show how many things are done, how fast, and how long the rest will take; yields the function to count with."""
    with tqdm(desc=title, total=total, unit=unit, unit_scale=True, disable=None, dynamic_ncols=True) as bar:

        def count(n: int, total: int | None = None) -> None:
            bar.total = total or bar.total
            bar.update(n)

        yield count
