"""The tutorials' commands and the newcomer's script, run as they stand in a fresh folder with real pictures."""

import runpy
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file
from support.commands import answer
from support.data_files import write_class_folders
from support.pages import ROOT, shell
from support.peers import peer

import pdeplus as pp
from pdeplus.evaluation.deployment import export
from pdeplus.evaluation.given_models import open_model
from pdeplus.evaluation.records import read_records

PACS = ROOT.parent / "shared" / "data" / "pacs-64" / "photo"
COMMANDS = [line for line in shell(ROOT / "docs" / "gallery" / "how_robust.py") if line.startswith("pdeplus ")]
WITHOUT_PDEPLUS = """
import sys
sys.modules["pdeplus"] = None  # importing it fails
import onnxruntime, torch
x = torch.load("x.pt")
program = torch.export.load("robust.pt2").module()(x)
onnx = onnxruntime.InferenceSession("robust_model/model.onnx").run(None, {"images": x.numpy()})[0]
torch.save((program, torch.from_numpy(onnx)), "logits.pt")
"""
RAIN = """
def rain(image, severity, generator):
    return image * (1 - severity / 10)
"""


@pytest.mark.filterwarnings("ignore:.*no better than chance")
def test_how_robust(tmp_path, monkeypatch, capsys):
    """Small: four pictures of two classes, two corruptions at one severity."""
    peer("timm")
    pytest.importorskip("vl_convert")
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    if PACS.is_dir():
        for name in ("dog", "guitar"):
            (tmp_path / "my_pictures" / name).mkdir(parents=True)
            for picture in sorted((PACS / name).iterdir())[:2]:
                shutil.copy(picture, tmp_path / "my_pictures" / name)
    else:
        write_class_folders(tmp_path / "my_pictures", ("dog", "guitar"), 2, seed=0)
    given = open_model("timm:test_resnet?pretrained=false", ("dog", "guitar"))
    assert isinstance(given.model, torch.nn.Module)
    save_file({k: v for k, v in given.model.state_dict().items() if not k.startswith("input_")}, "mine.safetensors")
    export(given, "torch", "my_net.pt2")
    (tmp_path / "my_corruptions.py").write_text(RAIN)
    hub, *others = COMMANDS
    assert "timm:resnet18.a1_in1k" in hub  # whose weights are not at hand
    for command in others:
        less = [] if "--corruption" in command else ["--corruption", "fog", "contrast", "--severity", "3"]
        code, out, err = answer(capsys, *shlex.split(command)[1:], *less)
        assert code == 0, err
        assert "Try next: pdeplus train finetune data.root=my_pictures" in out
        assert " of the clean images correctly, and " in out
    first, second = (read_records(path) for path in sorted((tmp_path / "both").glob("*/records.jsonl")))
    assert [r.nll for r in first] == pytest.approx([r.nll for r in second], rel=1e-3)  # the same network twice
    assert {r.origin for r in first} == {r.origin for r in second}  # on the same images
    assert "timm:test_resnet (mine)" in (tmp_path / "robust.html").read_text("utf-8")
    assert "corrupted (fog, my_corruptions.rain × severity 3) " in out


@pytest.mark.skipif(not PACS.is_dir(), reason="PACS is not at hand")
@pytest.mark.filterwarnings("ignore:.*no better than chance")
def test_the_newcomers_script(tmp_path, monkeypatch, capsys):
    """Tested, fine-tuned, compared on one page, exported, saved, and loaded where there is no pdeplus."""
    for name in ("timm", "onnxruntime", "onnxscript"):
        peer(name)
    monkeypatch.chdir(tmp_path)
    for part, some in (("train", slice(8)), ("test", slice(20, 22))):
        for name in ("dog", "guitar"):
            (tmp_path / "my_pictures" / part / name).mkdir(parents=True)
            for picture in sorted((PACS / name).iterdir())[some]:
                shutil.copy(picture, tmp_path / "my_pictures" / part / name)
    model = "timm:test_resnet?pretrained=false"
    short = ["train.epochs=1", "train.batch_size=8", "train.precision=fp32"]
    monkeypatch.setattr(sys, "argv", ["newcomer.py", "my_pictures", model, *short])
    runpy.run_path(str(ROOT / "examples" / "newcomer.py"))
    assert "epoch 1 of 1" in capsys.readouterr().err
    before, after = (read_records(Path(folder) / "records.jsonl") for folder in ("before", "runs/pde"))
    assert len(before) == len(after) == 1 + 15 * 3
    assert {r.origin for r in before} == {r.origin for r in after}  # one table for both
    page = Path("compared.html").read_text("utf-8")
    assert "as it came" in page
    assert "PDE+" in page
    less = ["--corruption", "fog", "--severity", "3", "--report", "both.html"]
    code, out, err = answer(capsys, "evaluate", model, "runs/pde", "--data", "my_pictures", *less)
    assert code == 0, err
    fog = next(r for r in after if (r.corruption, r.severity) == ("fog", 3))
    assert f"corrupted (fog × severity 3) {100 * fog.accuracy:.2f} %" in out
    x = torch.rand(3, 3, 160, 160)
    torch.save(x, "x.pt")
    subprocess.run([sys.executable, "-c", WITHOUT_PDEPLUS], check=True, timeout=200)
    expected = pp.from_pretrained("robust_model")(x)
    for logits in torch.load("logits.pt"):
        torch.testing.assert_close(logits, expected, rtol=1e-4, atol=1e-4)
