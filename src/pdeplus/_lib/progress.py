"""The progress bar of long work; quiet where the output is not a terminal."""

from collections.abc import Generator
from contextlib import contextmanager
from typing import Protocol

from tqdm import tqdm


class Count(Protocol):
    """What to tell of progress."""

    def __call__(self, n: int, total: int | None = None) -> object:
        """So many more are done, of `total` where that is known only now."""
        ...


@contextmanager
def counting_bar(title: str, total: int | None, unit: str) -> Generator[Count]:
    """What to call with the number of things done since the last call: shows how many, how fast, how long still."""
    with tqdm(desc=title, total=total, unit=unit, unit_scale=True, disable=None, dynamic_ncols=True) as bar:

        def count(n: int, total: int | None = None) -> None:
            bar.total = total or bar.total
            bar.update(n)

        yield count
