"""A run killed at any moment and resumed ends with the bits of one that was never interrupted."""

import json
import time
from multiprocessing.process import BaseProcess
from pathlib import Path

import pytest
from support.forkserver import finish, start

import pdeplus as pp
from pdeplus.training.run_folder import Run, resume

OPTIONS = [
    "model.width=8", "data.size=8", "train.limit=200", "train.epochs=3", "train.batch_size=20",
    "train.ema=0.9", "train.checkpoint_seconds=0", "train.warmup=0.5",
]  # fmt: skip


FAST = [
    "data.name=synthetic", "data.size=16", "model.width=16", "method.name=pde_plus", "method.coverage_images=12",
    "train.limit=200", "train.epochs=3", "train.batch_size=20", "train.ema=0.9", "train.checkpoint_seconds=0",
    "train.progressive=0.4",
]  # fmt: skip
"""Over the preset `fast`: progressive resizing, whitening, Muon, rates of their own, a linear schedule, alternating
flips, reflected borders, label smoothing, and a precision that is measured when the run begins."""


@pytest.fixture(scope="module")
def reference(tmp_path_factory) -> Run:
    return pp.train(pp.load_config("demo", OPTIONS), tmp_path_factory.mktemp("reference") / "run")


def kill_when(process: BaseProcess, happened, seconds=120) -> bool:
    """SIGKILL as soon as `happened()`; False if the process ended before."""
    deadline = time.monotonic() + seconds
    while process.exitcode is None and time.monotonic() < deadline:
        if happened():
            process.kill()
            process.join()
            return True
        time.sleep(0.0005)
    assert process.exitcode is not None, "the process neither ended nor reached the point"
    return False


def without_times(run: Run) -> list[dict]:
    timing = ("seconds", "core_seconds", "images_per_second")
    return [{k: v for k, v in record.items() if k not in timing} for record in run.metrics]


def same(run: Run, reference: Run) -> None:
    for name in ("model.safetensors", "best.safetensors"):
        assert (run.path / name).read_bytes() == (reference.path / name).read_bytes()
    assert without_times(run) == without_times(reference)


def checkpoints(folder: Path) -> list[str]:
    try:
        return sorted(p.name for p in (folder / "checkpoints").iterdir())
    except FileNotFoundError:
        return []


def test_killed_at_several_points_and_during_a_checkpoint_write(tmp_path, reference):
    folder = tmp_path / "run"
    points = [
        lambda: any(name >= "000000003" and not name.endswith(".tmp") for name in checkpoints(folder)),
        lambda: any(name.endswith(".tmp") and name > "000000006" for name in checkpoints(folder)),
        lambda: (folder / "metrics.jsonl").exists() and (folder / "metrics.jsonl").stat().st_size > 50,
        lambda: any(name.endswith(".tmp") and name > "000000014" for name in checkpoints(folder)),
    ]
    process = start("train", "demo", *OPTIONS, "--out", "run", cwd=tmp_path)
    for i, point in enumerate(points):
        assert kill_when(process, point), f"it was over before point {i}"
        process = start("train", "--resume", "run", cwd=tmp_path)
    finish(process, tmp_path)
    same(Run.load(folder), reference)
    sessions = json.loads((folder / "environment.json").read_text())
    assert len(sessions) == 5


def test_every_option_of_the_fast_regime_survives_a_kill(tmp_path):
    folder, fast = tmp_path / "run", [*FAST, "train.precision=auto"]
    process = start("train", "fast", *fast, "--out", "run", cwd=tmp_path)
    assert kill_when(process, lambda: any(name >= "000000004" for name in checkpoints(folder)))
    process = start("train", "--resume", "run", cwd=tmp_path)
    assert kill_when(process, lambda: any(name.endswith(".tmp") and name > "000000013" for name in checkpoints(folder)))
    resumed = resume(folder)
    chosen = json.loads((folder / "precision.json").read_bytes())["precision"]
    whole = pp.train(pp.load_config("fast", [*FAST, f"train.precision={chosen}"]), tmp_path / "whole")
    same(resumed, whole)


def test_killed_before_the_first_checkpoint(tmp_path, reference):
    folder = tmp_path / "run"
    process = start("train", "demo", *OPTIONS, "--out", "run", cwd=tmp_path)
    assert kill_when(process, lambda: (folder / "config.toml").exists())
    same(resume(folder), reference)


def test_resume_with_a_damaged_newest_checkpoint(tmp_path, reference):
    folder = tmp_path / "run"
    process = start("train", "demo", *OPTIONS, "--out", "run", cwd=tmp_path)
    assert kill_when(process, lambda: any(name >= "000000012" for name in checkpoints(folder)))
    whole = [name for name in checkpoints(folder) if not name.endswith(".tmp")]
    weights = folder / "checkpoints" / whole[-1] / "weights.safetensors"
    weights.write_bytes(weights.read_bytes()[:-10] + b"0123456789")
    with pytest.warns(UserWarning, match=f"{whole[-1]} is damaged.*trying the one before"):
        same(resume(folder), reference)


def test_resuming_a_finished_run_changes_nothing(reference):
    before = (reference.path / "environment.json").read_bytes()
    same(resume(reference.path), reference)
    assert (reference.path / "environment.json").read_bytes() == before
