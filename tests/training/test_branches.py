"""A branch goes on from another run's checkpoint with other settings; nothing of that run changes or is lost."""

import json
import signal

import pytest
import torch
from support.commands import answer

import pdeplus as pp
from pdeplus._lib.files import read_weights
from pdeplus.errors import Stopped
from pdeplus.training import branches
from pdeplus.training.checkpoint import load_checkpoint
from pdeplus.training.config import config_hash
from pdeplus.training.run_files import is_used
from pdeplus.training.run_folder import prepare
from pdeplus.training.session import restore

SMALL = ["method.name=erm", "model.name=plain_cnn", "model.width=2", "data.size=8", "train.batch_size=16"]
SMALL += ["train.limit=80", "train.epochs=3"]
STEPS = 5
"""Of an epoch: 72 images in batches of 16, of which the last is of 8."""


def quick(*overrides):
    return pp.load_config("demo", [*SMALL, *overrides])


def stopped_after(folder, steps, *overrides):
    """A run that was interrupted after so many steps."""

    def watch(step, *_):
        if step + 1 == steps:
            signal.raise_signal(signal.SIGTERM)

    with pytest.raises(Stopped) as told:
        pp.train(quick(*overrides), folder, watch=watch)
    assert f"pdeplus train --resume {folder}" in str(told.value)
    return folder


def contents(folder):
    return {p.relative_to(folder): p.read_bytes() for p in sorted(folder.rglob("*")) if p.is_file()}


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    return pp.train(quick(), tmp_path_factory.mktemp("whole") / "run")


@pytest.mark.parametrize("steps", [STEPS, STEPS + 2])
def test_a_change_that_does_nothing_ends_with_the_bits_of_the_run_itself(tmp_path, whole, steps):
    parent = stopped_after(tmp_path / "run", steps)
    before, said = contents(parent), []
    run = pp.branch(parent, ["train.clip_norm=1e9"], say=said.append)  # which no gradient has
    assert contents(parent) == before
    assert run.path == tmp_path / "run-branch1"
    ours, theirs = (read_weights(r.path / "model.safetensors") for r in (run, whole))
    assert all(torch.equal(ours[name], theirs[name]) for name in theirs)
    assert [r["validation/accuracy"] for r in run.metrics] == [r["validation/accuracy"] for r in whole.metrics]
    about = json.loads((run.path / "parent.json").read_text())
    assert about == {
        "run": str(parent.resolve()),
        "checkpoint": f"{steps:09d}",
        "changes": ["train.clip_norm is 1000000000.0, was 0.0"],
    }
    assert said == [f"{run.path} continues {parent} after 1 epoch, from checkpoint {steps:09d}: {about['changes'][0]}"]


def test_a_branch_is_not_taken_for_a_run_with_its_settings(tmp_path, whole):
    run = pp.branch(whole.path, ["train.epochs=4"], tmp_path / "longer")
    assert len(run.metrics) == 4
    assert run.metrics[:3] == whole.metrics
    assert run.config.continues == f"{config_hash(whole.config)}@{3 * STEPS:09d}"
    assert config_hash(run.config) != config_hash(quick("train.epochs=4"))
    assert run.network("validation") is not None  # the best weights may be the parent's
    anew = pp.load_config(run.path / "config.toml", ["train.epochs=1"])
    assert pp.train(anew, tmp_path / "anew").config.continues == ""


def test_settings_are_the_branchs_and_memories_the_parents(tmp_path, whole):
    checkpoint = load_checkpoint(whole.path / "checkpoints")
    session, _ = prepare(quick("train.weight_decay=0.25", "train.momentum=0.5"))
    restore(checkpoint, session)
    optimizer = session.optimizers["task"]
    assert {(g["weight_decay"], g["momentum"]) for g in optimizer.param_groups} == {(0.25, 0.5)}
    first = next(iter(session.model.parameters()))
    remembered = checkpoint.state["optimizers"]["task"]["state"][0]["momentum_buffer"]
    assert torch.equal(optimizer.state[first]["momentum_buffer"], remembered)


def test_an_average_of_the_weights_may_begin_in_a_branch(tmp_path, whole):
    def watch(step, *_):  # the first update of an average is a copy of the weights
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt, match="3 of 4 epochs are done; continue with: pdeplus train --resume"):
        pp.branch(whole.path, ["train.epochs=4", "train.ema=0.5"], tmp_path / "average", watch=watch)
    state = load_checkpoint(tmp_path / "average" / "checkpoints")
    assert all(torch.equal(state.state["averaged"][f"module.{name}"], value) for name, value in state.weights.items())
    assert len(pp.resume(tmp_path / "average").metrics) == 4


def test_with_batches_of_another_size_the_epoch_begins_again(tmp_path):
    parent = stopped_after(tmp_path / "run", STEPS + 2)
    steps = []
    run = pp.branch(parent, ["train.batch_size=24"], watch=lambda step, of, *_: steps.append((step, of)))
    assert steps == [(step, 9) for step in range(3, 9)]  # of three epochs of 72 / 24 batches the last two
    assert len(run.metrics) == 3


