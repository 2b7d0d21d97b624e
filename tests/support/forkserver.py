"""Commands in processes of their own, forked from one that has imported everything: they start in milliseconds."""

import multiprocessing as mp
import os
import sys
from multiprocessing.process import BaseProcess
from pathlib import Path

from pdeplus.cli import main

KIND = "forkserver" if "forkserver" in mp.get_all_start_methods() else "spawn"
CONTEXT = mp.get_context(KIND)
CONTEXT.set_forkserver_preload(
    ["sklearn.datasets", "torch._dynamo", "pdeplus.evaluation.loop", "pdeplus.training.run_folder"]
)
SHOWN = "shown.txt"
"""What a command prints, in the folder it runs in."""


def start(*arguments: str, cwd: Path) -> BaseProcess:
    """`pdeplus` with these arguments in a folder; it does not outlive the tests."""
    process = CONTEXT.Process(target=_run, args=(arguments, cwd), daemon=True)
    process.start()
    return process


def finish(process: BaseProcess, cwd: Path, seconds: float = 600) -> None:
    """Wait for its end, which must come in time and without an error."""
    process.join(seconds)
    assert process.exitcode == 0, (cwd / SHOWN).read_text()


def _run(arguments: tuple[str, ...], cwd: Path) -> None:
    os.chdir(cwd)
    with Path(SHOWN).open("w") as sys.stdout:
        sys.stderr = sys.stdout
        main(arguments)
