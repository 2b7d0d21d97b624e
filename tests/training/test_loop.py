"""The loop: schedule, averaging, clipping, failure."""

import copy
import json
import math
import shutil
import tomllib
from dataclasses import replace

import pytest
import tomli_w
import torch
from support.forkserver import finish, start

import pdeplus as pp
from pdeplus.augment.crop_flip import CropFlip
from pdeplus.augment.identity import Identity
from pdeplus.augment.resized_crop import ResizedCrop
from pdeplus.core.network import step_by_indexing
from pdeplus.errors import RunFailed, UserError
from pdeplus.training import run_folder as run_module
from pdeplus.training.config import Train
from pdeplus.training.loop import learning_rate_factor, set_learning_rates
from pdeplus.training.run_folder import Run
from pdeplus.training.session import check_progressive, light_transform

QUICK = [
    "model.width=2", "model.name=plain_cnn", "data.size=8", "train.limit=120",
    "train.epochs=2", "train.batch_size=32",
]  # fmt: skip


def quick(*overrides: str) -> pp.Config:
    return pp.load_config("demo", [*QUICK, *overrides])


def test_learning_rate_rises_linearly_then_falls_as_a_cosine():
    rates = [learning_rate_factor(step, 110, 10) for step in range(110)]
    assert rates[:10] == pytest.approx([(i + 1) / 11 for i in range(10)])
    assert rates[10] == 1
    assert rates[60] == pytest.approx(0.5)
    assert rates[-1] == pytest.approx(0.5 * (1 + math.cos(math.pi * 0.99)))
    assert learning_rate_factor(0, 5, 0) == 1


def test_the_linear_schedule_falls_in_equal_steps_to_zero():
    rates = [learning_rate_factor(step, 14, 4, "linear") for step in range(15)]
    assert rates == pytest.approx([0.2, 0.4, 0.6, 0.8, *[1 - i / 10 for i in range(11)]])


def mirrored_images(session, epoch: int) -> torch.Tensor:
    """Of 40 training images with a left and a right half, which are mirrored in an epoch."""
    images = torch.zeros(40, 3, 8, 8)
    images[..., :4] = 1
    view = session.transform(epoch, torch.arange(40))(images, torch.Generator().manual_seed(epoch))
    return view[:, 0, 4, 0] == 0


def test_alternating_flips_mirror_every_image_in_every_second_epoch():
    settings = ["data.name=synthetic", "train.shift=0", "train.flips=alternating"]
    session, _ = run_module.prepare(quick(*settings))
    first, second, third = (mirrored_images(session, epoch) for epoch in range(3))
    assert torch.equal(second, ~first)
    assert torch.equal(third, first)
    assert 8 < int(first.sum()) < 32
    other, _ = run_module.prepare(quick(*settings, "seed=1"))
    assert not torch.equal(mirrored_images(other, 0), first)
    random, _ = run_module.prepare(quick("data.name=synthetic", "train.shift=0"))
    assert not torch.equal(mirrored_images(random, 1), ~mirrored_images(random, 0))


def test_the_settings_shift_and_border_replace_the_data_sets_own():
    session, _ = run_module.prepare(quick("train.shift=1", "train.border=reflected"))
    assert session.split.transform == CropFlip(padding=1, flip=False, border="reflected")
    assert light_transform(CropFlip(padding=4), Train()) == CropFlip(padding=4)
    with pytest.raises(UserError, match="by Identity, which takes no train.shift, border or flips"):
        light_transform(Identity(), Train(flips="alternating"))
    with pytest.raises(UserError, match="train.shift=-2 must be at least -1"):
        quick("train.shift=-2")


def test_progressive_resizing_shrinks_the_images_of_the_first_epochs_by_a_quarter():
    session, _ = run_module.prepare(quick("train.epochs=5", "train.progressive=0.45", "data.size=16"))
    image = torch.arange(16.0).expand(1, 3, 16, 16)  # a ramp stays a ramp
    for epoch, side in enumerate((12, 12, 16, 16, 16)):
        session.progress.epoch = epoch
        assert session.resized(image).shape == (1, 3, side, side)
    session.progress.epoch = 0
    inner = session.resized(image)[0, 0, 5, 2:-2]
    torch.testing.assert_close(inner, (torch.arange(2, 10) + 0.5) * 4 / 3 - 0.5, atol=0.05, rtol=0)
    with pytest.raises(UserError, match="train.progressive=1.5 must lie between 0 and 1"):
        quick("train.progressive=1.5")


def test_progressive_resizing_is_refused_where_a_network_takes_one_size_only():
    session, _ = run_module.prepare(quick("data.size=16"))
    fixed = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(3 * 16 * 16, 10))
    with pytest.raises(UserError, match="trains on 12×12 pixels first, which the network does not take"):
        check_progressive(fixed, session.split, Train(progressive=0.5))
    check_progressive(fixed, session.split, Train())
    cropped = replace(session.split, transform=ResizedCrop(size=16))
    with pytest.raises(UserError, match="cannot be combined with data.transform=resized_crop"):
        check_progressive(torch.nn.Identity(), cropped, Train(progressive=0.5))


