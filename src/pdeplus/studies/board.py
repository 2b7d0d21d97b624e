"""How cells stand: on a terminal a table of those that run, drawn in place; elsewhere a line per change."""

import shutil
import time
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Literal, TextIO, final, get_args

from tqdm import tqdm

from .cells import Cell, Failure, Result

Word = Literal["done", "failed", "running", "waiting"]
NOTHING: Mapping[int, str] = MappingProxyType({})


@final
@dataclass(frozen=True, kw_only=True)
class State:
    """How one cell stands."""

    title: str
    word: Word
    about: str = ""
    """Where it runs, or why it failed."""
    progress: str = ""
    """How far it is, where that is known."""
    epochs: int
    of: int
    minutes: float = 0.0
    """Since it was first seen to run."""

    @property
    def summary(self) -> str:
        """The whole in one line."""
        before = {"running": " on ", "failed": ": "}.get(self.word, "") if self.about else ""
        about = f"{self.word}{before}{self.about}"
        return f"{self.title}: {about}, {self.epochs} of {self.of} epochs, {self.minutes:.1f} minutes"


@final
class Board:
    """Shows the cells' states, and how they change; of cells in `kept`, which are done from the start, only the number.

    A terminal gets a line for each cell that ends, above the table of those that run.
    """

    def __init__(self, cells: Sequence[Cell], runs: Path, out: TextIO, kept: Collection[int] = ()) -> None:
        self.cells, self.runs, self.out, self.kept = cells, runs, out, frozenset(kept)
        self._since = time.monotonic()
        self._begun = dict[int, float]()
        self._ended = dict[int, State]()
        self._shown = dict[int, tuple[str, str]]()
        self._before = 0
        self._lines = 0

    def title(self, index: int) -> str:
        """What the table calls a cell."""
        cell = self.cells[index]
        return f"{index + 1}/{len(self.cells)} {cell.name} seed {cell.config.seed}"

    def update(
        self, results: Mapping[int, Result], running: Mapping[int, str], progress: Mapping[int, str] = NOTHING
    ) -> None:
        """Show what has ended, where the others run and how far they are, both as far as known, by cells' indices."""
        first, terminal = not self._shown, self.out.isatty()
        known = dict.fromkeys(progress, "") | dict(running)
        now = [self._state(n, results.get(n), known.get(n), progress.get(n, "")) for n in range(len(self.cells))]
        if first:
            self._before = sum(state.epochs for state in now)
        self._ended |= {index: now[index] for index in results}
        news = list[str]()
        for index, state in enumerate(now):
            looks = (state.word, state.about)
            told = state.word in ("done", "failed") or (state.word == "running" and not terminal)
            if told and self._shown.get(index) != looks and index not in self.kept:
                news.append(state.summary)
            self._shown[index] = looks
        size = shutil.get_terminal_size()
        table = table_of(now, self._left(now), size.columns - 1, size.lines - 1) if terminal else []
        self._draw(news, table)

    def say(self, *news: str) -> None:
        """Put lines above the table, which the next update draws again."""
        self._draw(news, [])

    def _draw(self, news: Sequence[str], table: Sequence[str]) -> None:
        back = f"\x1b[{self._lines}F\x1b[J" if self._lines else ""  # over the lines of the last time
        self.out.write(back + "".join(f"{line}\n" for line in (*(f"pdeplus: {text}" for text in news), *table)))
        self.out.flush()
        self._lines = len(table)

    def _left(self, states: Sequence[State]) -> float:
        """Seconds until all epochs are done, at the pace so far; 0 where nothing tells."""
        done = sum(state.epochs for state in states) - self._before
        to_do = sum(state.of - state.epochs for state in states if state.word in ("running", "waiting"))
        return (time.monotonic() - self._since) * to_do / done if done > 0 else 0.0

    def _state(self, index: int, result: Result | None, where: str | None, progress: str) -> State:
        if index in self._ended:
            return self._ended[index]
        cell, about = self.cells[index], where or ""
        metrics = self.runs / cell.folder / "metrics.jsonl"
        word: Word = "waiting" if where is None else "running"
        if result is not None:
            word, about = ("failed", result.reason) if isinstance(result, Failure) else ("done", "")
        if word != "waiting":
            self._begun.setdefault(index, time.monotonic())
        begun = self._begun.get(index)
        return State(
            title=self.title(index),
            word=word,
            about=about,
            progress=progress,
            epochs=metrics.read_bytes().count(b"\n") if metrics.is_file() else 0,
            of=cell.config.train.epochs,
            minutes=0.0 if begun is None else (time.monotonic() - begun) / 60,
        )


def table_of(states: Sequence[State], left: float, width: int, height: int) -> list[str]:
    """A line for each cell that runs and one with all numbers, cut to a terminal's size."""
    counts = Counter(state.word for state in states)
    total = ", ".join(f"{counts[word]} {word}" for word in get_args(Word) if counts[word])
    chosen = [state for state in states if state.word == "running"][: max(height - 2, 0)]
    wide = max((len(state.title) for state in chosen), default=0)
    head = [f"{'run':<{wide}}  {'epochs':>9}  minutes  state"] if chosen else []
    rows = [
        f"{s.title:<{wide}}  {f'{s.epochs}/{s.of}':>9}  {s.minutes:7.1f}  {s.progress or f'running on {s.about}'}"
        for s in chosen
    ]
    last = f"{len(states)} runs: {total}" + (f"; about {tqdm.format_interval(left)} left" if left else "")
    return [line[:width] for line in (*head, *rows, last)]
