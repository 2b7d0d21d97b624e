"""Shared folders: complete, without paths of this machine, loadable with and without pdeplus, and over the hub."""

import json
import shutil

import pytest
import torch
from PIL import Image
from support.commands import answer
from support.hub import local_hub
from support.peers import peer
from support.runs import trained

import pdeplus as pp
from pdeplus.data.digits import Digits
from pdeplus.evaluation import sharing
from pdeplus.evaluation.sharing import FILES
from pdeplus.training import run_files


@pytest.fixture(scope="module")
def run(tmp_path_factory) -> pp.Run:
    """A small PDE+ run, tested on the clean images and at one severity."""
    run = trained(tmp_path_factory.mktemp("shared") / "run", "train.limit=100", "train.epochs=1")
    pp.evaluate(run, "clean", limit=20)
    pp.evaluate(run, "cbar", limit=20, severities=[3])
    return run


@pytest.fixture(scope="module")
def folder(run, tmp_path_factory):
    peer("onnxruntime")
    peer("onnxscript")
    return pp.save_pretrained(run, tmp_path_factory.mktemp("saved") / "model")


def test_a_saved_folder_loads_as_the_run_does(run, folder):
    x = torch.rand(3, 3, 8, 8)
    net = pp.from_pretrained(folder)
    assert torch.equal(net(x), pp.load_model(run.path)(x))
    assert net.classes == run.expects.classes
    assert not any(p.requires_grad for p in net.parameters())
    noisy = pp.from_pretrained(folder, diffusion=True)
    same = [pp.predict(n, x, 3, generator=torch.Generator().manual_seed(0)) for n in (noisy, run.model)]
    assert torch.equal(*same)
    assert {path.name for path in folder.iterdir()} <= {*FILES}


@pytest.mark.parametrize("selection", ["validation", "last"])
def test_a_saved_folder_is_tested_and_asked_like_the_run(run, tmp_path, selection, capsys):
    folder = pp.save_pretrained(run, tmp_path / "model", selection=selection, onnx=False)
    (folder / "records.jsonl").unlink()
    tested, again = (pp.evaluate(one, "clean", limit=20, selection=selection) for one in (run, folder))
    assert [(r.correct, r.weights, r.epoch) for r in again] == [(r.correct, r.weights, r.epoch) for r in tested]
    Image.new("RGB", (8, 8), "gray").save(tmp_path / "gray.png")
    code, out, err = answer(capsys, "predict", str(folder), str(tmp_path / "gray.png"))
    assert (code, err) == (0, "")
    assert "gray.png" in out


def test_the_card_has_the_records_numbers(run, folder):
    text = (folder / "README.md").read_text("utf-8")
    records = pp.read_records(folder / "records.jsonl")
    assert len(records) == 12  # clean for each suite, and ten corruptions
    for record in records:
        assert f"| {record.corruption} | {100 * record.accuracy:.2f} % |" in text
    for part in ("pp.from_pretrained", "onnxruntime.InferenceSession", "Overlap audit", "FLOPs per image", "Protocol"):
        assert part in text
    assert f"{records[0].parameters:.4g} parameters" in text
    about = json.loads((folder / "config.json").read_text())
    assert list(about["id2label"].values()) == list(run.expects.classes)


def test_the_card_without_pdeplus_is_right(run, folder):
    runtime = peer("onnxruntime")
    x = torch.rand(4, 3, 8, 8)
    (logits,) = runtime.InferenceSession(str(folder / "model.onnx")).run(None, {"images": x.numpy()})
    torch.testing.assert_close(torch.from_numpy(logits), pp.load_model(run.path)(x), rtol=1e-4, atol=1e-4)


