"""Versions, hardware and command of a session, and the file in a run folder that keeps them."""

import contextlib
import json
import os
import platform
import re
import subprocess
import sys
import warnings
from collections.abc import Generator
from pathlib import Path
from typing import Any, cast

import torch
from torch import distributed as dist

from .. import __version__
from .files import write_file

FILE = "environment.json"


def environment() -> dict[str, Any]:
    """What a result may depend on besides its config: versions, hardware, command (of whole paths the last name)."""
    program, commit = Path(sys.argv[0]).name, None
    command = ["git", "-C", str(Path(__file__).parent), "rev-parse", "--short=12", "HEAD"]
    with contextlib.suppress(OSError, subprocess.SubprocessError):
        commit = subprocess.run(command, capture_output=True, text=True, check=True, timeout=5).stdout.strip()
    program = "pdeplus" if program in ("pdeplus", "__main__.py") else f"python {program}".rstrip()
    return {
        "pdeplus": __version__,
        "commit": commit,
        "python": platform.python_version(),
        "torch": torch.__version__,
        "system": f"{platform.system()} {platform.machine()}",
        "devices": torch.cuda.device_count() or "cpu",
        "cores": os.cpu_count(),
        "threads": torch.get_num_threads(),
        "processes": dist.get_world_size() if dist.is_available() and dist.is_initialized() else 1,
        "command": " ".join([program, *(re.sub(r"(^|=)/.*/(?=.)", r"\1", word) for word in sys.argv[1:])]),
    }


def stamp(folder: Path) -> None:
    """Add this session's environment; warn where it differs so that resume may not be exact."""
    path, now = folder / FILE, environment()
    sessions = read_sessions(path)
    for key in ("torch", "threads", "processes", "devices", "system"):
        began = sessions[0].get(key, now[key]) if sessions else now[key]
        if began != now[key]:
            text = f"this session has {key} {now[key]}, the run began with {began}: bits may differ"
            warnings.warn(text, stacklevel=2)
    write_file(path, json.dumps([*sessions, now], indent=1).encode())


def read_sessions(path: Path) -> list[dict[str, Any]]:
    """The sessions in an environment.json; where it is damaged none, and a warning: no result depends on them."""
    if not path.exists():
        return []
    with contextlib.suppress(ValueError, RecursionError):
        sessions = json.loads(path.read_bytes())
        if isinstance(sessions, list) and all(isinstance(one, dict) for one in cast(list[Any], sessions)):
            return cast(list[dict[str, Any]], sessions)
    warnings.warn(f"{path} is damaged: its information on earlier sessions is ignored", stacklevel=3)
    return []


@contextlib.contextmanager
def one_thread() -> Generator[None]:
    """Run torch on one thread; the number that was set comes back.

    With small arrays threads wait for each other longer than they work, ten times longer on a busy machine.
    """
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def written_by(folder: Path) -> str:
    """The version that began a run, as far as its environment.json tells."""
    with contextlib.suppress(OSError, ValueError, LookupError, TypeError, RecursionError):
        return str(json.loads((folder / FILE).read_bytes())[0]["pdeplus"])
    return "of an unknown version"
