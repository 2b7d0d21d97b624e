"""Cells on this machine: several at once, each in a process of one thread, so that no bit depends on how many.

`run_here` hands the cells out and gives each result as it comes; `serve` is what a process does. It reads cells from
its input, and once that ends, be it that the command is done, is told to stop or was killed, it saves and ends.
"""

import os
import pickle
import signal
import subprocess
import sys
import threading
import time
import warnings
from _thread import interrupt_main
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import IO, Any, Literal, cast, final

import torch
from torch import Tensor
from tqdm import tqdm

from .._lib.long_work import held_back, signals_blocked, stopping
from .._lib.memory import machine_memory
from ..errors import Stopped, UserError, check_least
from ..evaluation.test_sets import KEPT
from ..training.session import Progress
from .board import Board
from .cells import Cell, Done, Failure, Result, Results, attempt, attempt_alone, failed, is_tested, is_trained, refuse

REFRESH_SECONDS = 1.0
TELL_SECONDS = 0.5
"""Between two messages of a process about its progress."""
LEAST_MEMORY = 10**9
"""Bytes that a process takes at the least: torch, a data set, a small network."""
KEPT_AT_MOST = 10**9
"""Bytes of corrupted test images that a process keeps for its next model."""
ONE_THREAD = dict.fromkeys(
    ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS", "VECLIB_MAXIMUM_THREADS"), "1"
)
SERVE = "from pdeplus.studies.jobs import serve; serve()"
Kind = Literal["progress", "line", "result", "gone"]
"""How far its cell is; what it printed; what became of its cell; nothing more will come."""


