"""Random numbers from a passed generator, on the device of a given tensor."""

import math

import torch
from torch import Tensor


def uniform(n: int, low: float, high: float, like: Tensor, generator: torch.Generator | None) -> Tensor:
    """`n` numbers from U(low, high)."""
    return torch.rand(n, generator=generator, device=like.device) * (high - low) + low


def integers(n: int, low: int, high: int, like: Tensor, generator: torch.Generator | None) -> Tensor:
    """`n` whole numbers from low, …, high - 1."""
    return torch.randint(low, high, (n,), generator=generator, device=like.device)


def normal(*shape: int, like: Tensor, generator: torch.Generator | None) -> Tensor:
    """Numbers from N(0, 1)."""
    return torch.randn(shape, generator=generator, device=like.device)


def signs(n: int, like: Tensor, generator: torch.Generator | None) -> Tensor:
    """`n` times -1 or 1, as likely."""
    return integers(n, 0, 2, like, generator) * 2.0 - 1


def arcsine(n: int, like: Tensor, generator: torch.Generator | None) -> Tensor:
    """`n` numbers from Beta(1/2, 1/2), by its inverse distribution function."""
    return (uniform(n, 0, math.pi / 2, like, generator)).sin().square()


def beta(n: int, alpha: float, like: Tensor, generator: torch.Generator | None) -> Tensor:
    """`n` numbers from Beta(alpha, alpha): a / (a + b) with a and b from Gamma(alpha)."""
    shape = torch.full((2, n), alpha, dtype=torch.float64, device=like.device)
    a, b = torch._standard_gamma(shape, generator=generator)  # pyright: ignore[reportPrivateUsage, reportPrivateImportUsage]
    return (a / (a + b)).float()


def simplex(width: int, n: int, like: Tensor, generator: torch.Generator | None) -> Tensor:
    """Width × n weights from Dirichlet(1, …, 1), each column of sum 1: normalised exponential numbers."""
    exponential = -torch.log1p(-uniform(width * n, 0, 1, like, generator)).clamp(max=-1e-9).view(width, n)
    return exponential / exponential.sum(0)
