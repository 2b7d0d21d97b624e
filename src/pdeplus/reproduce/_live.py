"""How the cells of a cluster stand: a table that is drawn in place on a terminal, elsewhere a line per change."""

import json
import shutil
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, TextIO, final

from .._checkpoint import make_folder, write_file
from .cells import Cell
from .study import Done

Word = Literal["waiting", "running", "done", "failed"]
WORDS: tuple[Word, ...] = ("failed", "running", "waiting", "done")
"""What matters most comes first: a low terminal leaves the last away."""


@final
@dataclass(frozen=True, kw_only=True)
class State:
    """Of one cell."""

    title: str
    word: Word
    about: str = ""
    """Where it runs, or why it failed."""
    epochs: int
    of: int
    minutes: float = 0.0
    """Since it was first seen to run."""

    @property
    def summary(self) -> str:
        """The whole in one line."""
        about = {"running": f" on {self.about}", "failed": f": {self.about}"}.get(self.word, "")
        return f"{self.title}: {self.word}{about}, {self.epochs} of {self.of} epochs, {self.minutes:.1f} minutes"


def sign_of(cell: Cell, runs: Path, place: int) -> Path:
    """The file that says where a cell runs, while it does; two that train the same have each its own."""
    return runs / f"{cell.folder}.{place + 1}.running.json"


def announce(sign: Path, where: str) -> None:
    """Write that file; a process that is killed leaves it to the next one."""
    make_folder(sign.parent)
    write_file(sign, json.dumps(where).encode())


def where_is(sign: Path) -> str:
    """What that file says; empty where there is none."""
    with suppress(OSError, ValueError):
        return str(json.loads(sign.read_bytes()))
    return ""


def epochs_done(folder: Path) -> int:
    """As a run's metrics have it."""
    with suppress(OSError):
        return (folder / "metrics.jsonl").read_bytes().count(b"\n")
    return 0


@final
class Board:
    """Shows the cells' states, and how they change."""

    def __init__(self, cells: Sequence[Cell], runs: Path, out: TextIO) -> None:
        self.cells, self.runs, self.out = cells, runs, out
        self._begun = dict[int, float]()
        self._ended = dict[int, State]()
        self._shown = dict[int, State]()
        self._lines = 0

    def update(self, results: Mapping[int, object]) -> None:
        """Look at what runs, and show it; `results` are what has ended, by the cells' places."""
        now = {place: self._state(place, results.get(place)) for place in range(len(self.cells))}
        self._ended |= {place: now[place] for place in results}
        if self.out.isatty():
            size = shutil.get_terminal_size()
            self._draw(table_of(list(now.values()), size.columns - 1, size.lines - 1))
        else:
            for place, state in now.items():
                if _changed(self._shown.get(place), state):
                    print(f"pdeplus: {state.summary}", file=self.out, flush=True)
        self._shown = now

    def _state(self, place: int, result: object) -> State:
        if place in self._ended:
            return self._ended[place]
        cell = self.cells[place]
        where = where_is(sign_of(cell, self.runs, place))
        if where or result is not None:
            self._begun.setdefault(place, time.monotonic())
        begun = self._begun.get(place)
        word: Word = "running" if where else "waiting"
        if result is not None:
            word = "done" if isinstance(result, Done) else "failed"
        return State(
            title=f"{place + 1}/{len(self.cells)} {cell.name} seed {cell.config.seed}",
            word=word,
            about=where if result is None else str(getattr(result, "reason", "")),
            epochs=epochs_done(self.runs / cell.folder),
            of=cell.config.train.epochs,
            minutes=0.0 if begun is None else (time.monotonic() - begun) / 60,
        )

    def _draw(self, lines: Sequence[str]) -> None:
        """Over the lines of the last time."""
        back = f"\x1b[{self._lines}F\x1b[J" if self._lines else ""
        self.out.write(back + "".join(f"{line}\n" for line in lines))
        self.out.flush()
        self._lines = len(lines)


def table_of(states: Sequence[State], width: int, height: int) -> list[str]:
    """A line for each cell and one with their numbers, cut to a terminal's size."""
    counts = Counter(state.word for state in states)
    total = ", ".join(f"{counts[word]} {word}" for word in reversed(WORDS) if counts[word])
    room = max(height - 2, 0)
    important = sorted(range(len(states)), key=lambda place: WORDS.index(states[place].word))
    chosen = [states[place] for place in sorted(important[:room])]
    wide = max((len(state.title) for state in chosen), default=0)
    head = f"{'cell':<{wide}}  {'epochs':>9}  minutes  state"
    rows = [
        f"{s.title:<{wide}}  {f'{s.epochs}/{s.of}':>9}  {s.minutes:7.1f}  {s.word} {s.about}".rstrip() for s in chosen
    ]
    return [line[:width] for line in (head, *rows, f"{len(states)} cells: {total}")]


def _changed(before: State | None, now: State) -> bool:
    if before is None:
        return now.word != "waiting"
    return (before.word, before.about) != (now.word, now.about) and now.word != "waiting"
