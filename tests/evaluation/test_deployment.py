"""A trained run at work: the plain network, and predictions for pictures."""

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from support.commands import answer
from torch import nn

import pdeplus as pp
from pdeplus._lib.seeds import generator_for
from pdeplus.core.add_block import ADDBlock
from pdeplus.core.batch_norm import SplitBatchNorm, split_batch_norm
from pdeplus.core.context import diffusion
from pdeplus.core.prediction import sample_logits
from pdeplus.data._pictures import fit_square, read_picture
from pdeplus.errors import UserError
from pdeplus.evaluation.deployment import plain, predict_pictures
from pdeplus.training.run_folder import Run

QUICK = ["model.width=4", "data.size=16", "train.limit=80", "train.epochs=1"]
STAGES = ["layer1", "layer2", "layer3", "layer4"]


@pytest.fixture(scope="module")
def run(tmp_path_factory) -> Run:
    config = pp.load_config(
        "demo", [*QUICK, "method.name=pde_plus_stages", "train.batch_norm=split", "method.samples=4"]
    )
    return pp.train(config, tmp_path_factory.mktemp("use") / "run")


@pytest.fixture(scope="module")
def grey(tmp_path_factory) -> Run:
    config = pp.load_config("demo", [*QUICK, "method.name=erm", "data.channels=1"])
    return pp.train(config, tmp_path_factory.mktemp("use") / "grey")


@pytest.fixture
def folder(tmp_path) -> Path:
    """Pictures a.png, b.png, c.png of several sizes."""
    random = np.random.default_rng(0)
    for name, size in (("a", (16, 16)), ("b", (40, 30)), ("c", (9, 21))):
        Image.fromarray(random.integers(0, 256, (*size, 3), dtype=np.uint8)).save(tmp_path / f"{name}.png")
    return tmp_path


@pytest.mark.parametrize("split", [False, True])
def test_plain_is_the_network_without_diffusion_bit_by_bit(net, x, split):
    changed = pp.add_diffusion(net, [*STAGES, "bn1"], x).train()
    changed = split_batch_norm(changed) if split else changed
    for _ in range(2):  # statistics of plain and diffused passes part
        changed(x)
        with diffusion(changed):
            changed(2 * x)
    model = plain(changed)
    assert changed.training
    assert not model.training
    assert not any(isinstance(m, ADDBlock | SplitBatchNorm) or m._forward_hooks for m in model.modules())
    assert {type(m) for m in model.modules()} == {type(m) for m in net.modules()}
    assert model.state_dict().keys() == net.state_dict().keys()
    assert torch.equal(model(x), changed.eval()(x))
    assert sum(isinstance(m, ADDBlock) for m in changed.modules()) == 5  # the network keeps its own
    with diffusion(changed):
        assert not torch.equal(changed(x), model(x))


def test_plain_shares_nothing_and_keeps_hooks_of_others(net, x):
    changed = split_batch_norm(pp.add_diffusion(net, ["bn1"], x))
    seen = []
    changed.bn1.register_forward_hook(lambda module, args, output: seen.append(output))
    before = changed(x)
    model = plain(changed)
    for parameter in model.parameters():
        nn.init.zeros_(parameter)
    assert len(seen) == 1
    model(x)
    assert len(seen) == 2
    assert torch.equal(changed(x), before)


def test_load_model_is_plain_deterministic_and_attackable(run):
    model, x = pp.load_model(run.path), torch.rand(3, 3, 16, 16, requires_grad=True)
    network = run.model
    assert torch.equal(model(x), network(x))
    with diffusion(network):  # a context of another network changes nothing
        assert torch.equal(model(x), model(x))
    assert not any(p.requires_grad for p in model.parameters())
    (gradient,) = torch.autograd.grad(model(x).logsumexp(-1).sum(), x)
    assert (gradient.flatten(1).norm(dim=1) > 0).all()
    best = pp.load_model(run.path, "validation")
    assert torch.equal(best(x), run.network("validation")(x))
    with pytest.raises(UserError, match="selection='best' is not known"):
        pp.load_model(run.path, "best")


def test_predictions_by_hand(run, folder):
    path = folder / "b.png"
    (said,) = predict_pictures(run, [path], samples=5, top=10, seed=7)
    x = torch.from_numpy(fit_square(read_picture(path), 16)).permute(2, 0, 1)[None].float() / 255
    each = sample_logits(run.model, x, 5, generator=generator_for(7, "predict", 0)).softmax(-1)[:, 0]
    best = int(each.mean(0).argmax())
    assert (said.image, said.label, said.samples) == (str(path), str(best), 5)
    assert said.probability == pytest.approx(float(each.mean(0)[best]), abs=1e-6)
    assert said.spread == pytest.approx(float(np.std(each[:, best].numpy())), abs=1e-6)
    assert said.spread > 0
    assert said.top[0] == (said.label, said.probability)
    assert [p for _, p in said.top] == sorted((p for _, p in said.top), reverse=True)
    assert sum(p for _, p in said.top) == pytest.approx(1, abs=1e-5)