def test_a_run_that_diverged_in_its_first_epoch_begins_again(tmp_path, capsys):
    folder = tmp_path / "run"
    code, _, err = answer(capsys, "train", "demo", *SMALL, "train.lr=1e30", "--out", str(folder))
    assert code == 1
    assert f"pdeplus train --resume {folder} train.lr=2e+29" in err
    code, out, err = answer(capsys, "train", "--resume", str(folder), "train.lr=0.01", "train.epochs=1")
    assert code == 0
    assert f"{folder}-branch1 continues {folder} from the start, as it has no checkpoint" in out
    assert f"{folder}-branch1: 1 epoch, validation accuracy" in out
    assert err.startswith("training: epoch 1 of 1: loss ")
    assert json.loads((tmp_path / "run-branch1" / "parent.json").read_text())["checkpoint"] == ""


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        (["seed=1"], ["seed is 1, was 0", "train anew: pdeplus train", "--out DIR"]),
        (["data.size=16"], ["data.size is 16, was 8"]),
        (["method.name=augmix"], ["method.name is 'augmix', was 'erm'"]),
        (["train.optimizer=adamw"], ["train.optimizer"]),
        (["train.lr=0.01"], ["has done 3 epochs", "train.epochs above"]),
        (["train.epochs=3"], ["train.epochs=3 is what", "has already"]),
        (["train.epochs=9", "train.batch_norm=split"], ["train.batch_norm", "does not fit", "undo that"]),
        (["train.epochs=9", "train.lrr=1"], ["train.lrr", "did you mean"]),
    ],
)
def test_changes_that_a_checkpoint_cannot_go_on_with(capsys, tmp_path, whole, changes, words):
    code, out, err = answer(capsys, "train", "--resume", str(whole.path), *changes, "--out", str(tmp_path / "x"))
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert all(word in err for word in words), err
    assert not list(tmp_path.iterdir())


def test_a_branch_without_its_checkpoint_does_not_begin_at_the_start(tmp_path, whole):
    run = pp.branch(whole.path, ["train.epochs=4"], tmp_path / "longer")
    (run.path / "model.safetensors").unlink()
    for path in (run.path / "checkpoints").iterdir():
        path.rename(path.with_suffix(".gone"))
    with pytest.raises(pp.UserError, match="no checkpoint of the run that it continues"):
        pp.resume(run.path)


def test_a_branch_that_was_killed_while_it_was_made_is_made_again(tmp_path, whole, monkeypatch):
    def killed(*_):
        raise KeyboardInterrupt

    out = tmp_path / "longer"
    with monkeypatch.context() as patch:
        patch.setattr(branches, "save_checkpoint", killed)
        with pytest.raises(KeyboardInterrupt):
            pp.branch(whole.path, ["train.epochs=4"], out)
    assert {path.name for path in out.iterdir()} >= {"parent.json", "best.safetensors"}
    assert not (out / "config.toml").exists()
    assert not is_used(out)
    assert pp.branch(whole.path, ["train.epochs=4"], out).finished
    (tmp_path / "mine").mkdir()
    for name in ("parent.json", "letter.txt"):
        (tmp_path / "mine" / name).touch()
    with pytest.raises(pp.UserError, match="already holds files"):
        pp.branch(whole.path, ["train.epochs=4"], tmp_path / "mine")


def test_force_moves_the_run_aside(capsys, tmp_path):
    words = ["train", "demo", *SMALL, "train.epochs=1", "--out", str(tmp_path / "run")]
    assert answer(capsys, *words)[0] == 0
    before = contents(tmp_path / "run")
    assert "start over with --force" in answer(capsys, *words)[2]
    assert answer(capsys, *words, "train.lr=fast", "--force")[0] == 2
    assert contents(tmp_path / "run") == before
    code, out, _ = answer(capsys, *words, "seed=1", "--force")
    assert code == 0
    assert out.startswith(f"the run that was in {tmp_path / 'run'} is now in {tmp_path / 'run.old1'}\n")
    kept = contents(tmp_path / "run.old1")
    assert {path: kept[path] for path in before if path.name != "lock"} == {
        path: data for path, data in before.items() if path.name != "lock"
    }
    (tmp_path / "notes").mkdir()
    (tmp_path / "notes" / "a.txt").write_text("not a run")
    assert "already holds files" in answer(capsys, *words[:-1], str(tmp_path / "notes"), "--force")[2]


def test_progress_in_python_is_a_line_for_each_epoch(capsys, tmp_path):
    run = pp.train(quick("train.epochs=2"), tmp_path / "run", progress=True)
    lines = capsys.readouterr().err.splitlines()
    assert [line.split(": loss")[0] for line in lines] == ["training: epoch 1 of 2", "training: epoch 2 of 2"]
    accuracy = 100 * run.metrics[1]["validation/accuracy"]
    assert f"validation accuracy {accuracy:.1f} %, shifted accuracy" in lines[1]
