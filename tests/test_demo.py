"""The demo at a fraction of its size, and its table."""

import pytest
import torch

import pdeplus as pp
from pdeplus import demo
from pdeplus._errors import UserError
from pdeplus.data.base import Images

TINY = ["model.width=2", "data.size=8", "train.limit=80", "train.epochs=1"]


def test_demo_prints_a_table_draws_a_figure_and_trains_nothing_twice(tmp_path, capsys):
    demo.run_demo(tmp_path, TINY)
    shown = capsys.readouterr().out
    assert "| ERM |" in shown
    assert "| PDE+ |" in shown
    assert "pdeplus train demo" in shown
    assert (tmp_path / "figure.png").read_bytes().startswith(b"\x89PNG")
    assert (tmp_path / "table.md").read_text() in shown
    weights = (tmp_path / "erm" / "model.safetensors").stat().st_mtime_ns
    demo.run_demo(tmp_path, TINY)
    assert (tmp_path / "erm" / "model.safetensors").stat().st_mtime_ns == weights
    assert capsys.readouterr().out == shown
    with pytest.raises(UserError, match="other settings"):
        demo.run_demo(tmp_path, [*TINY, "seed=1"])


def test_grey_images_are_refused_before_training(tmp_path):
    with pytest.raises(UserError, match="three channels, not 1; add data.channels=3"):
        demo.run_demo(tmp_path, [*TINY, "data.channels=1"])
    assert not list(tmp_path.iterdir())


def test_the_fifteen_corruptions_are_those_of_the_suite():
    images = Images(torch.randint(0, 256, (3, 3, 16, 16), dtype=torch.uint8), torch.zeros(3, dtype=torch.long))
    versions = demo.versions(images)
    assert tuple(versions) == ("clean", *pp.CORRUPTIONS)
    pixels = images.images.permute(0, 2, 3, 1)
    assert torch.equal(versions["clean"], pixels)
    assert torch.equal(versions["fog"], pp.corrupt(pixels, "fog", 5))


def test_table_by_hand():
    row = dict.fromkeys(pp.CORRUPTIONS, 0.5) | {"clean": 1.0, "gaussian_noise": 0.2, "fog": 0.9}
    table = demo.format_table({"A": row})
    assert "| clean | noise | blur | weather | digital | mean of 15 |" in table
    assert "| A | 100.0 | 40.0 | 50.0 | 60.0 | 50.0 | 50.7 |" in table
