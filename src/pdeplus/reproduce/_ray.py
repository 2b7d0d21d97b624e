"""Cells on Ray: each is a task with its CPUs and GPUs, and goes on elsewhere where its worker is lost."""

import os
import platform
import sys
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

from .._errors import Stopped, UserError
from .._signals import held_back
from ._live import Board, announce, sign_of
from ._local import Failure, Result, Results, attempt_alone
from .cells import Cell

RETRIES = 5
"""How often a cell whose worker or node was lost goes on elsewhere."""
REFRESH_SECONDS = 1.0
GRACE_SECONDS = 30.0
"""For running cells to save, once they are asked to stop."""


def run_on_ray(cells: Sequence[Cell], runs: Path, cpus: int, gpus: int | None) -> Results:
    """As many cells at once as the cluster has room for; ends what it began, however it is left.

    Where it is left early, cells that have not begun are cancelled, and running ones save and stop.

    Args:
        cells: in the order in which they are sent.
        runs: folder of the runs, which all workers see.
        cpus: CPUs of a cell, and its threads.
        gpus: GPUs of a cell; None for one where the cluster has any.
    """
    if not cells:
        return
    ray, connected = _connect()
    try:
        with held_back() as stop:  # Ray has put its own handler of SIGTERM in place, and is not to be left midway
            yield from _follow(ray, cells, runs, _needs(ray, cpus, gpus), stop)
    finally:
        if connected:
            ray.shutdown()


def work(cell: Cell, runs: Path, sign: Path, folder: str, command: list[str]) -> Result:
    """What a worker does: one cell, with paths and command as where the table was asked for."""
    os.chdir(folder)
    sys.argv = command  # runs and records say which command made them
    where = f"{platform.node()}, process {os.getpid()}"
    announce(sign, where)
    try:
        return attempt_alone(cell, runs, cell.name, lambda: announce(sign, f"{where}, after another process"))
    except Stopped:
        sys.exit(1)  # to Ray a lost worker: the cell goes on elsewhere


def _connect() -> tuple[Any, bool]:
    """Ray, and whether it is this call that connected to it.

    Ray itself looks for a cluster: $RAY_ADDRESS, then one that `ray start` began here; else it uses this machine alone.
    """
    try:
        ray: Any = import_module("ray")
    except ImportError as error:
        raise UserError("--on ray needs the extra: pip install 'pdeplus[ray]'") from error
    if ray.is_initialized():
        return ray, False
    try:
        ray.init(include_dashboard=False, log_to_driver=False, logging_level="error")
    except (ConnectionError, ValueError) as error:
        way_out = "start the cluster, or unset RAY_ADDRESS to use this machine alone"
        raise UserError(f"RAY_ADDRESS={os.environ.get('RAY_ADDRESS', '')}: {error}; {way_out}") from error
    return ray, True


def _needs(ray: Any, cpus: int, gpus: int | None) -> dict[str, Any]:
    """The options of a cell's task."""
    nodes: list[Mapping[str, float]] = [node["Resources"] for node in ray.nodes() if node["Alive"]]
    total = {kind: int(sum(node.get(kind, 0) for node in nodes)) for kind in ("CPU", "GPU")}
    print(f"pdeplus: Ray has {total['CPU']} CPUs and {total['GPU']} GPUs, nodes: {len(nodes)}", file=sys.stderr)
    wanted = min(total["GPU"], 1) if gpus is None else gpus
    if not any(node.get("CPU", 0) >= cpus and node.get("GPU", 0) >= wanted for node in nodes):
        warnings.warn(f"no node has {cpus} CPUs and {wanted} GPUs: cells wait until one joins", stacklevel=2)
    variables = {"OMP_NUM_THREADS": str(cpus)}
    if "PDEPLUS_DATA" in os.environ:
        variables["PDEPLUS_DATA"] = os.environ["PDEPLUS_DATA"]
    return {
        "num_cpus": cpus,
        "num_gpus": wanted,
        "max_retries": RETRIES,
        "runtime_env": {"env_vars": variables},
    }


def _follow(ray: Any, cells: Sequence[Cell], runs: Path, needs: Mapping[str, Any], stop: Callable[[], bool]) -> Results:
    """Send all cells and give each result as it comes, until all have come or `stop` says so."""
    send = ray.remote(work).options(**needs).remote
    signs = [sign_of(cell, runs, place) for place, cell in enumerate(cells)]
    for sign in signs:
        sign.unlink(missing_ok=True)  # what a driver that was killed left behind
    pending = {send(cells[n], runs, signs[n], os.getcwd(), sys.argv): n for n in range(len(cells))}
    board, results = Board(cells, runs, sys.stderr), dict[int, Result]()
    try:
        while pending and not stop():
            board.update(results)
            ready: list[Any] = ray.wait(list(pending), timeout=REFRESH_SECONDS)[0]
            for task in ready:
                place = pending.pop(task)
                results[place] = _result(ray, task, cells[place])
                yield place, results[place]
        board.update(results)
    finally:
        _stop(ray, pending)
        for sign in signs:
            sign.unlink(missing_ok=True)


def _result(ray: Any, task: Any, cell: Cell) -> Result:
    try:
        return ray.get(task)
    except ray.exceptions.RayError as error:
        lines = str(error).strip().splitlines()
        return Failure(cell=cell, reason=f"Ray gave it up ({type(error).__name__}): {lines[-1] if lines else ''}")


def _stop(ray: Any, tasks: Iterable[Any]) -> None:
    """Cancel tasks; those that run are interrupted as by Ctrl-C, and have time to save."""
    left = list(tasks)
    for task in left:
        ray.cancel(task)
    if left:
        ray.wait(left, num_returns=len(left), timeout=GRACE_SECONDS)
