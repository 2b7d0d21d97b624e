"""The demo at a fraction of its size, and its shifts."""

import pytest
import torch

from pdeplus import demo
from pdeplus._errors import UserError

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


def test_shifts_do_what_they_say():
    x = torch.rand(64, 3, 32, 32)
    assert (demo.gaussian_noise(torch.full_like(x, 0.5)) - 0.5).std().item() == pytest.approx(0.24, abs=0.01)
    assert torch.allclose(demo.contrast(x).std((1, 2, 3)), 0.2 * x.std((1, 2, 3)), rtol=1e-3)
    assert torch.allclose(demo.blur(torch.full_like(x, 0.3)), torch.tensor(0.3))
    point = torch.zeros(1, 1, 31, 31)
    point[0, 0, 15, 15] = 1
    spread = demo.blur(point)[0, 0]
    distance = (torch.arange(31) - 15.0) ** 2
    assert (spread.sum(0) * distance).sum().sqrt().item() == pytest.approx(2.5, rel=0.02)
    assert demo.brightness(torch.zeros(1, 1, 2, 2)).unique().tolist() == [0.5]
    assert demo.pixelate(x)[0, 0].unique().numel() <= 100


def test_table_by_hand():
    table = demo.format_table({"A": {"clean": 1.0, "noise": 0.5, "blur": 0.25}})
    assert "| A | 100.0 | 50.0 | 25.0 | 37.5 |" in table
