"""Cells at once on this machine: the same bits as one by one, and nothing is lost by a signal or a killed process."""

import json
import os
import re
import signal
import threading
import time
from collections.abc import Callable
from contextlib import contextmanager
from dataclasses import replace
from multiprocessing.process import BaseProcess
from pathlib import Path
from types import SimpleNamespace

import psutil
import pytest
from support.forkserver import ERRORS, finish, start

from pdeplus.cli import main
from pdeplus.errors import RunFailed
from pdeplus.evaluation.records import read_records
from pdeplus.studies import jobs
from pdeplus.studies.cells import note_of
from pdeplus.studies.estimates import CellCost, format_estimates, hours_of_jobs
from pdeplus.studies.reproduction import prepare, reproduce
from pdeplus.training.run_folder import Run

pytestmark = pytest.mark.timeout(1800)
"""Against hanging, not against a machine that is busy with other work."""
FOUR = """
title = "Four cells"
outcome = "scores"
expect = "nothing"
preset = "demo"
rows = ["erm", { name = "twin", method = "erm", label = "Twin" }, { method = "augmix", stretch = 15 }, "mixup"]
[smoke]
set = ["model.name=plain_cnn", "model.width=4", "data.size=8", "train.epochs=3", "train.limit=150"]
"""
"""The first two train the same, and the third is long."""
OWN = """
title = "A network of one's own"
outcome = "scores"
expect = "nothing"
preset = "demo"
set = ["model.name=lab_of_jobs.net"]
rows = ["erm", { name = "wide", method = "erm", label = "Wide", set = ["model.wide=true"] }]
"""
TIMES = {"seconds": 0.0, "train_seconds": None, "train_core_seconds": None, "machine": "", "command": ""}
"""What two runs of the same may differ in."""


def four(folder: Path) -> Path:
    path = folder / "four.toml"
    path.write_text(FOUR)
    return path


@pytest.fixture(scope="module")
def serial(tmp_path_factory):
    """The folder of the four cells, run one by one."""
    home = tmp_path_factory.mktemp("serial")
    return reproduce(four(home), size="smoke", out=home, jobs=1).parent


def assert_same_bits(home: Path, serial: Path) -> None:
    """Tables, records and weights are those of a run one by one."""
    assert (home / "four" / "table.csv").read_bytes() == (serial / "four" / "table.csv").read_bytes()
    ours, theirs = (read_records(one / "four" / "records.jsonl") for one in (home, serial))
    assert [replace(one, **TIMES) for one in ours] == [replace(one, **TIMES) for one in theirs]
    for weights in serial.glob("runs/*/*.safetensors"):
        assert (home / weights.relative_to(serial)).read_bytes() == weights.read_bytes()


def sessions(run: Path) -> list[dict]:
    return json.loads((run / "environment.json").read_bytes())


def runs(process: psutil.Process) -> bool:
    """Whether it has not ended; one that nobody has asked for its exit code yet has."""
    try:
        return process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def wait_for(happened: Callable[[], object]) -> None:
    end = time.monotonic() + 280
    while not happened():
        assert time.monotonic() < end, "it did not happen"
        time.sleep(0.02)


def worker_in(run: Path, command: int | None = None) -> psutil.Process:
    """The process that trains into a folder, among those that a command has started."""
    found = list[psutil.Process]()

    def look() -> bool:
        for child in psutil.Process(command).children(recursive=True):
            try:
                found.extend([child] if str(run / "lock") in [file.path for file in child.open_files()] else [])
            except psutil.Error:
                continue  # it has just ended
        return bool(found)

    wait_for(look)
    return found[0]


@contextmanager
def command(home: Path):
    """`pdeplus reproduce`, with two jobs, in a process of its own."""
    process = start("reproduce", str(four(home)), "--size", "smoke", "--out", str(home), "--jobs", "2", cwd=home)
    try:
        yield process
    finally:
        process.kill()
        process.join()


def end_of(process: BaseProcess, home: Path) -> tuple[int | None, str]:
    """Exit code of a command, once it has ended, and what it said on the way."""
    process.join(280)
    return process.exitcode, (home / ERRORS).read_text()


def folders(home: Path) -> list[Path]:
    return [home / "smoke" / "runs" / cell.folder for cell in prepare(four(home), "smoke", None, [])[2]]


def test_any_number_of_jobs_gives_the_same_bits(serial, tmp_path, capsys, monkeypatch):
    reproduce(four(tmp_path), size="smoke", out=tmp_path, jobs=3)
    assert_same_bits(tmp_path / "smoke", serial)
    for run in folders(tmp_path):
        (session,) = sessions(run)  # the twins' too: it was not trained twice
        assert session["threads"] == 1
        assert session["command"] == sessions(serial / "runs" / run.name)[0]["command"]
    said = capsys.readouterr().err.splitlines()
    assert "pdeplus: 3/4 augmix seed 0: running, 0 of 45 epochs, 0.0 minutes" in said
    assert (
        sum(
            re.fullmatch(r"pdeplus: ./4 \w+ seed 0: done, (3|45) of (3|45) epochs, .* minutes", s) is not None
            for s in said
        )
        == 4
    )
    assert len(said) == 8
    monkeypatch.setattr(jobs, "Worker", lambda *about: pytest.fail("what is done needs no process"))
    reproduce(four(tmp_path), size="smoke", out=tmp_path, jobs=3)
    assert_same_bits(tmp_path / "smoke", serial)
    assert not capsys.readouterr().err


