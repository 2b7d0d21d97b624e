"""The command line, called in a process of its own or in this one."""

import subprocess
import sys

import pytest

from pdeplus.cli import main


def call(*arguments: str, cwd=None) -> subprocess.CompletedProcess:
    """A command in a process of its own."""
    command = [sys.executable, "-m", "pdeplus", *arguments]
    return subprocess.run(command, capture_output=True, text=True, cwd=cwd, timeout=280)


def answer(capsys, *arguments: str) -> tuple[int, str, str]:
    """Exit code, output and errors of a command run in this process."""
    with pytest.raises(SystemExit) as left:
        main(arguments)
    shown = capsys.readouterr()
    return int(left.value.code or 0), shown.out, shown.err
