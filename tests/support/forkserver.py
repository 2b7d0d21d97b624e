"""Commands in processes of their own, forked from one that has imported everything: they start in milliseconds."""

import multiprocessing as mp
import os
import runpy
import sys
from collections.abc import Callable
from multiprocessing.process import BaseProcess
from pathlib import Path

from pdeplus.cli import main

KIND = "forkserver" if "forkserver" in mp.get_all_start_methods() else "spawn"
CONTEXT = mp.get_context(KIND)
CONTEXT.set_forkserver_preload(
    ["sklearn.datasets", "torch._dynamo", "pdeplus.evaluation.loop", "pdeplus.studies.reproduction"]
)
SHOWN = "shown.txt"
"""What a command prints, in the folder it runs in."""
ERRORS = "errors.txt"


def start(*arguments: str, cwd: Path) -> BaseProcess:
    """`pdeplus` with these arguments in a folder; it does not outlive the tests."""
    return _started(cwd, main, arguments)


def start_script(path: Path, *arguments: str, cwd: Path) -> BaseProcess:
    """`python` with a file and these arguments in a folder."""
    return _started(cwd, _script, path, arguments)


def finish(process: BaseProcess, cwd: Path, seconds: float = 600) -> str:
    """What it printed; its end must come in time and without an error."""
    process.join(seconds)
    assert process.exitcode == 0, (cwd / ERRORS).read_text()
    return (cwd / SHOWN).read_text()


def _started(cwd: Path, work: Callable[..., object], *arguments: object) -> BaseProcess:
    process = CONTEXT.Process(target=_run, args=(cwd, work, *arguments), daemon=True)
    process.start()
    return process


def _run(cwd: Path, work: Callable[..., object], *arguments: object) -> None:
    os.chdir(cwd)
    sys.stdout, sys.stderr = (Path(name).open("w", buffering=1) for name in (SHOWN, ERRORS))  # noqa: SIM115
    work(*arguments)


def _script(path: Path, arguments: tuple[str, ...]) -> None:
    sys.argv, sys.path[0] = [str(path), *arguments], str(path.parent)
    runpy.run_path(str(path), run_name="__main__")
