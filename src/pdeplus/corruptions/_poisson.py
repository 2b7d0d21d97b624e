"""Poisson numbers whose rates are known beforehand: one table a rate, one look-up a number (Walker, 1977)."""

from functools import lru_cache

import numpy as np
import torch
from scipy import stats  # type: ignore[reportMissingTypeStubs]
from torch import Tensor

LEVELS = 256
REACH = 9.0
"""Standard deviations from the mean within which numbers fall; beyond lies less than 10⁻¹⁷."""


def poisson_numbers(levels: Tensor, rate: float, uniform: Tensor) -> Tensor:
    """Poisson numbers of the rates levels · rate, made from one uniform number in [0, 1) each.

    Args:
        levels: whole grey levels, 0 to 255.
        rate: of one grey level.
        uniform: as many numbers from U(0, 1).
    """
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
    mass = np.asarray(stats.poisson.pmf(lowest + columns, mean)) * len(columns)
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
