"""Real pictures where the data sets are at hand, drawn ones otherwise."""

import pickle
from functools import cache
from pathlib import Path

import torch

from pdeplus.data.synthetic import draw

CIFAR = Path(__file__).parents[3] / "shared" / "data" / "cifar-10-batches-py" / "test_batch"


@cache
def pictures(n: int = 16) -> torch.Tensor:
    """n×3×32×32 unsigned bytes: CIFAR-10's first test images."""
    if not CIFAR.exists():
        return draw("photo", n, 32, torch.Generator().manual_seed(0)).images[:n]
    rows = pickle.loads(CIFAR.read_bytes(), encoding="bytes")[b"data"][:n]
    return torch.from_numpy(rows.copy()).view(n, 3, 32, 32)
