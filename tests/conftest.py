"""Shared by all tests: small networks, seeded inputs, and a guard on torch's global random state."""

from collections.abc import Iterator

import pytest
import torch
from torch import nn

from pdeplus.models.resnet18 import build

STAGES = ["layer1", "layer2", "layer3", "layer4"]


@pytest.fixture(autouse=True)
def _seeded() -> Iterator[None]:
    with torch.random.fork_rng():
        torch.manual_seed(0)
        yield


@pytest.fixture
def net() -> nn.Module:
    """A small ResNet-18 whose BatchNorm statistics are not the initial ones."""
    model = build(classes=10, channels=3, width=4)
    with torch.no_grad():
        for _ in range(3):
            model(torch.rand(8, 3, 16, 16) * 2)
    return model.eval()


@pytest.fixture
def x() -> torch.Tensor:
    return torch.rand(6, 3, 16, 16)