def choose_jobs(jobs: int | None) -> int:
    """How many cells to run at once: as many as asked for, where memory may do for them.

    None is for one on each core, as far as memory goes; one alone where there is a GPU, which they would share.
    """
    memory = available_memory()
    fit = max(1, memory // LEAST_MEMORY)
    if jobs is None:
        return 1 if torch.cuda.is_available() else min(cores(), fit)
    check_least("jobs", jobs, 1)
    if jobs > fit:
        need = f"{jobs * LEAST_MEMORY / 1e9:.0f} GB of memory or more"
        raise UserError(f"jobs={jobs} need {need}, {memory / 1e9:.1f} GB are available: {fit} fit")
    return jobs


def cores() -> int:
    """The cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def available_memory() -> int:
    """Bytes that processes can still have; where the system does not tell, all of its memory, or no limit."""
    with suppress(OSError, IndexError):
        return int(Path("/proc/meminfo").read_text().partition("MemAvailable:")[2].split()[0]) * 1024
    return machine_memory()


def run_here(cells: Sequence[Cell], runs: Path, jobs: int) -> Results:
    """Run so many cells at once; what is done already is only read.

    Ctrl-C or SIGTERM lets the running ones save before it takes effect; a second one does not wait.
    """
    results = dict[int, Result]()
    for index, cell in enumerate(cells):
        if is_trained(cell, runs) and is_tested(cell, runs):
            result = attempt(cell, runs, count=refuse)
            if isinstance(result, Done):
                results[index] = result
                yield index, result
    if len(results) < len(cells):
        with held_back() as stop:
            yield from _follow(cells, runs, jobs, results, stop)


def _follow(
    cells: Sequence[Cell], runs: Path, jobs: int, results: dict[int, Result], stop: Callable[[], bool]
) -> Results:
    """Run the cells that have no result, until all have one or `stop` says so."""
    crew, board = Crew(cells, runs, jobs, known=list(results)), Board(cells, runs, sys.stderr, kept=list(results))
    try:
        while len(results) < len(cells) and not stop():
            crew.hand_out()
            board.update(results, {}, crew.at_work)
            ended = crew.next_end(board)
            if ended is not None:
                results[ended[0]] = ended[1]
                yield ended
        if stop():
            board.say("saving and stopping the current runs; a second Ctrl-C does not wait for them")
        board.update(results, {}, crew.at_work)
    except (KeyboardInterrupt, Stopped):  # a second signal
        crew.kill()
        raise
    finally:
        crew.dismiss()


@final
class Worker:
    """A process of one thread that runs one cell after another."""

    def __init__(self, inbox: "SimpleQueue[tuple[Worker, Kind, Any]]") -> None:
        self.inbox = inbox
        self.index: int | None = None
        """Of the cell that it is at."""
        self.progress = ""
        variables = os.environ | ONE_THREAD | {"PYTHONPATH": os.pathsep.join(path or os.getcwd() for path in sys.path)}
        command, pipe = [sys.executable, "-P", "-c", SERVE], subprocess.PIPE
        with signals_blocked():  # in the process, for good: a terminal's Ctrl-C is for the command to pass on, once
            self.process = subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=pipe, env=variables)
        hear = (self._hear_messages, self._hear_lines)
        self._threads = [threading.Thread(target=work, daemon=True) for work in hear]
        for thread in self._threads:
            thread.start()

    def give(self, index: int, cell: Cell, runs: Path) -> None:
        """Let it run a cell."""
        self.index, self.progress = index, "starting"
        given = cast(IO[bytes], self.process.stdin)
        with suppress(BrokenPipeError):  # it has just been killed: "gone" comes
            given.write(pickle.dumps((cell, runs, sys.argv)))
            given.flush()

    def end_input(self) -> None:
        """Let it save and end."""
        with suppress(BrokenPipeError):
            cast(IO[bytes], self.process.stdin).close()

    def join(self) -> int:
        """Wait until it has ended, and return its exit code."""
        code = self.process.wait()
        for thread in self._threads:
            thread.join(REFRESH_SECONDS)  # a process that it has started may still hold its output
        self.end_input()
        return code

    def _hear_messages(self) -> None:
        with cast(IO[bytes], self.process.stdout) as told, suppress(EOFError, pickle.UnpicklingError):
            while True:
                self.inbox.put((self, *pickle.load(told)))
        self.inbox.put((self, "gone", None))

    def _hear_lines(self) -> None:
        with cast(IO[bytes], self.process.stderr) as printed:
            for line in printed:
                self.inbox.put((self, "line", line.decode(errors="replace").rstrip()))


@final
class Crew:
    """The processes, and the cells that wait for one."""

    def __init__(self, cells: Sequence[Cell], runs: Path, jobs: int, known: Sequence[int]) -> None:
        self.cells, self.runs, self.jobs = cells, runs, jobs
        self.waiting = [index for index in range(len(cells)) if index not in known]
        self.workers = list[Worker]()
        self.inbox = SimpleQueue[tuple[Worker, Kind, Any]]()

    @property
    def at_work(self) -> dict[int, str]:
        """The cells that run, and how far they are."""
        return {worker.index: worker.progress for worker in self.workers if worker.index is not None}

    def hand_out(self) -> None:
        """Give cells to processes as long as there is room; of two that train the same, the second waits."""
        taken = {self.cells[index].folder for index in self.at_work}
        for index in list(self.waiting):
            idle = next((worker for worker in self.workers if worker.index is None), None)
            if idle is None and len(self.workers) == self.jobs:
                return
            cell = self.cells[index]
            if cell.folder in taken:
                continue
            if idle is None:
                idle = Worker(self.inbox)
                self.workers.append(idle)
            idle.give(index, cell, self.runs)
            self.waiting.remove(index)
            taken.add(cell.folder)

    def next_end(self, board: Board) -> tuple[int, Result] | None:
        """The next cell that ends, and its result; None where none does within a second."""
        until = time.monotonic() + REFRESH_SECONDS
        while (left := until - time.monotonic()) > 0:
            try:
                worker, kind, content = self.inbox.get(timeout=left)
            except Empty:
                return None
            index = worker.index
            if kind == "gone":
                self.workers.remove(worker)
                code = worker.join()
                content = lost(self.cells[index], self.runs, code) if index is not None else None
            if kind == "progress":
                worker.progress = str(content)
            elif kind == "line":
                board.say(str(content) if index is None else f"{board.title(index)}: {content}")
            elif index is not None:
                worker.index = None
                return index, cast(Result, content)
        return None

    def dismiss(self) -> None:
        """Let all save and end, and wait for that; a signal cuts it short."""
        try:
            for worker in self.workers:
                worker.end_input()
            for worker in self.workers:
                worker.join()
        finally:
            self.kill()

    def kill(self) -> None:
        """End all at once."""
        for worker in self.workers:
            worker.process.kill()
        for worker in self.workers:
            worker.join()


def lost(cell: Cell, runs: Path, code: int) -> Failure:
    """The failure of a cell whose process ended by itself, also noted beside the runs."""
    how = f"exit code {code}" if code >= 0 else f"signal {-code}, {signal.strsignal(-code)}"
    short = "; where memory is short, fewer jobs help" if code == -9 else ""
    reason = f"its process ended ({how}){short}"
    return failed(cell, runs, reason, reason)


def serve() -> None:
    """Run the cells that come in, and send what becomes of them; ends with the input, saving what it is at."""
    torch.set_num_threads(1)
    KEPT.limit = min(KEPT_AT_MOST, available_memory() // 8)
    given, told = os.fdopen(os.dup(0), "rb"), os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # what a cell prints is no message
    cells = SimpleQueue[tuple[Cell, Path, list[str]] | None]()

    def warn(message: Warning | str, *about: object) -> None:
        print(" ".join(str(message).split()), file=sys.stderr)

    def send(kind: Kind, content: object) -> None:
        with suppress(BrokenPipeError):  # the command is no longer there, which `listen` notices too
            told.write(pickle.dumps((kind, content)))
            told.flush()

    def listen() -> None:
        try:
            with suppress(EOFError):
                while True:
                    cells.put(pickle.load(given))
        finally:
            cells.put(None)
            interrupt_main(signal.SIGTERM)

    warnings.showwarning = warn
    with suppress(Stopped), stopping():
        threading.Thread(target=listen, daemon=True).start()
        while (job := cells.get()) is not None:
            cell, runs, sys.argv = job  # runs and records say which command wrote them
            pace = Pace(partial(send, "progress"))
            waits = partial(send, "progress", "waiting for another process")
            send("result", attempt_alone(cell, runs, waits, pace.training, pace.testing))


@final
class Pace:
    """How far a cell is, in words, told twice a second."""

    def __init__(self, tell: Callable[[str], object]) -> None:
        self.tell = tell
        self._phase = ""
        self._since = self._told_at = time.monotonic()
        self._first = self._tested = 0

    def training(self, step: int, steps: int, progress: Progress, logs: Mapping[str, Tensor]) -> None:
        """A `Watch`."""
        self._told("training", step + 1, steps, progress.images / max(progress.seconds, 1e-9))

    def testing(self, n: int, of: int) -> None:
        """A `Count`; where a test ends, the next one of as many images may begin."""
        self._tested = self._tested % of + n
        self._told("testing", self._tested, of)

    def _told(self, phase: str, done: int, of: int, speed: float | None = None) -> None:
        now = time.monotonic()
        if phase != self._phase or done <= self._first:
            self._phase, self._first, self._since = phase, done, now
        elif now - self._told_at >= TELL_SECONDS:
            self._told_at = now
            pace = max(done - self._first, 1) / (now - self._since)
            left = tqdm.format_interval((of - done) / pace)
            rate = pace if speed is None else speed
            self.tell(f"{phase} {100 * done / of:.0f} %, {rate:.0f} images/s, {left} left")
