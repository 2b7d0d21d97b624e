"""Shared by all tests: small networks, seeded inputs, made images, and a guard on torch's global random state."""

import os
from collections.abc import Iterator

os.environ.setdefault("OMP_NUM_THREADS", "1")  # pytest has a worker for each core; and a fork of more threads hangs

import numpy as np
import pytest
import torch
from support.runs import trained
from torch import nn

from pdeplus.models.resnet18 import build
from pdeplus.training.run_folder import Run

LONG = ("reproduce", "jobs", "cluster", "benchmarks", "methods_contract", "readme", "distributed", "theory_surfaces")
"""The files that take longest, the longest first."""
STAGES = ["layer1", "layer2", "layer3", "layer4"]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Long files first, so that no worker is left alone with one at the end; their order plays no other part."""
    places = {f"test_{name}.py": place for place, name in enumerate(LONG)}
    items.sort(key=lambda item: places.get(item.path.name, len(LONG)))


@pytest.fixture(scope="session", autouse=True)
def _no_power_cut() -> Iterator[None]:
    """What is written is not forced onto the disk, which would take minutes: no test cuts the power."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "fsync", lambda descriptor: None)
        patch.setattr(os, "sync", lambda: None, raising=False)
        yield


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


@pytest.fixture(scope="session")
def erm(tmp_path_factory) -> Run:
    """A small network that has learnt the digits; do not write into its folder."""
    return trained(tmp_path_factory.mktemp("erm") / "run", "method.name=erm")


@pytest.fixture(scope="session")
def pde(tmp_path_factory) -> Run:
    """The same with ADD blocks."""
    return trained(tmp_path_factory.mktemp("pde") / "run", "method.name=pde_plus_stages", "train.limit=300")


@pytest.fixture(scope="session")
def images() -> np.ndarray:
    """Smooth colours, edges, flat areas, black and white: 6×20×27×3."""
    random = np.random.default_rng(0)
    rows, columns = np.mgrid[:20, :27] / 20
    waves = np.stack([np.sin(5 * rows + k) * np.cos(3 * columns * k) for k in range(1, 4)], -1)
    images = 127 + 90 * waves[None] + random.normal(0, 12, (6, 20, 27, 3))
    images[1, :, :13], images[2, 5:15, 5:15], images[3] = 255, 0, 128
    return images.clip(0, 255).astype(np.uint8)
