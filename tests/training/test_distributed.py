"""Two processes over gloo train as one does: gradients, statistics, random streams, files, ends."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch
from support import distributed_jobs as jobs
from torch import nn

import pdeplus as pp
from pdeplus._lib.registry import names
from pdeplus.data.digits import Digits
from pdeplus.errors import Stopped, UserError
from pdeplus.training.checkpoint import load_checkpoint
from pdeplus.training.distributed import Processes, join, synchronised
from pdeplus.training.run_folder import Run, resume
from pdeplus.training.session import check_shares

SMALL = [
    "method.name=erm", "model.name=plain_cnn", "model.width=4", "data.size=8", "train.limit=150", "train.epochs=2",
    "train.batch_size=20",
]  # fmt: skip
JOINT = [*SMALL, "model.name=support.normless_cnn"]
"""Two processes train it just as one does."""


@pytest.fixture(scope="module")
def fits() -> tuple[list[dict], list[dict]]:
    """What the first and the second process found: without BatchNorm twice, then each with statistics of its own."""
    first, second = jobs.together(jobs.fit_often)
    return first, second


def equal(first: dict, second: dict) -> bool:
    return all(torch.equal(first[name], second[name]) for name in first)


def test_twenty_losses_are_those_of_one_process(fits):
    alone, found = jobs.fit_plainly(67, 4, **jobs.JOINT), fits[0][0]
    assert len(alone["losses"]) == 20
    assert found["losses"] == pytest.approx(alone["losses"], abs=1e-6)
    assert alone["losses"][-1] < 0.9 * alone["losses"][0], "it learnt something"
    for mine, theirs in zip(found["history"], alone["history"], strict=True):
        timed = {"seconds", "core_seconds", "images_per_second"}
        assert {k: v for k, v in mine.items() if k not in timed} == pytest.approx(
            {k: v for k, v in theirs.items() if k not in timed}, abs=1e-6
        )


def test_statistics_of_its_own_are_another_run(fits):
    assert abs(fits[0][2]["losses"][0] - jobs.fit_plainly(62, 1, batch_norm=True)["losses"][0]) > 1e-4


def test_all_processes_hold_the_same_weights(fits):
    assert all(equal(mine["weights"], theirs["weights"]) for mine, theirs in zip(*fits, strict=True))
    assert fits[0][2]["history"][-1]["validation/nll"] == fits[1][2]["history"][-1]["validation/nll"]


def test_every_image_is_seen_once_an_epoch(fits):
    shares = [[mine, theirs] for mine, theirs in zip(fits[0][0]["seen"], fits[1][0]["seen"], strict=True)]
    assert [[len(share) for share in pair] for pair in shares[:5]] == [[8, 7]] * 4 + [[4, 3]]
    for epoch in range(4):
        images = [i for pair in shares[5 * epoch : 5 * epoch + 5] for share in pair for i in share]
        assert sorted(images) == list(range(67))


def test_a_last_batch_too_small_to_share_joins_the_one_before(fits):
    assert [len(share) for share in fits[0][2]["seen"]] == [8, 8, 8, 9] * 2
    assert sorted(i for fit in (fits[0][2], fits[1][2]) for share in fit["seen"][:4] for i in share) == list(range(62))


def test_streams_differ_between_processes_and_repeat(fits):
    first, second = fits
    mine, theirs = ({number for draw in found[0]["draws"] for number in draw} for found in fits)
    assert not mine & theirs
    for found in (first, second):
        assert found[0]["draws"] == found[1]["draws"]
        assert len({number for draw in found[0]["draws"] for number in draw}) == 40
        assert equal(found[0]["weights"], found[1]["weights"])


def test_batch_norm_over_all_processes_is_torchs_own_on_gpus():
    net = jobs.network()
    keys = list(net.state_dict())
    found = synchronised(net, Processes(world=2, device=torch.device("cuda")))
    assert list(found.state_dict()) == keys
    norms = [m for m in found.modules() if "Norm" in type(m).__name__]
    assert norms
    assert all(isinstance(m, nn.SyncBatchNorm) for m in norms)


def test_batch_norm_over_all_processes_is_refused_on_cpus(tmp_path):
    running, _ = jobs.start(
        jobs.command, tmp_path, "train", "demo", *SMALL, "train.sync_batch_norm=true", "--out", "run"
    )
    assert jobs.codes(running) == [2, 2]
    assert (tmp_path / "shown0.txt").read_text().startswith("pdeplus: train.sync_batch_norm=true needs GPUs: ")
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("schedule", ["fused", "alternating", "authors"])
def test_gradients_of_pde_plus_are_the_average_over_the_processes(schedule):
    first, second = jobs.together(jobs.step_of_pde_plus, schedule)
    by_hand = lockstep(schedule)
    order = ["task", "diffusion"] if schedule == "fused" else ["diffusion", "task"]
    assert [update[0] for update in first] == [update[0] for update in by_hand] == order
    for mine, theirs, expected in zip(first, second, by_hand, strict=True):
        assert all(torch.equal(a, b) for a, b in zip(mine[1], theirs[1], strict=True))
        torch.testing.assert_close(mine[1], expected[1], rtol=1e-5, atol=1e-8)
        assert all(bool(gradient.any()) for gradient in expected[1][:4]), "the comparison says something"
    if schedule != "fused":
        start = [p for name, p in jobs.pde_plus(schedule)[1].named_parameters() if "add_blocks" not in name]
        assert all(torch.equal(a, b) for a, b in zip(first[1][2], start, strict=True)), "the step on φ moved θ"


def lockstep(schedule: str) -> list[tuple[str, list[torch.Tensor]]]:
    """One process plays both: each objective's gradients, weighted by images, then the updates."""
    method, net = jobs.pde_plus(schedule)
    optimizers = method.optimizers(net, lambda parameters: torch.optim.SGD(parameters, 0.1))
    batches, updates = [jobs.part(rank) for rank in range(2)], []
    for goals in zip(*(method.objectives(net, batch) for batch in batches), strict=True):
        chosen = {name: optimizers[name].param_groups[0]["params"] for name in goals[0].update}
        for name, parameters in chosen.items():
            total = sum(len(b.labels) / 9 * goal.loss for b, goal in zip(batches, goals, strict=True))
            gradients = torch.autograd.grad(total, parameters, retain_graph=True)
            updates.append((name, list(gradients)))
        for name, gradients in updates[-len(chosen) :]:
            for p, gradient in zip(chosen[name], gradients, strict=True):
                p.grad = gradient
            optimizers[name].step()
    return updates