def test_constant_groups_keep_their_rate():
    w = [torch.nn.Parameter(torch.zeros(1)) for _ in range(2)]
    optimizer = torch.optim.SGD([{"params": w[:1], "lr": 0.4}, {"params": w[1:], "lr": 0.2, "schedule": "constant"}])
    set_learning_rates({"o": optimizer}, {"o": [0.4, 0.2]}, 0.25)
    assert [group["lr"] for group in optimizer.param_groups] == [0.1, 0.2]


def test_a_run_folder_holds_everything(tmp_path):
    run = pp.train(quick("method.name=pde_plus_stages"), tmp_path / "run")
    assert run.finished
    assert [record["epoch"] for record in run.metrics] == [1, 2]
    keys = set(run.metrics[0])
    assert {"loss/task", "loss/coverage", "accuracy", "validation/accuracy", "validation/nll"} <= keys
    assert {"sigma/layer1", "sigma/layer4", "lr/task", "lr/diffusion", "seconds", "images_per_second"} <= keys
    (stamp,) = json.loads((run.path / "environment.json").read_text())
    assert stamp["torch"] == torch.__version__
    assert Run.load(run.path).config == pp.load_config(run.path / "config.toml")
    model = run.model
    assert not model.training
    assert pp.predict(model, torch.rand(2, 3, 8, 8), samples=2).shape == (2, 10)
    with pytest.raises(UserError, match="selection='best' is not known; choose from last, validation"):
        run.network("best")
    assert run.network("validation").state_dict().keys() == model.state_dict().keys()


def test_training_learns(tmp_path):
    run = pp.train(
        pp.load_config("demo", ["train.epochs=6", "model.width=4", "data.size=16", "method.name=erm"]), tmp_path / "r"
    )
    assert run.metrics[-1]["validation/accuracy"] > 0.8


def test_same_seed_same_bits_and_global_randomness_untouched(tmp_path):
    state = torch.get_rng_state()
    a, b = (pp.train(quick(), tmp_path / name) for name in "ab")
    c = pp.train(quick("seed=1"), tmp_path / "c")
    assert torch.equal(state, torch.get_rng_state())
    weights = [(run.path / "model.safetensors").read_bytes() for run in (a, b, c)]
    assert weights[0] == weights[1] != weights[2]


def test_label_smoothing_is_the_runs_also_where_an_older_config_has_it(tmp_path):
    plain, run = (pp.train(quick(f"train.label_smoothing={s}"), tmp_path / f"{s}") for s in (0, 0.3))
    assert run.metrics[0]["loss/task"] != plain.metrics[0]["loss/task"]
    path = run.path / "config.toml"
    tables = tomllib.loads(path.read_text())
    tables["method"]["label_smoothing"] = tables["train"].pop("label_smoothing")
    path.write_text(tomli_w.dumps(tables))
    trained = (run.path / "model.safetensors").read_bytes()
    (run.path / "model.safetensors").unlink()
    shutil.rmtree(max((run.path / "checkpoints").iterdir()))
    assert (pp.resume(run.path).path / "model.safetensors").read_bytes() == trained


def test_average_of_weights(tmp_path, monkeypatch):
    """By hand: after the first step the average is the weights; then it moves by 1 - decay towards them."""
    seen = []
    original = run_module.open_session
    monkeypatch.setattr(run_module, "open_session", lambda *a: seen.append(original(*a)) or seen[-1])
    by_hand = []

    def watch(step, steps, progress, logs):
        now = seen[0].model.linear.weight.detach().clone()
        by_hand.append(now if not by_hand else 0.7 * by_hand[-1] + 0.3 * now)

    run = pp.train(quick("method.name=erm", "train.ema=0.7"), tmp_path / "run", watch=watch)
    assert torch.allclose(run.model.linear.weight, by_hand[-1], atol=1e-6)
    assert not torch.allclose(run.model.linear.weight, seen[0].model.linear.weight, atol=1e-4)


@pytest.mark.parametrize(
    "option",
    [
        "train.batch_norm=split", "train.batch_norm=recalibrate", "train.clip_norm=0.1", "train.precision=bf16",
        "train.channels_last=false", "train.nesterov=true", "train.warmup=1", "method.samples=2",
        "method.schedule=authors", "data.name=synthetic", "train.reshuffle=false",
    ],
)  # fmt: skip
def test_options_of_the_loop(tmp_path, option):
    drop = "data.size" if option.startswith("data.name") else "none"
    overrides = [o for o in QUICK if not o.startswith(drop)]
    config = pp.load_config("demo", [*overrides, "method.name=pde_plus_stages", option])
    run = pp.train(config, tmp_path / "run")
    assert all(math.isfinite(value) for record in run.metrics for value in record.values())
    assert isinstance(run.model, torch.nn.Module)


