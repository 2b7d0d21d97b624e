"""Noise: independent errors of every channel value."""

from functools import lru_cache

import numpy as np
import torch
from scipy import special
from torch import Tensor

from .base import Draws, corruption

LEVELS = 256
REACH = 9.0
"""Standard deviations from the mean within which numbers fall; beyond lies less than 10⁻¹⁷."""


def poisson_numbers(levels: Tensor, rate: float, uniform: Tensor) -> Tensor:
    """Poisson numbers of the rates levels · rate, of whole grey levels, from one uniform number in [0, 1) each."""
    share, number = (table.to(levels.device) for table in _tables(rate))
    columns = share.shape[1]
    scaled = uniform * columns
    column = scaled.floor()
    place = levels.mul(columns).add_(column).int().view(-1)
    stays = scaled.sub_(column).view(-1) < share.view(-1).index_select(0, place)
    return number.view(-1).index_select(0, place.mul_(2).add_(stays)).view_as(levels)


@lru_cache(maxsize=16)
def _tables(rate: float) -> tuple[Tensor, Tensor]:
    """For each level and column: the share of the column's own number, and the two numbers (the other's, its own)."""
    mean = np.arange(LEVELS)[:, None] * rate
    lowest = np.floor(np.maximum(mean - REACH * np.sqrt(mean) - REACH, 0))
    most = int((mean + REACH * np.sqrt(mean) + REACH - lowest).max()) + 1
    columns = np.arange(1 << (most - 1).bit_length())  # a power of two, so that splitting a uniform number is exact
    number = lowest + columns
    mass = np.exp(special.xlogy(number, mean) - special.gammaln(number + 1) - mean) * len(columns)
    own = np.ones_like(mass)
    other = np.tile(columns, (LEVELS, 1))
    row = np.arange(LEVELS)
    while True:  # the smallest column is filled up to 1 from the largest, and is done with
        small, large = mass.argmin(1), mass.argmax(1)
        lack = 1 - mass[row, small]
        if lack.max() < 1e-9:
            break
        own[row, small], other[row, small] = 1 - lack, large
        mass[row, large] -= lack
        mass[row, small] = 1
    numbers = lowest[..., None] + np.stack([other, np.broadcast_to(columns, other.shape)], -1)
    return torch.from_numpy(own).float(), torch.from_numpy(numbers).float()


@corruption(
    "noise",
    cifar=(0.04, 0.06, 0.08, 0.09, 0.10),
    tiny=(0.04, 0.08, 0.12, 0.15, 0.18),
    imagenet=(0.08, 0.12, 0.18, 0.26, 0.38),
)
def gaussian_noise(x: Tensor, draws: Draws, std: float) -> Tensor:
    """Additive Gaussian noise."""
    return draws.normal(*x.shape[1:]).mul_(255 * std).add_(x)


@corruption(
    "noise", cifar=(500, 250, 100, 75, 50), tiny=(250, 100, 50, 30, 15), imagenet=(60, 25, 12, 5, 3)
)  # fmt: skip
def shot_noise(x: Tensor, draws: Draws, photons: float) -> Tensor:
    """Counted photons: Poisson with `photons` for white."""
    return poisson_numbers(x, photons / 255, draws.uniform(0, 1, *x.shape[1:])).mul_(255 / photons)


@corruption(
    "noise",
    cifar=(0.01, 0.02, 0.03, 0.05, 0.07),
    tiny=(0.01, 0.02, 0.05, 0.08, 0.14),
    imagenet=(0.03, 0.06, 0.09, 0.17, 0.27),
)
def impulse_noise(x: Tensor, draws: Draws, amount: float) -> Tensor:
    """Salt and pepper: this share of the values becomes 0 or 255, half each."""
    u = draws.uniform(0, 1, *x.shape[1:])
    return torch.where(u < amount / 2, 0.0, torch.where(u < amount, 255.0, x))
