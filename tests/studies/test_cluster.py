"""Cells on Ray and Slurm: every cell ends, none is trained twice, and results are those of a run one by one."""

import io
import json
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from dataclasses import replace
from pathlib import Path

import psutil
import pytest

from pdeplus._lib.files import locked
from pdeplus.cli import main
from pdeplus.errors import RunFailed, UserError
from pdeplus.evaluation.records import read_records
from pdeplus.studies.cells import attempt_alone, in_use
from pdeplus.studies.ray import sign_of, where_is
from pdeplus.studies.reproduction import prepare, reproduce
from pdeplus.training.run_folder import Run

pytestmark = [pytest.mark.timeout(1800), pytest.mark.usefixtures("cells_here")]
"""Against hanging, not against a machine that is busy with other work."""
FOUR = """
title = "Four cells"
outcome = "scores"
expect = "nothing"
preset = "demo"
rows = ["erm", {{ name = "twin", method = "erm", label = "Twin" }}, {{ method = "augmix", stretch = 4 }}, "mixup"{more}]
[smoke]
set = ["model.name=plain_cnn", "train.epochs={epochs}", "train.limit=150", "train.checkpoint_seconds=1"]
"""
TIMES = {"seconds": 0.0, "train_seconds": None, "train_core_seconds": None, "machine": "", "command": ""}
"""What two runs of the same may differ in."""


def four(folder: Path, epochs: int = 4, more: str = "") -> Path:
    """A file of four cells, of which the first two train the same and the third is long, and of more."""
    path = folder / "four.toml"
    path.write_text(FOUR.format(epochs=epochs, more=more))
    return path


@pytest.fixture(scope="module")
def serial(tmp_path_factory):
    """The folder of the four cells, run one by one."""
    home = tmp_path_factory.mktemp("serial")
    reproduce(four(home), size="smoke", out=home, jobs=1)
    return home / "smoke"


@pytest.fixture(scope="module")
def ray():
    """A Ray of two workers on this machine; no process of it stays behind."""
    ray = pytest.importorskip("ray")
    handler = signal.getsignal(signal.SIGTERM)
    before = set(psutil.Process().children(recursive=True))
    ray.init(address="local", num_cpus=2, include_dashboard=False, log_to_driver=False, object_store_memory=80 * 2**20)
    started = set(psutil.Process().children(recursive=True)) - before
    yield ray
    ray.shutdown()
    signal.signal(signal.SIGTERM, handler)
    _, alive = psutil.wait_procs(started, timeout=300)
    assert started
    assert not alive


def wait_for(happened, seconds=600):
    end = time.monotonic() + seconds
    while not happened():
        assert time.monotonic() < end, "it did not happen"
        time.sleep(0.02)


def lines(path: Path) -> list[str]:
    return path.read_text().splitlines() if path.exists() else []


def kill_at_work(cell, runs: Path, shown: io.StringIO, notes: dict) -> None:
    """SIGKILL the worker that trains a cell, once the first epoch is in a checkpoint and the worker was shown."""
    wait_for(lambda: len(lines(runs / cell.folder / "metrics.jsonl")) >= 2)
    notes["worker"] = int(where_is(sign_of(cell, runs, 2)).rpartition(" ")[2])
    os.kill(notes["worker"], signal.SIGSTOP)  # it does not finish while the table is awaited
    notes["first epoch"] = lines(runs / cell.folder / "metrics.jsonl")[0]
    notes["finished"] = (runs / cell.folder / "model.safetensors").exists()
    wait_for(lambda: f"{os.uname().nodename}, process {notes['worker']}" in shown.getvalue())
    os.kill(notes["worker"], signal.SIGKILL)


def test_a_worker_killed_at_work_changes_nothing(ray, serial, tmp_path, monkeypatch):
    path, runs, shown, notes = four(tmp_path), tmp_path / "smoke" / "runs", io.StringIO(), {}
    monkeypatch.setattr("sys.stderr", shown)
    cells = prepare(path, "smoke", None, [])[2]
    killer = threading.Thread(target=kill_at_work, args=(cells[2], runs, shown, notes))
    killer.start()
    folder = reproduce(path, size="smoke", out=tmp_path, on="ray")
    killer.join()
    assert not notes["finished"], "the worker had nothing left to do"
    assert {cell["state"] for cell in json.loads((folder / "cells.json").read_text())} == {"done"}
    assert (folder / "table.csv").read_bytes() == (serial / "four" / "table.csv").read_bytes()
    ours, theirs = (read_records(home / "records.jsonl") for home in (folder, serial / "four"))
    assert [replace(one, **TIMES) for one in ours] == [replace(one, **TIMES) for one in theirs]
    for cell in cells:
        run = runs / cell.folder
        assert (run / "model.safetensors").read_bytes() == (
            serial / "runs" / cell.folder / "model.safetensors"
        ).read_bytes()
        assert len(Run(run).metrics) == cell.config.train.epochs
        sessions = json.loads((run / "environment.json").read_text())
        assert len(sessions) == (2 if cell is cells[2] else 1), "trained twice"
        assert not any("default_worker" in session["command"] for session in sessions)
        assert {session["threads"] for session in sessions} == {1}
    assert lines(runs / cells[2].folder / "metrics.jsonl")[0] == notes["first epoch"]  # with its seconds: not repeated
    assert not list(runs.glob("*.json")) + list(runs.glob("*.txt"))
    assert f"3/4 augmix seed 0: running on {os.uname().nodename}, process {notes['worker']}" in shown.getvalue()
    assert "4/4 mixup seed 0: done, 4 of 4 epochs" in shown.getvalue()


