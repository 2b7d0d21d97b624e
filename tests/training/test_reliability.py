"""Under load: signals leave resumable runs, folders have one trainer, many runs leak nothing."""

import gc
import os
import shutil
import signal
import sys
import threading
import time
from contextlib import contextmanager
from pathlib import Path

import psutil
import pytest
from support.forkserver import ERRORS, start

import pdeplus as pp
from pdeplus._lib.files import locked
from pdeplus._lib.long_work import held_back
from pdeplus.errors import Stopped, UserError
from pdeplus.training.run_folder import Run, resume, train

SMALL = ["method.name=erm", "model.width=4", "train.limit=120", "train.batch_size=20", "train.epochs=2"]
LONG = ["method.name=erm", "model.width=4", "train.limit=400", "train.batch_size=20", "train.epochs=500"]


def wait_for(path: Path, seconds: float = 60) -> None:
    end = time.monotonic() + seconds
    while not path.exists():
        assert time.monotonic() < end, f"{path.name} did not appear"
        time.sleep(0.05)


@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 0), (signal.SIGINT, 130)])
def test_a_signal_leaves_a_checkpoint_of_the_very_step(tmp_path, number, code):
    folder, process = tmp_path / "run", start("train", "demo", *LONG, "--out", "run", cwd=tmp_path)
    wait_for(folder / "metrics.jsonl")
    time.sleep(0.3)
    asked = time.monotonic()
    os.kill(process.pid, number)
    process.join(30)
    assert process.exitcode == code
    assert time.monotonic() - asked < 10
    err = (tmp_path / ERRORS).read_text()
    assert "--resume" in err
    assert len([line for line in err.splitlines() if not line.startswith("training: epoch")]) == 1
    newest = max((folder / "checkpoints").iterdir(), key=lambda path: path.name)
    assert (newest / "manifest.json").stat().st_mtime >= time.time() - (time.monotonic() - asked) - 0.5
    assert not Run.load(folder).finished


def test_a_stopped_run_ends_as_if_it_had_not_been(tmp_path):
    config = pp.load_config("demo", SMALL)

    def interrupt(step, steps, progress, logs):
        if step == 3:
            signal.raise_signal(signal.SIGTERM)

    with pytest.raises(Stopped):
        train(config, tmp_path / "stopped", watch=interrupt)
    steps = [path.name for path in (tmp_path / "stopped" / "checkpoints").iterdir()]
    assert steps == ["000000004"], "the step that was under way is in the checkpoint"
    resume(tmp_path / "stopped")
    train(config, tmp_path / "straight")
    first, second = ((tmp_path / name / "model.safetensors").read_bytes() for name in ("stopped", "straight"))
    assert first == second


def test_a_second_signal_does_not_wait():
    def two_signals():
        with held_back() as asked:
            signal.raise_signal(signal.SIGTERM)
            assert asked()
            signal.raise_signal(signal.SIGINT)
            pytest.fail("the second signal waited")

    with pytest.raises(KeyboardInterrupt):
        two_signals()


def test_handlers_are_put_back(tmp_path):
    before = [signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)]
    train(pp.load_config("demo", SMALL), tmp_path / "run")
    assert [signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)] == before


def test_training_works_in_another_thread(tmp_path):
    failed = list[BaseException]()

    def work():
        try:
            train(pp.load_config("demo", SMALL), tmp_path / "run")
        except BaseException as error:
            failed.append(error)

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert not failed
    assert Run.load(tmp_path / "run").finished


@pytest.mark.skipif(sys.platform == "win32", reason="flock is POSIX")
def test_a_folder_in_use_is_refused(tmp_path):
    folder, process = tmp_path / "run", start("train", "demo", *LONG, "--out", "run", cwd=tmp_path)
    try:
        wait_for(folder / "metrics.jsonl")
        with pytest.raises(UserError, match="is in use: another process trains into it; wait until it ends"):
            resume(folder)
        assert process.is_alive()
    finally:
        process.kill()
        process.join()
    with locked(folder):
        pass  # the killed process left no lock behind


@pytest.mark.skipif(sys.platform == "win32", reason="flock is POSIX")
def test_a_lock_that_a_dying_process_holds_for_a_moment_is_waited_for(tmp_path):
    held = locked(tmp_path)
    held.__enter__()
    timer = threading.Timer(0.2, held.__exit__, (None, None, None))
    timer.start()
    begun = time.monotonic()
    with locked(tmp_path):
        assert time.monotonic() - begun >= 0.15
    timer.join()
    with locked(tmp_path), pytest.raises(UserError, match="is in use"), locked(tmp_path, patience=0):
        pytest.fail("two have it")


@pytest.mark.parametrize("begins", [train, resume])
def test_a_run_that_another_process_ends_meanwhile_is_not_trained_again(begins, tmp_path, monkeypatch):
    config, folder = pp.load_config("demo", SMALL), tmp_path / "run"
    ended = train(config, tmp_path / "other").path

    @contextmanager
    def got_late(path):
        shutil.copytree(ended, path, dirs_exist_ok=True)
        with locked(path):
            yield

    if begins is train:
        monkeypatch.setattr("pdeplus.training.run_files.locked", got_late)
        with pytest.raises(UserError, match="already holds a run"):
            train(config, folder)
    else:
        folder.mkdir()
        shutil.copy(ended / "config.toml", folder)
        monkeypatch.setattr("pdeplus.training.run_folder.locked", got_late)
        assert resume(folder).finished
    for name in ("environment.json", "model.safetensors", "metrics.jsonl"):
        assert (folder / name).read_bytes() == (ended / name).read_bytes()


def test_a_process_killed_before_it_began_leaves_nothing_in_the_way(tmp_path):
    (tmp_path / "lock").touch()
    (tmp_path / "config.toml.tmp").write_text("half of a con")
    assert train(pp.load_config("demo", SMALL), tmp_path).finished


@pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="counts open files through /proc")
def test_many_runs_leak_neither_memory_nor_files(tmp_path):
    """Eighty, by two methods in turn."""
    small = ["train.epochs=1", "train.limit=20", "train.batch_size=18", "model.width=2", "data.size=8"]
    configs = [pp.load_config("demo", [*small, f"method.name={name}"]) for name in ("erm", "pde_plus")]

    def state() -> tuple[int, int]:
        gc.collect()
        return len(os.listdir("/proc/self/fd")), psutil.Process().memory_info().rss

    for i in range(20):
        train(configs[i % 2], tmp_path / f"{i}")
    files, memory = state()
    for i in range(20, 80):
        train(configs[i % 2], tmp_path / f"{i}")
    files_after, memory_after = state()
    assert files_after <= files
    assert memory_after - memory < 10e6
