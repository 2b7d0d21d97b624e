"""Gaussian smoothing by matrices, one for the rows and one for the columns of each image."""

import torch
from torch import Tensor
from torch.nn import functional as F

REACH = 4
"""Standard deviations after which a Gaussian counts as zero."""


def blurred(x: Tensor, sigma: Tensor) -> Tensor:
    """Convolve image b with a Gaussian of standard deviation sigma[b] pixels; the edge repeats."""
    h, w = x.shape[-2:]
    across = _averages(w, sigma)
    down = across if h == w else _averages(h, sigma)
    return down.unsqueeze(1).to(x.dtype) @ x @ across.mT.unsqueeze(1).to(x.dtype)


def smoothed_noise(noise: Tensor, sigma: float) -> Tensor:
    """White noise (…×H×W, of variance 1) weighed with a Gaussian of `sigma` pixels; the variance stays 1 everywhere."""
    width = torch.full((1,), sigma, device=noise.device)
    down, across = (F.normalize(_gaussians(n, 0, width)[0]) for n in noise.shape[-2:])
    return down @ noise @ across.mT


def _averages(n: int, sigma: Tensor) -> Tensor:
    """B×n×n: row i holds the weights with which pixel i averages a line of n pixels."""
    reach = max(1, round(REACH * float(sigma.max()))) if len(sigma) else 1
    weights = _gaussians(n, reach, sigma)
    weights = weights / weights.sum(2, keepdim=True)
    inside = weights[:, :, reach:-reach].clone()
    inside[:, :, 0] += weights[:, :, :reach].sum(2)
    inside[:, :, -1] += weights[:, :, -reach:].sum(2)
    return inside


def _gaussians(n: int, reach: int, sigma: Tensor) -> Tensor:
    """B×n×(n + 2 reach): row i is a Gaussian about pixel i, on a line that goes on by `reach` at both ends."""
    source = torch.arange(-reach, n + reach, device=sigma.device)
    squared = (torch.arange(n, device=sigma.device).view(n, 1) - source).square()
    return torch.exp(squared * (-0.5 / sigma.clamp(min=1e-3).square()).view(-1, 1, 1))
