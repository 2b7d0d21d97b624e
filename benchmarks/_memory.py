"""Peak memory of a piece of work, in a process of its own that has done nothing else."""

import multiprocessing
from collections.abc import Callable
from multiprocessing.connection import Connection
from pathlib import Path

from ._cases import Case, bare_step

STATUS = Path("/proc/self/status")
PRELOADED = ["accelerate", "torch._dynamo", __name__]
"""Imported once, however many processes there are: what a step imports, and this."""
STEPS = 2
"""The first makes the optimiser's state, the second holds it beside everything else."""
Make = Callable[[], Callable[[], object]]
"""Prepares work that can then be repeated; a function of a module with its arguments, so that a process can be sent
it."""


def peak_memory(make: Make) -> float | None:
    """MiB that the work, prepared and done twice, adds to a process at the most; None where that cannot be told.

    The interpreter, the libraries and what any first step allocates do not count.
    """
    if not STATUS.is_file():
        return None
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(PRELOADED)
    receiver, sender = context.Pipe(duplex=False)
    process = context.Process(target=_send_peak, args=(make, sender), daemon=True)
    process.start()
    sender.close()
    try:
        return float(receiver.recv())
    except EOFError:  # the process was killed, most likely for want of memory
        return None
    finally:
        process.join()


def warm_up() -> None:
    """A tiny step, after which libraries are loaded and threads are there; its batch can be shared by eight."""
    bare_step(Case(preset="pde_plus", width=8, batch=16, size=8))()


def resident(field: str) -> float:
    """MiB of this process alone: "VmRSS" now, "VmHWM" at its peak (getrusage would count the parent's too)."""
    return int(STATUS.read_text().partition(f"{field}:")[2].split()[0]) / 1024


def _send_peak(make: Make, out: Connection) -> None:
    warm_up()
    before = resident("VmRSS")
    work = make()
    for _ in range(STEPS):
        work()
    out.send(resident("VmHWM") - before)