def test_no_method_waits_for_ever_and_all_processes_agree():
    first, second = jobs.together(jobs.step_of_each_method)
    assert first.keys() == set(names("methods"))
    for name, weights in first.items():
        assert all(torch.equal(mine, theirs) for mine, theirs in zip(weights, second[name], strict=True)), name


def test_missing_gradients_count_as_zero_unless_all_miss_them():
    for found in jobs.together(jobs.incomplete_gradients):
        assert torch.equal(found[0], torch.full((2, 3), 1.5))
        assert torch.equal(found[1], torch.full((2, 3), 0.5))
        assert found[2] is None


def test_resume_in_more_and_in_fewer_processes(tmp_path, monkeypatch):
    monkeypatch.setattr(Digits, "transform", property(lambda self: jobs.Identity()))
    alone = pp.train(pp.load_config("demo", JOINT), tmp_path / "alone")
    with pytest.raises(Stopped):
        pp.train(pp.load_config("demo", JOINT), tmp_path / "grown", watch=jobs.stop_after_an_epoch)
    running, _ = jobs.start(jobs.train_and_go_on, tmp_path)
    assert jobs.codes(running) == [0, 0]
    with pytest.warns(UserWarning, match="this session has processes 1, the run began with 2: bits may differ"):
        resume(tmp_path / "shrunk", trust_code=True)
    for run in (Run.load(tmp_path / "grown"), Run.load(tmp_path / "shrunk")):
        stamps = json.loads((run.path / "environment.json").read_text())
        assert sorted(stamp["processes"] for stamp in stamps) == [1, 2]
        for mine, theirs in zip(run.metrics, alone.metrics, strict=True):
            for name in ("loss/task", "accuracy", "validation/nll", "validation/accuracy", "lr/task"):
                assert mine[name] == pytest.approx(theirs[name], abs=1e-4)


def test_the_main_process_alone_writes(tmp_path):
    first, second = jobs.together(jobs.count_writes, tmp_path / "run", SMALL)
    assert second == []
    saved = [name for name in first if name == "state.pt"]
    assert len(saved) == 2, "one checkpoint for each epoch"
    assert Run.load(tmp_path / "run").finished


def test_what_fails_before_training_is_said_once(tmp_path):
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "notes").write_text("…")
    running, _ = jobs.start(jobs.patient_command, tmp_path, "train", "demo", *SMALL, "--out", "run")
    running[0].join(jobs.SECONDS)
    running[1].terminate()  # as launchers do
    assert jobs.codes(running) == [2, 2]
    assert (tmp_path / "shown0.txt").read_text() == "pdeplus: run already holds files; choose another --out\n"
    assert (tmp_path / "shown1.txt").read_text() == ""


def test_what_fails_in_one_process_is_said_by_the_main_one(tmp_path):
    assert jobs.together(jobs.fail_in_one, 1) == ["process 1: there is no such folder", 2]


