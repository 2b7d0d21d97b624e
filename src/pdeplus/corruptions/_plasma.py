"""Plasma clouds: the diamond-square fractal, for a whole batch at once."""

import torch
from torch import Tensor

from .base import Draws


def plasma(draws: Draws, h: int, w: int, decay: float) -> Tensor:
    """A cloud per image in [0, 1], N×H×W.

    Diamond-square on a torus whose side is the next power of two: a new point is a quarter of the sum of its four
    neighbours plus U(-a, a); a falls by decay² with every halving of the grid.
    """
    size = 1 << (max(h, w, 2) - 1).bit_length()
    noise = draws.uniform(-1, 1, size, size)
    cloud = torch.zeros_like(noise)
    step, amplitude = size, 1.0
    while step >= 2:
        half = step // 2
        noise_here = noise * amplitude  # each point is set once, so each takes its own number
        corners = cloud[:, ::step, ::step]
        centres = _quarter(corners, (0, 0), (-1, 0), (0, -1), (-1, -1)) + noise_here[:, half::step, half::step]
        cloud[:, half::step, half::step] = centres
        across = _quarter(corners, (0, 0), (0, -1)) + _quarter(centres, (0, 0), (1, 0))
        cloud[:, ::step, half::step] = across + noise_here[:, ::step, half::step]
        down = _quarter(corners, (0, 0), (-1, 0)) + _quarter(centres, (0, 0), (0, 1))
        cloud[:, half::step, ::step] = down + noise_here[:, half::step, ::step]
        step, amplitude = half, amplitude / decay**2
    low, high = cloud.amin((1, 2), keepdim=True), cloud.amax((1, 2), keepdim=True)
    return ((cloud - low) / (high - low))[:, :h, :w]


def _quarter(grid: Tensor, *shifts: tuple[int, int]) -> Tensor:
    """A quarter of the sum of the shifted grids."""
    total = torch.zeros_like(grid)
    for shift in shifts:
        total += grid.roll(shift, (1, 2))
    return total / 4
