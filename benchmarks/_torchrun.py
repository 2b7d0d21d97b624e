"""The training loop in several processes on this machine, each on one thread, started by torchrun.

A process runs `python -m pdeplus.bench._torchrun CASE ROUNDS`; the first one prints what it found.
"""

import json
import os
import re
import subprocess
import sys
from dataclasses import asdict
from functools import partial

from pdeplus.errors import RunFailed

from ._cases import Case, epoch, open_case
from ._memory import STATUS, resident, warm_up
from ._timing import take_turns

MOST_SECONDS = 600
STEPS = 3


def step_of_processes(world: int, case: Case, rounds: int) -> tuple[float, float | None]:
    """Seconds of a step of the real loop in so many processes, and the MiB that it adds to the first.

    The batch is that of all processes together. Where torchrun fails, `RunFailed` says why.
    """
    launcher = [sys.executable, "-m", "torch.distributed.run", "--standalone", f"--nproc_per_node={world}"]
    command = [*launcher, "-m", __name__, json.dumps(asdict(case)), str(rounds)]
    alone = os.environ | {"OMP_NUM_THREADS": "1"}
    try:
        done = subprocess.run(command, capture_output=True, text=True, env=alone, timeout=MOST_SECONDS)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise RunFailed(f"torchrun: {error}") from error
    if done.returncode:
        reasons = re.findall(r"\w+(?:Error|Failed|Exception): .+", done.stderr)
        raise RunFailed(f"torchrun ended with {done.returncode}: {(reasons or ['no reason was given'])[0]}")
    seconds, added = json.loads(done.stdout)
    return float(seconds), None if added is None else float(added)


def main(arguments: list[str]) -> None:
    """Measure as one of the processes."""
    given = json.loads(arguments[0])
    case = Case(**given | {"settings": tuple(given["settings"])})
    warm_up()
    before = resident("VmRSS") if STATUS.is_file() else None
    session = open_case(case, bare=False, batches=STEPS)
    seconds = take_turns({"epoch": partial(epoch, session)}, int(arguments[1]))["epoch"] / STEPS
    if session.processes.main:
        print(json.dumps([seconds, None if before is None else resident("VmHWM") - before]))


if __name__ == "__main__":
    main(sys.argv[1:])