def test_a_cell_that_fails_on_ray_loses_no_other(ray, serial, tmp_path):
    path = four(tmp_path, more=', "gaussian"')
    runs, cells = tmp_path / "smoke" / "runs", prepare(path, "smoke", None, [])[2]
    shutil.copytree(serial / "runs", runs)  # the others are done, and kept
    (runs / cells[4].folder).write_text("in the way")
    with pytest.raises(RunFailed, match="1 of 5 runs failed, the first is gaussian: .*already holds files"):
        reproduce(path, size="smoke", out=tmp_path, on="ray")
    states = [cell["state"] for cell in json.loads((tmp_path / "smoke" / "four" / "cells.json").read_text())]
    assert states == ["done"] * 4 + ["failed"]
    assert "Traceback" in (runs / f"{cells[4].folder}.failed.txt").read_text()
    for cell in cells[:4]:
        assert len(json.loads((runs / cell.folder / "environment.json").read_text())) == 1


def test_a_signal_lets_running_cells_save_and_begins_no_other(ray, tmp_path):
    path, runs = four(tmp_path, epochs=1000), tmp_path / "smoke" / "runs"
    first, *_, third, fourth = (runs / cell.folder for cell in prepare(path, "smoke", None, [])[2])
    variables = os.environ | {"RAY_ADDRESS": ray.get_runtime_context().gcs_address}
    command = [sys.executable, "-m", "pdeplus", "reproduce", str(path), "--size", "smoke", "--on", "ray"]
    with subprocess.Popen([*command, "--out", str(tmp_path)], stderr=subprocess.PIPE, env=variables) as driver:
        wait_for(lambda: lines(first / "metrics.jsonl"))
        asked = time.time()
        driver.terminate()
        _, err = driver.communicate(timeout=600)
    assert driver.returncode == 0, err.decode()
    assert b"the same command continues where it stopped" in err.splitlines()[-1]
    wait_for(lambda: not in_use(first))
    newest = max((first / "checkpoints").iterdir(), key=lambda one: one.name)
    assert (newest / "manifest.json").stat().st_mtime >= asked
    assert not Run(first).finished
    assert not third.exists()
    assert not fourth.exists()
    assert not list(runs.glob("*.json"))


def test_ray_is_asked_for_in_one_line_where_it_is_missing(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(UserError, match=r"^--on ray needs ray: pip install 'pdeplus\[ray\]'$"):
        reproduce(four(tmp_path), size="smoke", out=tmp_path, on="ray")


def test_a_cell_waits_for_the_process_that_trains_it(serial):
    cell = prepare(serial.parent / "four.toml", "smoke", None, [])[2][2]
    folder, released = serial / "runs" / cell.folder, list[bool]()
    inside, leave = threading.Event(), threading.Event()

    def hold():
        with locked(folder):
            inside.set()
            leave.wait(600)

    holder = threading.Thread(target=hold)
    holder.start()
    assert inside.wait(600)
    assert in_use(folder)

    def release():
        released.append(in_use(folder))
        leave.set()

    result = attempt_alone(cell, serial / "runs", release)
    holder.join()
    assert released == [True]
    assert result.run.path == folder
    assert not in_use(folder)


def test_one_cell_alone_and_the_outcome_of_what_is_done(serial, tmp_path, capsys):
    path, words = four(tmp_path), ["--size", "smoke", "--out", str(tmp_path / "out")]
    runs = tmp_path / "out" / "smoke" / "runs"
    cells = prepare(path, "smoke", None, [])[2]
    with pytest.raises(SystemExit) as left:
        main(["reproduce", str(path), *words, "--cell", "4"])
    assert left.value.code == 0
    assert capsys.readouterr().out.strip() == str(runs / cells[3].folder)
    assert [one.name for one in runs.iterdir()] == [cells[3].folder]
    assert not (tmp_path / "out" / "smoke" / "four").exists()
    (runs / f"{cells[0].folder}.failed.txt").write_text("Traceback\nValueError: too hot")
    with pytest.raises(SystemExit) as left:
        main(["reproduce", str(path), *words, "--on", "none"])
    assert left.value.code == 1
    err = capsys.readouterr().err
    assert "3 of 4 runs are not done, the first is erm: not trained: ValueError: too hot" in err
    text = (tmp_path / "out" / "smoke" / "four" / "result.md").read_text()
    assert "| Mixup |" in text
    assert "- augmix: not trained yet" in text
    assert not (runs / cells[2].folder).exists()


@pytest.mark.parametrize(
    ("words", "answer"),
    [
        (["--cell", "5"], "cell=5 is not among the 4 runs"),
        (["--cell", "0"], "cell=0 is not among the 4 runs"),
        (["--cell", "1", "--on", "ray"], "leave out --on, --cpus, --gpus, --jobs and --dry-run"),
        (["--on", "ray", "--cpus", "0"], "cpus=0 must be at least 1"),
        (["--on", "slurm", "--gpus", "-1"], "gpus=-1 must be at least 0"),
        (["--cpus", "2"], "leave them out with on='local'"),
        (["--on", "moon"], "invalid choice"),
    ],
)
def test_wrong_input_is_one_line(tmp_path, capsys, words, answer):
    with pytest.raises(SystemExit) as left:
        main(["reproduce", str(four(tmp_path)), "--size", "smoke", "--out", str(tmp_path / "out"), *words])
    err = capsys.readouterr().err
    assert left.value.code == 2
    assert answer in err
    assert err.count("\n") == 1
    assert not (tmp_path / "out").exists()