@pytest.mark.filterwarnings("ignore:.* has no sums.json")
def test_the_average_is_the_methods_own(run, folder, tmp_path):
    other = Run.load(shutil.copytree(run.path, tmp_path / "other"))
    (other.path / "sums.json").unlink()
    config = other.path / "config.toml"
    config.write_text(config.read_text().replace('average = "probabilities"', 'average = "logits"'))
    x = torch.from_numpy(read_picture(folder / "a.png")).permute(2, 0, 1)[None].float() / 255
    for chosen in (run, other):
        (said,) = predict_pictures(chosen, [folder / "a.png"], samples=3)
        average = chosen.config.method.options["average"]
        wanted = pp.predict(run.model, x, 3, generator=generator_for(0, "predict", 0), average=average)
        assert said.probability == pytest.approx(float(wanted.max()), abs=1e-6)


def test_samples_are_the_methods_own_unless_given_and_seeded(run, folder):
    own = list(predict_pictures(run, [folder]))
    assert [Path(p.image).name for p in own] == ["a.png", "b.png", "c.png"]
    assert {p.samples for p in own} == {4}
    assert own == list(predict_pictures(run, [folder]))
    assert own != list(predict_pictures(run, [folder], seed=1))
    plainly = list(predict_pictures(run, [folder], samples=0))
    assert [(p.spread, p.samples) for p in plainly] == [(None, 0)] * 3
    assert plainly == list(predict_pictures(run, [folder], samples=0, seed=1))


def test_batches_give_what_single_pictures_give(run, folder, monkeypatch):
    together = list(predict_pictures(run, [folder], samples=0))
    monkeypatch.setattr("pdeplus.evaluation.deployment.BATCH", 2)
    parted = list(predict_pictures(run, [folder], samples=0))
    assert [p.label for p in together] == [p.label for p in parted]
    assert [p.probability for p in together] == pytest.approx([p.probability for p in parted], abs=1e-6)
    noisy = list(predict_pictures(run, [folder / "a.png"] * 4, samples=2))
    assert noisy[0].probability != noisy[2].probability  # each batch draws for itself


def test_grey_runs_see_the_mean_of_the_colours(grey, folder):
    (said,) = predict_pictures(grey, [folder / "a.png"])
    x = torch.from_numpy(read_picture(folder / "a.png")).float().mean(-1)[None, None] / 255
    assert said.probability == pytest.approx(grey.model(x).softmax(-1).max().item(), abs=1e-5)
    assert said.samples == 0
    with pytest.raises(UserError, match="samples=3: the method erm has no noise to sample; leave it out or use 0"):
        next(predict_pictures(grey, [folder], samples=3))
    assert list(predict_pictures(grey, [folder], samples=0))


@pytest.mark.parametrize(
    ("option", "words"), [({"samples": -1}, "samples=-1"), ({"top": 0}, "top=0 must be at least 1")]
)
def test_bad_options(run, folder, option, words):
    with pytest.raises(UserError, match=words):
        next(predict_pictures(run, [folder], **option))


def test_shapes_no_picture_can_have(run, folder, tmp_path):
    (copy := tmp_path / "odd").mkdir()
    for name in ("config.toml", "model.safetensors"):
        (copy / name).write_bytes((run.path / name).read_bytes())
    for shape in ([2, 16, 16], [3, 16, 20]):
        (copy / "model.json").write_text(json.dumps({"classes": list("0123456789"), "shape": shape}))
        with pytest.raises(UserError, match="takes images of .×16×..; pictures can be made"):
            next(predict_pictures(Run.load(copy), [folder]))


def test_the_command_prints_an_aligned_table(capsys, run, folder):
    code, out, err = answer(capsys, "predict", str(run.path), str(folder), "--samples", "5", "--top", "2")
    assert (code, err) == (0, "")
    head, *rows = out.splitlines()
    assert head.split() == ["image", "label", "probability", "spread", "next"]
    assert len(rows) == 3
    for column in ("label", "probability", "spread", "next"):
        place = head.index(column)
        assert all(row[place - 1] == " " and row[place] != " " for row in rows)
    _, out, _ = answer(capsys, "predict", str(run.path), str(folder), "--samples", "0", "--top", "1")
    assert out.splitlines()[0].split() == ["image", "label", "probability"]


def test_the_command_prints_json_lines(capsys, run, folder):
    arguments = ["predict", str(run.path), str(folder), "--json", "--samples", "5", "--seed", "3", "--top", "2"]
    code, out, err = answer(capsys, *arguments)
    assert (code, err) == (0, "")
    lines = [json.loads(line) for line in out.splitlines()]
    assert [set(line) for line in lines] == [{"image", "label", "probability", "spread", "top", "samples"}] * 3
    assert all(line["spread"] > 0 and len(line["top"]) == 2 and line["samples"] == 5 for line in lines)
    assert lines[0]["top"][0] == [lines[0]["label"], lines[0]["probability"]]
    assert answer(capsys, *arguments)[1] == out


@pytest.mark.parametrize("form", [[], ["--json"]])
def test_a_broken_picture_does_not_stop_the_others(capsys, run, folder, form):
    (folder / "b.png").write_text("no picture")
    (folder / "empty").mkdir()
    images = [str(folder / name) for name in ("a.png", "b.png", "none.png", "empty", "c.png")]
    code, out, err = answer(capsys, "predict", str(run.path), *images, *form)
    assert code == 2
    assert "a.png" in out
    assert "c.png" in out
    assert "b.png" not in out
    assert err.count("\n") == 1
    for words in ("b.png cannot be read as a picture", "none.png: there is no such file", "empty holds no pictures"):
        assert words in err
