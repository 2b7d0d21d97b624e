"""Additive Gaussian noise (Kireev et al., 2022): on all images, or on half of each batch."""

from dataclasses import dataclass
from typing import ClassVar, final

import torch
from torch import Tensor

from ..errors import UserError
from .base import Augmentor, normal, uniform


@final
@dataclass(frozen=True, kw_only=True)
class GaussianNoise(Augmentor):
    """x + std · N(0, I) on a share of the batch's images, cut to [0, 1]; the others stay as they are.

    The published recipes are std 0.05 on all images, and std 0.1 on half of them.
    """

    applies: ClassVar[tuple[str, ...]] = ("gaussian_noise",)
    std: float = 0.1
    """Standard deviation of the noise; images span [0, 1]."""
    fraction: float = 0.5
    """Share of the batch's images that get noise."""

    def __post_init__(self) -> None:
        if self.std < 0 or not 0 <= self.fraction <= 1:
            raise UserError(f"std={self.std} must be at least 0 and fraction={self.fraction} between 0 and 1")

    def __call__(self, x: Tensor, generator: torch.Generator | None = None) -> Tensor:
        n = len(x)
        # Rounded at random, so that the share is right on average in batches of any size.
        count = int(self.fraction * n + (uniform(1, 0, 1, x, generator).item() if self.fraction < 1 else 0))
        chosen = torch.randperm(n, generator=generator, device=x.device)[:count]
        noisy = x[chosen] + self.std * normal(count, *x.shape[1:], like=x, generator=generator).to(x.dtype)
        return x.index_copy(0, chosen, noisy.clamp_(0, 1))
