"""The commands of the tutorials run one after the other, on a tiny folder and with a small network."""

import shlex

import numpy as np
import pytest
from PIL import Image
from support.commands import answer
from support.pages import ROOT, shell
from support.peers import peer

COMMANDS = [line for line in shell(ROOT / "docs" / "gallery" / "finetune.py") if line.startswith("pdeplus ")]
SMALL = ["model.pretrained=false", "data.size=32", "train.epochs=1", "train.batch_size=4", "train.precision=fp32"]
RESUMED = ["train.epochs=2"]


@pytest.mark.usefixtures("cells_here")
def test_fine_tuning(tmp_path, monkeypatch, capsys):
    peer("timm")
    monkeypatch.chdir(tmp_path)
    for label, name in enumerate(("cat", "dog")):
        (tmp_path / "my_pictures" / name).mkdir(parents=True)
        for i in range(8):
            pixels = np.random.default_rng(i).integers(0, 100, (40, 50, 3)) + 100 * label
            Image.fromarray(pixels.astype(np.uint8)).save(tmp_path / "my_pictures" / name / f"{i}.png")
    ran = [shlex.split(line) for line in COMMANDS]
    assert [words[1] for words in ran] == [
        *["train"] * 3, "evaluate", "report", "predict", "train", "sweep", "export",
    ]  # fmt: skip
    for words in ran:
        words = [word.replace("resnet18.a1_in1k", "resnet10t.c3_in1k") for word in words[1:]]
        if "--resume" in words:
            words = [word for word in words if "epochs" not in word] + RESUMED
        elif words[0] in ("train", "sweep"):
            words[2:2] = SMALL
        if "--limit" in words:
            words[words.index("--limit") + 1] = "2"
            words += ["--severity", "3"] if words[0] == "evaluate" else ["--tests", "clean"]
        code, _, err = answer(capsys, *words)
        assert code == 0, (words, err)
    assert (tmp_path / "report.html").is_file()
    assert (tmp_path / "pictures.onnx").is_file()
    assert (tmp_path / "runs" / "pde-branch1" / "parent.json").is_file()
    assert (tmp_path / "compared" / "own" / "sweep-finetune" / "report.html").is_file()
