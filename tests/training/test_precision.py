"""Precision by measurement: the faster one is taken, written down, and kept."""

import json
import shutil
import warnings

import pytest
from PIL import Image

import pdeplus as pp
from pdeplus.errors import UserError
from pdeplus.training import precision as precision_file
from pdeplus.training.precision import FILE, faster, time_steps, trial_size
from pdeplus.training.run_folder import prepare

SETTINGS = [
    "method.name=erm", "model.name=fast_cnn", "model.widths=[16,16,16]", "train.limit=150", "train.epochs=2",
    "train.batch_size=50", "train.precision=auto",
]  # fmt: skip


def config(*more: str):
    return pp.load_config("demo", [*SETTINGS, *more])


@pytest.mark.parametrize(
    ("fp32", "bf16", "taken"), [(1.0, 0.5, "bf16"), (1.0, 10.0, "fp32"), (1.0, 0.99, "fp32"), (1.0, 0.95, "bf16")]
)
def test_bf16_is_taken_where_it_is_faster_by_more_than_chance(fp32, bf16, taken):
    assert faster({"fp32": fp32, "bf16": bf16}) == taken


def test_a_clock_that_cannot_tell_means_fp32_and_one_line():
    session, _ = prepare(config())
    with pytest.warns(UserWarning, match="clock is too coarse to time a step; fp32"):
        assert faster(time_steps(session, clock=lambda: 7.0)) == "fp32"


def test_what_goes_through_the_network_at_once_is_timed():
    sizes = {"train.batch_size=50": 50, "train.accumulate=5": 10, "train.batch_size=3": 3, "train.batch_size=135": 64}
    assert {setting: trial_size(prepare(config(setting))[0]) for setting in sizes} == sizes


def test_few_large_images_are_timed(tmp_path):
    for i in range(80):
        path = tmp_path / "ab"[i % 2] / f"{i}.png"
        path.parent.mkdir(exist_ok=True)
        Image.new("RGB", (8, 8)).save(path)
    ours = ["data.name=image_folder", f"data.root={tmp_path}", "data.held_out=0.1", "model.name=resnet18"]
    sizes = {"data.size=64": 50, "data.size=224": 10, "data.size=600": 2}
    found = {setting: prepare(pp.load_config("demo", [*ours, "train.batch_size=50", setting]))[0] for setting in sizes}
    assert {setting: trial_size(session) for setting, session in found.items()} == sizes


def test_timing_leaves_the_session_as_it_was():
    session, _ = prepare(config())
    before = {name: tensor.clone() for name, tensor in session.model.state_dict().items()}
    seconds = time_steps(session)
    assert min(seconds.values()) > 0
    assert all(tensor.equal(before[name]) for name, tensor in session.model.state_dict().items())
    assert not any(optimizer.state for optimizer in session.optimizers.values())


@pytest.mark.parametrize(("fp32", "bf16", "taken"), [(1.0, 0.5, "bf16"), (1.0, 10.0, "fp32")])
def test_the_choice_is_recorded_and_kept_on_resume(fp32, bf16, taken, tmp_path, monkeypatch):
    monkeypatch.setattr(precision_file, "time_steps", lambda session: {"fp32": fp32, "bf16": bf16})
    run = pp.train(config(), tmp_path / "whole")
    content = json.loads((run.path / FILE).read_bytes())
    assert content["precision"] == taken
    assert content["milliseconds"] == {"fp32": 1000 * fp32, "bf16": 1000 * bf16}
    same = pp.train(config(f"train.precision={taken}"), tmp_path / "same")
    assert (run.path / "model.safetensors").read_bytes() == (same.path / "model.safetensors").read_bytes()
    shutil.copytree(run.path, tmp_path / "cut")
    (tmp_path / "cut" / "model.safetensors").unlink()
    shutil.rmtree(max((tmp_path / "cut" / "checkpoints").iterdir()))
    monkeypatch.setattr(precision_file, "time_steps", lambda session: pytest.fail("measured again"))
    resumed = pp.resume(tmp_path / "cut")
    assert (resumed.path / "model.safetensors").read_bytes() == (run.path / "model.safetensors").read_bytes()


def test_narrow_networks_are_not_measured_and_train_in_fp32(tmp_path, monkeypatch):
    monkeypatch.setattr(precision_file, "time_steps", lambda session: pytest.fail("measured"))
    run = pp.train(config("model.widths=[8,16,16]", "train.epochs=1"), tmp_path / "run")
    assert json.loads((run.path / FILE).read_bytes())["precision"] == "fp32"


def test_a_damaged_record_is_answered_in_one_line(tmp_path):
    run = pp.train(config("train.epochs=1"), tmp_path / "run")
    (run.path / "model.safetensors").unlink()
    (run.path / FILE).write_text('{"precision": "fp8"}')
    (run.path / "sums.json").unlink()
    with pytest.raises(UserError, match=r"precision.json is damaged; restore it"):
        pp.resume(run.path)


def test_a_set_precision_is_not_measured(tmp_path):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        run = pp.train(config("train.precision=fp32", "train.epochs=1"), tmp_path / "run")
    assert not (run.path / FILE).exists()
