"""Import a peer package or skip the test; torchvision, which the others import too, needs help first."""

import contextlib
import os
import warnings
from functools import cache
from types import ModuleType

import pytest
import torch


def peer(name: str) -> ModuleType:
    """The package, or a skipped test where it is not installed."""
    os.environ.setdefault("HF_HUB_OFFLINE", "1")
    _declare_torchvision_operators()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return pytest.importorskip(name, exc_type=ImportError)


@cache
def _declare_torchvision_operators() -> torch.library.Library:
    """Beside a CPU build of torch the wheel's compiled operators are missing; their schemas suffice."""
    library = torch.library.Library("torchvision", "FRAGMENT")  # of which there may be several
    for name in ("nms", "qnms"):
        with contextlib.suppress(RuntimeError):  # the wheel may have brought its own
            library.define(f"{name}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
    return library