def test_a_loss_that_is_not_finite_ends_all(tmp_path):
    running, _ = jobs.start(jobs.command, tmp_path, "train", "demo", *SMALL, "train.lr=1e30", "--out", "run")
    assert jobs.codes(running) == [1, 1]
    assert "the task loss is nan; try a lower train.lr" in (tmp_path / "shown0.txt").read_text()
    assert (tmp_path / "shown1.txt").read_text() == ""


@pytest.mark.parametrize("killed", [0, 1])
def test_a_killed_process_ends_the_others_and_leaves_a_checkpoint(tmp_path, killed):
    words = ["train", "demo", *SMALL, "train.epochs=500", "train.checkpoint_seconds=0", "--out", "run"]
    running, _ = jobs.start(jobs.command, tmp_path, *words)
    wait_for(tmp_path / "run" / "metrics.jsonl", 50)
    running[killed].kill()
    ended = jobs.codes(running)
    assert (ended[killed], ended[1 - killed]) == (-signal.SIGKILL, 1)
    told = (tmp_path / f"shown{1 - killed}.txt").read_text()
    assert told.endswith("pdeplus: another process of this job ended; continue with: pdeplus train --resume run\n")
    assert told.count("pdeplus: ") == 1
    assert load_checkpoint(tmp_path / "run" / "checkpoints") is not None


def test_torchrun_hands_on_a_signal_and_all_stop_at_one_step(tmp_path):
    launcher = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc_per_node=2"]
    words = [*launcher, "-m", "pdeplus", "train", "demo", *SMALL, "train.epochs=500", "--out", "run"]
    with subprocess.Popen(words, cwd=tmp_path, stderr=subprocess.PIPE, text=True) as process:
        try:
            wait_for(tmp_path / "run" / "metrics.jsonl", 50)
            process.terminate()
            _, told = process.communicate(timeout=60)
        finally:
            process.kill()
    assert told.count("pdeplus: stopped by SIGTERM") == 1
    assert "forcefully" not in told
    left = load_checkpoint(tmp_path / "run" / "checkpoints")
    newest = max(path.name for path in (tmp_path / "run" / "checkpoints").iterdir())
    progress = left.state["progress"]
    assert int(newest) == progress["epoch"] * 7 + progress["batch"]
    assert not Run.load(tmp_path / "run").finished


@pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="counts threads through /proc")
def test_no_thread_of_gloo_outlives_python(tmp_path):
    """One that does aborts the process now and then, and torchrun says that a finished run failed."""
    (tmp_path / "job.py").write_text(
        "import atexit, os, pathlib, sys\n"
        "from pdeplus.cli import main\n"
        "def threads():\n"
        "    return [path.read_text() for path in pathlib.Path('/proc/self/task').glob('*/comm')]\n"
        "def tell():\n"
        "    pathlib.Path('left' + os.environ['RANK']).write_text(''.join(threads()))\n"
        "atexit.register(tell)\n"
        "try:\n"
        "    main(sys.argv[1:])\n"
        "finally:\n"
        "    pathlib.Path('had' + os.environ['RANK']).write_text(''.join(threads()))\n"
    )
    command = [sys.executable, "job.py", "train", "demo", *SMALL, "--out", "run"]
    places = [os.environ | place for place in jobs.places(2)]
    running = [subprocess.Popen(command, cwd=tmp_path, env=place) for place in places]
    assert [process.wait(jobs.SECONDS) for process in running] == [0, 0]
    for rank in range(2):
        assert "gloo" in (tmp_path / f"had{rank}").read_text()
        assert "gloo" not in (tmp_path / f"left{rank}").read_text()
    assert Run.load(tmp_path / "run").finished


def wait_for(path: Path, size: int, seconds: float = jobs.SECONDS) -> None:
    end = time.monotonic() + seconds
    while not path.exists() or path.stat().st_size < size:
        assert time.monotonic() < end, f"{path.name} did not appear"
        time.sleep(0.02)


def test_more_processes_than_a_batch_has_pairs_of_images_are_refused():
    check_shares(1, 2, 100)
    check_shares(4, 8, 8)
    with pytest.raises(UserError, match="train.batch_size=7: 4 processes share each batch and need 8 or more"):
        check_shares(4, 7, 100)
    with pytest.raises(UserError, match="6 training images: 4 processes share"):
        check_shares(4, 8, 6)


def test_a_number_of_processes_without_their_launcher_is_refused(tmp_path, monkeypatch):
    monkeypatch.setenv("WORLD_SIZE", "2")
    with pytest.raises(
        UserError, match="WORLD_SIZE=2 asks for 2 processes but RANK is not set; start them with torchrun"
    ):
        pp.train(pp.load_config("demo", SMALL), tmp_path / "run")
    assert not (tmp_path / "run").exists()
    monkeypatch.setenv("WORLD_SIZE", "1")
    assert join().world == 1
