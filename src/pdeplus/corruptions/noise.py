"""Noise: independent errors of every channel value."""

import torch
from torch import Tensor

from ._poisson import poisson_numbers
from .base import Draws, corruption


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


@corruption(
    "noise",
    cifar=(0.06, 0.1, 0.12, 0.16, 0.2),
    tiny=(0.15, 0.2, 0.25, 0.3, 0.35),
    imagenet=(0.15, 0.2, 0.35, 0.45, 0.6),
    extra=True,
)
def speckle_noise(x: Tensor, draws: Draws, std: float) -> Tensor:
    """Multiplicative Gaussian noise."""
    return draws.normal(*x.shape[1:]).mul_(std).add_(1).mul_(x)