def test_no_path_of_this_machine_is_shared(tmp_path):
    digits, pictures = Digits(size=8).train(), tmp_path / "pictures"
    for place in range(120):
        home = pictures / str(int(digits.labels[place]) % 2)
        home.mkdir(parents=True, exist_ok=True)
        Image.fromarray(digits.images[place].permute(1, 2, 0).numpy()).save(home / f"{place}.png")
    settings = ["model.name=plain_cnn", "model.width=4", "data.size=8", "train.epochs=1", "method.name=erm"]
    run = pp.train("demo", tmp_path / "run", data=pictures, settings=settings)
    pp.evaluate(run, "clean")
    folder = pp.save_pretrained(run, tmp_path / "model", onnx=False)
    assert str(tmp_path).encode() not in b"".join(path.read_bytes() for path in folder.iterdir())
    shutil.rmtree(pictures)
    assert pp.from_pretrained(folder)(torch.rand(1, 3, 8, 8)).shape == (1, 2)


def test_a_strangers_folder_runs_no_code(folder, tmp_path):
    theirs = tmp_path / "theirs"
    shutil.copytree(folder, theirs)
    (theirs / "sums.json").unlink()
    config = (theirs / "config.toml").read_text("utf-8")
    (theirs / "config.toml").write_text(config.replace('name = "plain_cnn"', 'name = "antigravity.anything"'), "utf-8")
    with pytest.raises(
        pp.UserError, match="would import the module antigravity.anything, which is not part of pdeplus"
    ):
        pp.from_pretrained(theirs)


def test_wrong_folders_are_answered_in_one_line(run, folder, tmp_path):
    with pytest.raises(pp.UserError, match="already holds files; choose a new folder"):
        pp.save_pretrained(run, folder)
    (tmp_path / "other").mkdir()
    with pytest.raises(pp.UserError, match="has no config.toml and model.safetensors as pdeplus saves them"):
        pp.from_pretrained(tmp_path / "other")


@pytest.mark.parametrize("last", ["model.json", "config.json", "model.safetensors"])
def test_saving_that_was_cut_short_begins_again(run, tmp_path, monkeypatch, last):
    folder, write = tmp_path / "model", sharing.write_file

    def full(path, data):
        if path.name == last:
            raise pp.UserError(f"{path} cannot be written: No space left on device")
        write(path, data)

    for module in (sharing, run_files):
        monkeypatch.setattr(module, "write_file", full)
    with pytest.raises(pp.UserError, match="No space left"):
        pp.save_pretrained(run, folder, onnx=False)
    with pytest.raises(pp.UserError, match="has no config.toml and model.safetensors"):
        pp.from_pretrained(folder)
    (folder / "model.onnx").write_bytes(b"of the first try")
    monkeypatch.undo()
    pp.save_pretrained(run, folder, onnx=False)
    whole = pp.save_pretrained(run, tmp_path / "whole", onnx=False)
    assert {p.name: p.read_bytes() for p in folder.iterdir()} == {p.name: p.read_bytes() for p in whole.iterdir()}
    with pytest.raises(pp.UserError, match="already holds files"):
        pp.save_pretrained(run, folder, onnx=False)


def test_over_the_hub(run, tmp_path, monkeypatch):
    settings = {"HF_HUB_OFFLINE": False, "HF_HUB_CACHE": str(tmp_path / "cache"), "HF_HUB_DISABLE_XET": True}
    for name, value in settings.items():
        monkeypatch.setattr(peer("huggingface_hub.constants"), name, value)
    with local_hub() as (endpoint, repositories):
        address = pp.push_to_hub(run, "someone/robust", token="hf_test", endpoint=endpoint, onnx=False)
        assert address == f"{endpoint}/someone/robust"
        assert repositories["someone/robust"].keys() <= {*FILES}
        repositories["someone/robust"]["evil.py"] = b"raise SystemExit"
        net = pp.from_pretrained("someone/robust", endpoint=endpoint, token="hf_test")
        x = torch.rand(2, 3, 8, 8)
        assert torch.equal(net(x), pp.load_model(run.path)(x))
        assert not list((tmp_path / "cache").rglob("evil.py"))
        with pytest.raises(pp.UserError, match="someone/nothing on the hub: .*; check the name and the connection"):
            pp.from_pretrained("someone/nothing", endpoint=endpoint, token="hf_test")
