"""One contract for every network of the folder."""

import pytest
import torch
from support.models import smallest

from pdeplus._lib import registry
from pdeplus.core.placement import stages_of
from pdeplus.errors import UserError
from pdeplus.models.base import check_image_size, placed

NAMES = registry.names("models")


def make(name, **options):
    return registry.build("models", name, smallest(name), **options)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize(("size", "channels", "classes"), [(8, 1, 2), (9, 3, 100), (33, 4, 7), (64, 3, 10)])
def test_any_size_channels_and_classes(name, size, channels, classes):
    model = make(name, classes=classes, channels=channels)
    assert model(torch.rand(2, channels, size, size)).shape == (2, classes)


@pytest.mark.parametrize("name", NAMES)
def test_stages_and_blocks_are_modules_that_return_feature_maps(name):
    model = make(name, classes=3, channels=3).eval()
    seen = {}
    for place in stages_of(model) + placed(model, "block"):
        model.get_submodule(place).register_forward_hook(lambda m, a, out, place=place: seen.update({place: out}))
    model(torch.rand(2, 3, 16, 16))
    assert set(seen) == set(stages_of(model) + placed(model, "block"))
    assert all(out.ndim == 4 for out in seen.values())
    assert len(placed(model, "block")) > len(stages_of(model)) or name == "wide_resnet"


@pytest.mark.parametrize("name", NAMES)
def test_gradients_reach_every_parameter(name):
    model = make(name, classes=3, channels=3)
    model(torch.rand(4, 3, 16, 16)).square().sum().backward()
    assert all(p.grad is not None and p.grad.isfinite().all() for p in model.parameters() if p.requires_grad)


@pytest.mark.parametrize(
    ("name", "count"),
    [("resnet18", 11_173_962), ("resnet34", 21_282_122), ("preact_resnet18", 11_172_170), ("wide_resnet", 36_479_194)],
)
def test_published_parameter_counts(name, count):
    model = registry.build("models", name, {}, classes=10, channels=3)
    assert sum(p.numel() for p in model.parameters()) == count


def test_bad_sizes_are_refused():
    with pytest.raises(UserError, match="model.width=0"):
        registry.build("models", "resnet18", {"width": 0}, classes=10, channels=3)
    with pytest.raises(UserError, match="depth=27 must be 6n"):
        registry.build("models", "wide_resnet", {"depth": 27}, classes=10, channels=3)
    with pytest.raises(UserError, match="7×7 are too small: the least is 8×8"):
        check_image_size(7)
    with pytest.raises(UserError, match="Linear names no stages"):
        stages_of(torch.nn.Linear(2, 2))