def test_stepping_by_indexing_is_the_same_convolution():
    thin, padded = torch.nn.Conv2d(6, 12, 1, (2, 3)), torch.nn.Conv2d(4, 3, 1, 2, padding=1)
    net = torch.nn.Sequential(thin, torch.nn.Conv2d(12, 5, 3, 2), torch.nn.Conv2d(5, 4, 1), padded).double()
    indexed, x = copy.deepcopy(net), torch.randn(3, 6, 15, 14, dtype=torch.float64)
    step_by_indexing(indexed)
    assert [m.stride for m in indexed] == [(1, 1), (2, 2), (1, 1), (2, 2)]
    assert indexed.state_dict().keys() == net.state_dict().keys()
    for one in (net, indexed):
        one(x).square().sum().backward()
    torch.testing.assert_close(indexed(x), net(x))
    for mine, theirs in zip(indexed.parameters(), net.parameters(), strict=True):
        torch.testing.assert_close(mine.grad, theirs.grad)


def test_a_narrow_network_trains_on_larger_images(tmp_path):
    """In a process of its own, as torch crashes there in channels-last memory on some CPUs."""
    words = ["model.width=8", "data.size=64", "train.limit=40", "train.batch_size=20", "train.epochs=1"]
    finish(start("train", "demo", "method.name=erm", *words, "--out", "run", cwd=tmp_path), tmp_path)
    assert Run.load(tmp_path / "run").finished


def test_recalibration_matches_statistics_to_clean_images(tmp_path):
    run = pp.train(quick("train.batch_norm=recalibrate", "train.epochs=1"), tmp_path / "run")
    parts = run_module.split(run_module.build_source(run.config), validation=0.1, limit=120, seed=0)
    model, features = run.model, []
    deep = model.layer3[0]
    deep[0].register_forward_hook(lambda module, args, output: features.append(output))
    model(parts.train.floats())
    assert torch.allclose(deep[1].running_var, features[0].var((0, 2, 3)), rtol=0.3)
    assert torch.allclose(deep[1].running_mean, features[0].mean((0, 2, 3)), atol=0.1)


def test_clipping_bounds_the_update(tmp_path):
    run = pp.train(quick("method.name=erm", "train.clip_norm=1e-6", "train.weight_decay=0"), tmp_path / "run")
    start = run_module.build_network(run.config, run_module.build_method(run.config), run.expects)
    gap = (run.model.linear.weight - start.linear.weight).abs().max()
    assert gap < 1e-5


def test_a_loss_that_is_not_finite_stops_the_run_and_leaves_a_good_checkpoint(tmp_path):
    config = quick("train.lr=1e20", "train.warmup=1.5", "method.name=erm", "train.checkpoint_seconds=0")
    with pytest.raises(RunFailed, match=r"step \d+ \(epoch \d\): the task loss is (nan|inf); try a lower train.lr"):
        pp.train(config, tmp_path / "run")
    from pdeplus.training.checkpoint import load_checkpoint

    assert not Run.load(tmp_path / "run").finished
    left = load_checkpoint(tmp_path / "run" / "checkpoints")
    assert all(weights.isfinite().all() for weights in left.weights.values())


def test_a_run_that_breaks_in_its_last_step_does_not_finish(tmp_path):
    with pytest.raises(RunFailed, match="epoch 1: .* not finite"):
        pp.train(quick("train.lr=1e30", "train.batch_size=500", "train.warmup=0", "method.name=erm"), tmp_path / "run")
    assert not Run.load(tmp_path / "run").finished


def test_batch_of_one_is_refused_before_anything_is_written(tmp_path):
    with pytest.raises(UserError, match="train.batch_size=1: BatchNorm"):
        pp.train(quick("train.batch_size=1"), tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_too_small_images_are_refused_before_anything_is_written(tmp_path):
    with pytest.raises(UserError, match="7×7 are too small"):
        pp.train(quick("data.size=7"), tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_a_folder_with_a_run_is_never_overwritten(tmp_path):
    run = pp.train(quick("train.epochs=1"), tmp_path / "run")
    before = (run.path / "model.safetensors").read_bytes()
    with pytest.raises(UserError, match="already holds a run; continue it with --resume"):
        pp.train(quick("train.epochs=1", "seed=5"), tmp_path / "run")
    assert (run.path / "model.safetensors").read_bytes() == before
    (tmp_path / "notes").mkdir()
    (tmp_path / "notes" / "thesis.tex").write_text("…")
    with pytest.raises(UserError, match="already holds files"):
        pp.train(quick(), tmp_path / "notes")


def test_opening_something_that_is_no_run(tmp_path):
    with pytest.raises(UserError, match="is not a run folder"):
        Run.load(tmp_path)


def test_tensorboard_receives_every_metric_where_it_is_installed(tmp_path):
    events = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    run = pp.train(quick(), tmp_path / "run")
    board = events.EventAccumulator(str(run.path / "tensorboard"))
    board.Reload()
    assert set(board.Tags()["scalars"]) == set(run.metrics[0])
    shown = [event.value for event in board.Scalars("loss/coverage")]
    assert shown == pytest.approx([record["loss/coverage"] for record in run.metrics], rel=1e-5)
