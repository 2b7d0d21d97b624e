"""Long work: a bar that shows its progress, threads that work ahead, signals that wait until it can stop."""

import os
import signal
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager
from types import FrameType
from typing import TypeVar

from tqdm import tqdm

from ..errors import Stopped

Item = TypeVar("Item")
Result = TypeVar("Result")
Count = Callable[..., object]
"""A function that is told of progress: `count(n)` for n more, `count(n, total)` where the total of this part of
the work is known only now."""

LINE_SECONDS = 60.0
"""Time between two lines on the progress of long work in a log file."""


@contextmanager
def counting_bar(title: str, total: int | None, unit: str) -> Generator[Count]:
    """Show how many things are done, how fast, and how long the rest will take; yields the function to count with.

    Where the stream of errors is no terminal, as in a log file or a notebook, long work is a line there now and then.
    """
    with tqdm(desc=title, total=total, unit=unit, unit_scale=True, disable=None, dynamic_ncols=True) as bar:
        done, told_at = 0, time.monotonic()
        before, part = 0, total

        def count(n: int, total: int | None = None) -> None:
            nonlocal before, part, done, told_at
            if total and (total != part or done == before + total):  # another part begins
                before, part, bar.total = done, total, done + total
            done += n
            bar.update(n)
            if bar.disable and time.monotonic() - told_at >= LINE_SECONDS:
                told_at, of = time.monotonic(), f" of {bar.total:,}" if bar.total else ""
                tell(f"{title}: {done:,}{of} {unit.strip()}")

        yield count


def tell(line: str) -> None:
    """A line on the stream of errors; where nobody reads it any more, as behind `| head`, the work goes on."""
    try:
        print(line, file=sys.stderr, flush=True)
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stderr.fileno())  # for this and all that follows


def tell_finished(text: str) -> None:
    """A line on a finished part of long work where there is no terminal, whose bar would show it."""
    if not sys.stderr.isatty():
        tell(text)


def in_order(work: Callable[[Item], Result], items: Iterable[Item], workers: int, ahead: int) -> Iterator[Result]:
    """The results of `work` in the order of the items, from threads that keep so many items ahead."""
    pool, waiting = ThreadPoolExecutor(workers), deque[Future[Result]]()
    try:
        for item in items:
            waiting.append(pool.submit(work, item))
            if len(waiting) > ahead:
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()
    finally:
        pool.shutdown(cancel_futures=True)


def stopping() -> AbstractContextManager[None]:
    """Let SIGTERM raise `Stopped`, so that whatever is open is closed in good order."""
    return _handling(_take_effect, signal.SIGTERM)


@contextmanager
def held_back() -> Generator[Callable[[], bool]]:
    """Hold SIGTERM and Ctrl-C back until the end; yields a function that tells whether one waits.

    A second signal takes effect at once. Nothing is held back outside the main thread, where Python handles none.
    """
    waiting = list[int]()

    def note(number: int, frame: FrameType | None) -> None:
        if waiting:
            _take_effect(number, frame)
        waiting.append(number)

    with _handling(note, signal.SIGTERM, signal.SIGINT):
        yield lambda: bool(waiting)
    if waiting:
        _take_effect(waiting[0], None)


@contextmanager
def signals_blocked() -> Generator[None]:
    """Let SIGTERM and Ctrl-C wait until the end; a process that is started within it never gets them.

    Nothing is blocked where the system cannot.
    """
    if not hasattr(signal, "pthread_sigmask"):
        yield
        return
    before = signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTERM, signal.SIGINT])
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _take_effect(number: int, frame: FrameType | None) -> None:
    raise KeyboardInterrupt if number == signal.SIGINT else Stopped("stopped by SIGTERM")


@contextmanager
def _handling(handler: Callable[[int, FrameType | None], None], *signals: signal.Signals) -> Generator[None]:
    """Install the handler in the main thread, which alone can have one, and put the former ones back at the end."""
    main = threading.current_thread() is threading.main_thread()
    before = {number: signal.signal(number, handler) for number in signals if main}
    try:
        yield
    finally:
        for number, former in before.items():
            signal.signal(number, former)
