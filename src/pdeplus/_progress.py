"""The progress bar of long work; quiet where the output is not a terminal."""

import time
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from typing import Protocol

from torch import Tensor
from tqdm import tqdm

from .trainer import Progress, Watch

REFRESH_SECONDS = 0.5


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


@contextmanager
def progress_bar(title: str) -> Generator[Watch]:
    """What to call after each step: shows loss, accuracy, images/s and the time that remains."""
    with tqdm(desc=title, unit="step", disable=None, dynamic_ncols=True, mininterval=REFRESH_SECONDS) as bar:
        shown_at = 0.0

        def watch(step: int, steps: int, progress: Progress, logs: Mapping[str, Tensor]) -> None:
            nonlocal shown_at
            if bar.disable:
                return
            if bar.total != steps:
                bar.reset(total=steps)
                bar.initial = bar.n = step  # a resumed run starts in the middle
            bar.update(step + 1 - bar.n)
            if time.monotonic() - shown_at >= REFRESH_SECONDS:
                shown_at = time.monotonic()
                bar.set_postfix_str(_summary(progress, logs))

        yield watch


def _summary(progress: Progress, logs: Mapping[str, Tensor]) -> str:
    speed = progress.images / max(progress.seconds, 1e-9)
    shown = [f"epoch {progress.epoch + 1}"]
    shown += [f"loss {float(logs['loss/task']):.3f}"] if "loss/task" in logs else []
    shown += [f"accuracy {100 * float(logs['accuracy']):.1f} %"] if "accuracy" in logs else []
    return ", ".join([*shown, f"{speed:.0f} images/s"])
