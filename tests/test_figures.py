"""The documentation's figures: drawn from what is measured, and the committed ones up to date."""

from pathlib import Path
from xml.etree import ElementTree

import pytest
import torch
from support.hand_records import one_seed
from tools.figures import _telling_image, cost_points, method_figure, sigma_figure
from torch import nn

import pdeplus as pp
from pdeplus.data.base import Images
from pdeplus.evaluation.records import append_records

ROOT = Path(__file__).parents[1]


def test_the_method_is_drawn_for_light_and_dark_and_the_file_is_up_to_date():
    drawn = method_figure()
    ElementTree.fromstring(drawn)
    assert "prefers-color-scheme:dark" in drawn
    assert drawn == (ROOT / "docs" / "figures" / "method.svg").read_text("utf-8"), "run: make figures"


class Threshold(nn.Module):
    """Class 1 where the mean brightness is above a limit."""

    def __init__(self, limit: float) -> None:
        super().__init__()
        self.limit = limit

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        bright = (x.mean((1, 2, 3)) > self.limit).float()
        return torch.stack([1 - bright, bright], 1)


def test_the_picture_is_the_first_on_which_models_differ_under_the_corruption():
    """Brightness of severity 5 adds about 0.3: a dark image passes the low limit and not the high one."""
    grey = torch.tensor([250, 100, 90], dtype=torch.uint8).reshape(3, 1, 1, 1).expand(3, 3, 8, 8).contiguous()
    test = Images(grey, torch.tensor([1, 0, 0]))
    assert _telling_image({"a": Threshold(0.45), "b": Threshold(0.9)}, test, "brightness", 5) == 1


def test_sigma_has_a_row_for_each_block():
    model = nn.Sequential(nn.Conv2d(3, 4, 3, stride=2, padding=1), nn.Conv2d(4, 4, 3), nn.Flatten(), nn.Linear(36, 2))
    images = Images(torch.full((5, 3, 10, 10), 7, dtype=torch.uint8), torch.zeros(5, dtype=torch.long))
    net = pp.add_diffusion(model, after=["0", "1"], example=images.floats())
    figure = sigma_figure(net.eval(), images)
    assert [axis.get_ylabel() for axis in figure.axes if axis.get_ylabel()] == ["σ, block 1", "σ, block 2"]


def test_cost_is_relative_to_the_baselines_training_and_accuracy_is_the_mean_over_corruptions(tmp_path):
    erm = one_seed(lambda name, severity: 0.0 if name == "clean" else 0.5, model="ERM", config="a", train_flops=4e15)
    other = one_seed(lambda name, severity: 0.1 * severity, model="AugMix", config="b", train_flops=1e16)
    append_records(tmp_path / "records.jsonl", [*erm, *other])
    points, unit = cost_points(tmp_path / "records.jsonl")
    assert unit == 4e15
    assert points == {"ERM": (1.0, pytest.approx(50)), "AugMix": (2.5, pytest.approx(70))}