def test_a_signal_lets_running_cells_save_and_the_same_command_goes_on(serial, tmp_path):
    first, _, long, last = folders(tmp_path)
    with command(tmp_path) as process:
        wait_for(lambda: (long / "metrics.jsonl").exists() and len(Run(long).metrics) > 1)
        workers, asked = psutil.Process(process.pid).children(recursive=True), time.time()
        os.kill(process.pid, signal.SIGINT)
        code, said = end_of(process, tmp_path)
    assert code == 130, said
    assert "pdeplus: saving and stopping the current runs" in said
    assert said.splitlines()[-1].startswith("pdeplus: interrupted; the same command continues where it stopped")
    assert "Traceback" not in said
    assert workers
    wait_for(lambda: not any(map(runs, workers)))
    newest = max((long / "checkpoints").iterdir(), key=lambda one: one.name)
    assert (newest / "manifest.json").stat().st_mtime >= asked
    assert not Run(long).finished
    with command(tmp_path) as process:
        assert "| Twin |" in finish(process, tmp_path)
    assert_same_bits(tmp_path / "smoke", serial)
    assert len(sessions(long)) == 2
    assert len(sessions(first)) + len(sessions(last)) <= 3


def test_a_signal_counts_also_while_processes_start(tmp_path):
    with command(tmp_path) as process:
        wait_for(psutil.Process(process.pid).children)
        process.terminate()
        code, said = end_of(process, tmp_path)
    assert code == 0, said
    assert said.splitlines()[-1].startswith("pdeplus: stopped by SIGTERM; the same command continues")
    assert not any(Run(run).finished for run in folders(tmp_path))
    assert not list((tmp_path / "smoke").rglob("*.failed.txt"))


def test_a_second_signal_does_not_wait(tmp_path):
    long = folders(tmp_path)[2]
    with command(tmp_path) as process:
        worker = worker_in(long, process.pid)
        worker.suspend()  # it can neither save nor end
        workers = psutil.Process(process.pid).children(recursive=True)
        os.kill(process.pid, signal.SIGINT)
        wait_for(lambda: "saving and stopping the current runs" in (tmp_path / ERRORS).read_text())
        os.kill(process.pid, signal.SIGINT)
        code, _ = end_of(process, tmp_path)
    assert code == 130
    wait_for(lambda: not any(map(runs, workers)))


def test_processes_save_and_end_where_the_command_is_killed(tmp_path):
    long = folders(tmp_path)[2]
    with command(tmp_path) as process:
        wait_for(lambda: (long / "metrics.jsonl").exists())
        workers, asked = psutil.Process(process.pid).children(recursive=True), time.time()
        process.kill()
        assert workers
        assert not psutil.wait_procs(workers, timeout=280)[1]
    newest = max((long / "checkpoints").iterdir(), key=lambda one: one.name)
    assert (newest / "manifest.json").stat().st_mtime >= asked
    assert not list(long.parent.glob("*.failed.txt"))


def test_a_killed_process_is_the_failure_of_its_cell_alone(serial, tmp_path):
    path, runs = four(tmp_path), tmp_path / "smoke" / "runs"
    cell = prepare(path, "smoke", None, [])[2][2]

    def kill() -> None:
        wait_for(lambda: (runs / cell.folder / "metrics.jsonl").exists())
        worker_in(runs / cell.folder).kill()

    killer = threading.Thread(target=kill)
    killer.start()
    reason = r"its process ended \(signal 9, Killed\); where memory is short, fewer jobs help"
    with pytest.raises(RunFailed, match=f"1 of 4 runs failed, the first is augmix: {reason}"):
        reproduce(path, size="smoke", out=tmp_path, jobs=2)
    killer.join()
    states = [cell["state"] for cell in json.loads((tmp_path / "smoke" / "four" / "cells.json").read_text())]
    assert states == ["done", "done", "failed", "done"]
    assert re.fullmatch(reason, note_of(cell, runs).read_text())
    reproduce(path, size="smoke", out=tmp_path, jobs=2)
    assert_same_bits(tmp_path / "smoke", serial)
    assert not note_of(cell, runs).exists()


