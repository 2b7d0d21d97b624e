"""Signals that ask the work to stop: training ends its step and saves before they take effect."""

import signal
import threading
from collections.abc import Callable, Generator
from contextlib import contextmanager
from types import FrameType

from ..errors import Stopped

Handler = Callable[[int, FrameType | None], None]


@contextmanager
def stopping() -> Generator[None]:
    """Let SIGTERM raise `Stopped`, so that whatever is open is closed in good order."""
    with _handling({signal.SIGTERM: _take_effect}):
        yield


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

    with _handling({signal.SIGTERM: note, signal.SIGINT: note}):
        yield lambda: bool(waiting)
    if waiting:
        _take_effect(waiting[0], None)


def _take_effect(number: int, frame: FrameType | None) -> None:
    raise KeyboardInterrupt if number == signal.SIGINT else Stopped("stopped by SIGTERM")


@contextmanager
def _handling(handlers: dict[signal.Signals, Handler]) -> Generator[None]:
    """Install the handlers, and put the former ones back at the end."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {number: signal.signal(number, handler) for number, handler in handlers.items()}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
