"""Cells on Slurm: one script that submits itself as an array, a job for each cell, and then a job for the outcome."""

import math
import shlex
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from .._lib.files import make_folder, write_file
from ..errors import UserError
from .cells import known_cells
from .estimates import CellCost, estimate
from .experiment import SizeName
from .reproduction import check_needs, prepare

FACTOR = 2.0
"""Time limit of a job over what its cell is estimated to take: the cluster's machines may be slower than this one."""
START_MINUTES = 10
"""Added to that, for reading data and the like."""
NOTICE_SECONDS = 60
"""Between the signal and the time limit: for a cell to save."""
BODY = """
if [ -z "$SLURM_ARRAY_TASK_ID" ]; then  # not in a job: submit
    cells=$(sbatch --parsable "$0") || exit
    sbatch --dependency="afterany:${{cells%%;*}}" {last}
    exit
fi
export OMP_NUM_THREADS={cpus}
again=
trap 'signalled=yes; kill -TERM "$!"' TERM  # cancelled or pre-empted; Slurm itself requeues what it pre-empts
trap 'signalled=yes; again=yes; kill -TERM "$!"' USR1  # the time limit is near
{command} --cell "$SLURM_ARRAY_TASK_ID" &
while signalled=; wait "$!"; code=$?; [ "$signalled" ]; do :; done  # a signal ends wait, but not yet the cell
[ -z "$again" ] || scontrol requeue "${{SLURM_ARRAY_JOB_ID}}_$SLURM_ARRAY_TASK_ID"
exit "$code"
"""


def submit(
    name: str | Path,
    *,
    size: SizeName = "small",
    seeds: int | None = None,
    out: str | Path = "reproduced",
    overrides: Sequence[str] = (),
    cpus: int | None = None,
    gpus: int | None = None,
    records: str | Path | None = None,
    dry_run: bool = False,
) -> str:
    """Write the script into the outcome's folder and submit it; returns what sbatch answers, or how to submit.

    Arguments are those of `reproduce`, but that `gpus` is 0 unless it is given. A dry run writes nothing and returns
    the script instead.
    """
    check_needs(cpus, gpus)
    experiment, _, cells = prepare(name, size, seeds, overrides)
    if not cells:
        raise UserError(f"experiment {experiment.name} trains nothing: leave out --on slurm")
    home = Path(out) / size
    given = ["--seeds", str(seeds)] if seeds is not None else []
    given += ["--records", str(records)] if records is not None else []
    words = ["reproduce", str(name), *overrides, "--size", size, "--out", str(out), *given]
    text = script_of(
        command=[sys.executable, "-m", "pdeplus", *words],
        name=experiment.name,
        cells=len(cells),
        limit=time_limit(estimate(cells, home / "runs", known_cells(cells, home / "runs", records))),
        cpus=cpus or 1,
        gpus=gpus or 0,
        start=Path.cwd(),
        logs=(home / experiment.name / "slurm").absolute(),
    )
    return text if dry_run else _submit(text, home / experiment.name / "slurm")


def script_of(
    *, command: Sequence[str], name: str, cells: int, limit: str, cpus: int, gpus: int, start: Path, logs: Path
) -> str:
    """The script: `bash` submits it, and within a job of the array it runs that job's cell.

    `command` runs all cells in order, and with "--cell N" one; `limit` is the line about the time limit; jobs run in
    the folder `start` and write their output into the folder `logs`.
    """
    shared = [f"--job-name={name}", f"--cpus-per-task={cpus}", f"--chdir={start}", "--open-mode=append"]
    array = [f"--array=1-{cells}", *([f"--gres=gpu:{gpus}"] if gpus else []), "--requeue"]
    array += [f"--signal=B:USR1@{NOTICE_SECONDS}", f"--output={logs}/%a.log"]
    last = [*shared, f"--output={logs}/outcome.log", "--wrap", shlex.join([*command, "--on", "none"])]
    head = ["#!/bin/bash", f"# {name}: a job for each of {cells} runs, then one that writes the outcome."]
    head += ["# Submit with: bash THIS_FILE; partition, account and the like: SBATCH_PARTITION=… SBATCH_ACCOUNT=…"]
    lines = [*head, *(f"#SBATCH {shlex.quote(option)}" for option in (*shared, *array)), limit]
    return "\n".join(lines) + BODY.format(last=shlex.join(last), cpus=cpus, command=shlex.join(command))


def time_limit(estimates: Sequence[CellCost]) -> str:
    """The line that says how long the longest cell may take; a comment where that is unknown."""
    unknown = next((one.reason for one in estimates if one.state == "unknown"), None)
    if unknown is not None:
        return f"# no --time, which stays the cluster's own: {' '.join(unknown.split())}"
    hours = max((one.hours for one in estimates), default=0.0)
    return f"#SBATCH --time={math.ceil(hours * 60 * FACTOR) + START_MINUTES}"


def _submit(text: str, folder: Path) -> str:
    path = folder / "submit.sh"
    make_folder(folder)
    write_file(path, text.encode())
    if shutil.which("sbatch") is None:
        return f"there is no sbatch here; where there is, submit with: bash {shlex.quote(str(path))}"
    try:
        done = subprocess.run(["bash", str(path)], capture_output=True, text=True, check=True)
    except subprocess.CalledProcessError as error:
        reason = " ".join(f"{error.stderr}".split()) or f"exit code {error.returncode}"
        raise UserError(f"{path} was not submitted: {reason}") from error
    return done.stdout.strip()