def test_an_error_in_a_process_keeps_its_traceback_and_what_it_prints_is_passed_on(tmp_path, monkeypatch, capsys):
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "lab_of_jobs").mkdir()
    (tmp_path / "lab_of_jobs" / "net.py").write_text(
        "import warnings\nfrom pdeplus.models.plain_cnn import build as plain\n\n"
        "def build(*, classes: int, channels: int, width: int = 4, wide: bool = False):\n"
        "    print('building', flush=True)\n    warnings.warn('a\\n warm day')\n"
        "    if wide:\n        raise ArithmeticError('too wide')\n"
        "    return plain(classes=classes, channels=channels, width=width)\n"
    )
    path = tmp_path / "own.toml"
    path.write_text(OWN)
    with pytest.raises(RunFailed, match="1 of 2 runs failed, the first is wide: too wide"):
        reproduce(path, size="smoke", out=tmp_path, jobs=1)
    wide = prepare(path, "smoke", None, [])[2][1]
    note = note_of(wide, tmp_path / "smoke" / "runs").read_text()
    assert note.startswith("Traceback")
    assert note.endswith("ArithmeticError: too wide\n")
    said = capsys.readouterr().err
    assert "pdeplus: 1/2 erm seed 0: building\n" in said
    assert "pdeplus: 1/2 erm seed 0: a warm day\n" in said
    assert "pdeplus: 2/2 wide seed 0: failed: too wide, 0 of 1 epochs" in said


@pytest.mark.parametrize(
    ("words", "answer"),
    [
        (["--jobs", "0"], "jobs=0 must be at least 1"),
        (["--jobs", "-2", "--dry-run"], "jobs=-2 must be at least 1"),
        (["--jobs", "many"], "invalid int value: 'many'"),
        (["--jobs", "3"], "jobs=3 need 3 GB of memory or more, 2.5 GB are available: 2 fit"),
        (["--jobs", "2", "--on", "ray"], "--jobs 2 is for runs on this machine: leave it out with --on ray"),
        (["--jobs", "2", "--on", "slurm"], "leave it out with --on slurm"),
        (["--jobs", "2", "--on", "none"], "leave it out with --on none"),
        (["--jobs", "2", "--cell", "1"], "--cell N does one run here: leave"),
    ],
)
def test_wrong_input_is_one_line(tmp_path, capsys, monkeypatch, words, answer):
    monkeypatch.setattr(jobs, "available_memory", lambda: 2_500_000_000)
    with pytest.raises(SystemExit) as left:
        main(["reproduce", str(four(tmp_path)), "--size", "smoke", "--out", str(tmp_path / "out"), *words])
    err = capsys.readouterr().err
    assert left.value.code == 2
    assert answer in err
    assert err.count("\n") == 1
    assert not (tmp_path / "out").exists()


def test_by_default_each_core_has_a_cell_as_far_as_memory_goes(monkeypatch):
    monkeypatch.setattr(jobs.torch.cuda, "is_available", lambda: False)
    monkeypatch.setattr(jobs, "cores", lambda: 8)
    for gigabytes, expected in ((100, 8), (5.9, 5), (0.3, 1)):
        monkeypatch.setattr(jobs, "available_memory", lambda memory=gigabytes: int(memory * 1e9))
        assert jobs.choose_jobs(None) == expected
    assert jobs.choose_jobs(1) == 1
    monkeypatch.setattr(jobs.torch.cuda, "is_available", lambda: True)
    assert jobs.choose_jobs(None) == 1


def test_cores_and_memory_are_the_systems():
    assert 1 <= jobs.cores() <= (os.cpu_count() or 1)
    assert 0 < jobs.available_memory() <= psutil.virtual_memory().total


def test_a_dry_run_tells_hours_of_all_cells_and_with_jobs(tmp_path):
    cell = prepare(four(tmp_path), "smoke", None, [])[2][0]
    costs = [CellCost(cell=cell, state="to do", hours=hours) for hours in (3.0, 1.0, 2.0, 2.0)]
    assert [hours_of_jobs(costs, n) for n in (1, 2, 3, 4, 9)] == [8.0, 5.0, 3.0, 3.0, 3.0]
    assert "4 of 4 runs to do: 8.0 hours on this machine, 5.0 with 2 at once, 0.00 GB" in format_estimates(costs, 2)


def test_the_pace_of_a_cell_in_words(monkeypatch):
    told, clock = list[str](), SimpleNamespace(now=0.0)
    monkeypatch.setattr(jobs, "time", SimpleNamespace(monotonic=lambda: clock.now))
    pace, progress = jobs.Pace(told.append), SimpleNamespace(images=640, seconds=2.0)
    for clock.now, step in ((1.0, 19), (1.25, 20), (1.5, 22), (2.0, 24)):  # a resumed run begins in the middle
        pace.training(step, 100, progress, {})
    for clock.now in (3.0, 4.0, 5.0, 6.0, 7.0):  # a test of 75 images, then the same with more noise
        pace.testing(25, 75)
    assert told == [
        "training 21 %, 320 images/s, 00:19 left",
        "training 25 %, 320 images/s, 00:15 left",
        "testing 67 %, 25 images/s, 00:01 left",
        "testing 100 %, 25 images/s, 00:00 left",
        "testing 67 %, 25 images/s, 00:01 left",
    ]
