"""Cells on a Ray cluster: one task for each, and a file beside the runs that says where it runs."""

import json
import os
import platform
import sys
import warnings
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from .._lib.files import make_folder, write_file
from .._lib.long_work import held_back, tell
from .._lib.registry import require
from ..errors import Stopped, UserError
from .board import Board
from .cells import Cell, Failure, Result, Results, attempt_alone

RETRIES = 5
"""How often a cell goes on elsewhere after its worker or node was lost."""
REFRESH_SECONDS = 1.0
GRACE_SECONDS = 30.0
"""How long running cells have to save, once they are asked to stop."""


def run_on_ray(cells: Sequence[Cell], runs: Path, cpus: int, gpus: int | None) -> Results:
    """As many cells at once as the cluster has room for; ends what it began, however it is left.

    Where it is left early, cells that have not begun are cancelled, and running ones save and stop. All workers see the
    folder `runs`; a cell has as many threads as CPUs, and with `gpus` None one GPU where the cluster has any.
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
    sys.argv = command  # runs and records say which command wrote them
    where = f"{platform.node()}, process {os.getpid()}"
    announce(sign, where)
    try:
        return attempt_alone(cell, runs, lambda: announce(sign, f"{where}, after another process"))
    except Stopped:
        sys.exit(1)  # to Ray a lost worker: the cell goes on elsewhere


def _connect() -> tuple[Any, bool]:
    """Ray, and whether it is this call that connected to it.

    Ray itself looks for a cluster: $RAY_ADDRESS, then one that `ray start` began here; else it uses this machine alone.
    """
    (ray,) = require("ray", purpose="--on ray", extra="ray")
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
    tell(f"pdeplus: Ray has {total['CPU']} CPUs and {total['GPU']} GPUs, nodes: {len(nodes)}")
    wanted = min(total["GPU"], 1) if gpus is None else gpus
    if not any(node.get("CPU", 0) >= cpus and node.get("GPU", 0) >= wanted for node in nodes):
        warnings.warn(f"no node has {cpus} CPUs and {wanted} GPUs: runs wait until one joins", stacklevel=2)
    variables = {"OMP_NUM_THREADS": str(cpus)}
    if "PDEPLUS_DATA" in os.environ:
        variables["PDEPLUS_DATA"] = os.environ["PDEPLUS_DATA"]
    return {"num_cpus": cpus, "num_gpus": wanted, "max_retries": RETRIES, "runtime_env": {"env_vars": variables}}


def _follow(ray: Any, cells: Sequence[Cell], runs: Path, needs: Mapping[str, Any], stop: Callable[[], bool]) -> Results:
    """Send all cells and give each result as it comes, until all have come or `stop` says so."""
    send = ray.remote(work).options(**needs).remote
    signs = [sign_of(cell, runs, index) for index, cell in enumerate(cells)]
    for sign in signs:
        sign.unlink(missing_ok=True)  # what a driver that was killed left behind
    pending = {send(cells[n], runs, signs[n], os.getcwd(), sys.argv): n for n in range(len(cells))}
    board, results = Board(cells, runs, sys.stderr), dict[int, Result]()
    try:
        while pending and not stop():
            board.update(results, {n: where for n, sign in enumerate(signs) if (where := where_is(sign))})
            ready: list[Any] = ray.wait(list(pending), timeout=REFRESH_SECONDS)[0]
            for task in ready:
                index = pending.pop(task)
                results[index] = _result(ray, task, cells[index])
                yield index, results[index]
        board.update(results, {})
    finally:
        for task in pending:
            ray.cancel(task)  # one that runs is interrupted as by Ctrl-C, and has time to save
        if pending:
            ray.wait(list(pending), num_returns=len(pending), timeout=GRACE_SECONDS)
        for sign in signs:
            sign.unlink(missing_ok=True)


def _result(ray: Any, task: Any, cell: Cell) -> Result:
    try:
        return ray.get(task)
    except ray.exceptions.RayError as error:
        lines = str(error).strip().splitlines()
        return Failure(cell=cell, reason=f"Ray gave it up ({type(error).__name__}): {lines[-1] if lines else ''}")


def sign_of(cell: Cell, runs: Path, index: int) -> Path:
    """The file that says where a cell runs, while it does; two that train the same have each its own."""
    return runs / f"{cell.folder}.{index + 1}.running.json"


def announce(sign: Path, where: str) -> None:
    """Write that file; a process that is killed leaves it to the next one."""
    make_folder(sign.parent)
    write_file(sign, json.dumps(where).encode())


def where_is(sign: Path) -> str:
    """What that file says; empty where there is none."""
    with suppress(OSError, ValueError, RecursionError):
        return str(json.loads(sign.read_bytes()))
    return ""
