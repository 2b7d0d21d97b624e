"""Noise drawn uniformly from balls of several norms (Siedel et al., 2024), on part of a batch."""

import math
from dataclasses import dataclass
from typing import ClassVar, final

import torch
from torch import Tensor

from ..errors import UserError
from ._operations import grouping
from .base import Augmentor, integers, normal, uniform

RADII = {0.5: 4e5, 1.0: 200.0, 2.0: 5.0, 50.0: 0.18, 200.0: 0.15, math.inf: 0.15}
"""Largest radius for each p, for images in [0, 1] of 3 × 32 × 32 numbers."""
NUMBERS = 3 * 32 * 32


def in_ball(n: int, d: int, p: float, like: Tensor, generator: torch.Generator | None) -> Tensor:
    """`n` points (n×d) from the uniform distribution on {x : ‖x‖_p ≤ 1}, p > 0 or infinite.

    With g_i of density ∝ exp(-|t|^p) and e ~ Exp(1), g / (Σ |g_i|^p + e)^(1/p) is uniform (Barthe et al., 2005). Norms
    are distributed as r^d, so that nearly all of a ball of many dimensions lies at its surface.
    """
    if math.isinf(p):
        return uniform(n * d, -1, 1, like, generator).view(n, d)
    g = _generalised_normal(n, d, p, like, generator)
    e = -torch.log1p(-uniform(n, 0, 1, like, generator))
    return g / (g.abs().pow(p).sum(1) + e).pow(1 / p).unsqueeze(1)


def _generalised_normal(n: int, d: int, p: float, like: Tensor, generator: torch.Generator | None) -> Tensor:
    """n×d numbers of density ∝ exp(-|t|^p): U(-1, 1) · G^(1/p) with G ~ Gamma(1 + 1/p).

    |t|^p has the distribution Gamma(1/p), that of G · U^p; a normal number of variance 1/2 is the case p = 2.
    """
    if p == 2:
        return normal(n, d, like=like, generator=generator).mul_(0.5**0.5)
    shape = torch.full((n, d), 1 + 1 / p, device=like.device)
    gamma = torch._standard_gamma(shape, generator=generator)  # pyright: ignore[reportPrivateUsage, reportPrivateImportUsage]
    return uniform(n * d, -1, 1, like, generator).view(n, d).mul_(gamma.pow_(1 / p))


@final
@dataclass(frozen=True, kw_only=True)
class PNormNoise(Augmentor):
    """x + r · u on a share of the batch's images, cut to [0, 1]; the others stay as they are.

    u is uniform in the unit ball of a p-norm, p from 1/2, 1, 2, 50, 200 and infinity, and r ~ U(0, the largest radius);
    every image draws its own. The radius grows with an image's size as the norm of a constant image does, so that the
    noise of a pixel is alike at every size.
    """

    applies: ClassVar[tuple[str, ...]] = ("p_norm_noise",)
    strength: float = 1.0
    """The largest radii, as a multiple of those for small images, `RADII`."""
    share: float = 0.5
    """Probability of an image to get noise."""

    def __post_init__(self) -> None:
        if not 0 <= self.strength < math.inf or not 0 <= self.share <= 1:
            raise UserError(f"strength={self.strength} must be at least 0 and share={self.share} between 0 and 1")

    def __call__(self, x: Tensor, generator: torch.Generator | None = None) -> Tensor:
        d = x[:1].numel()
        kind = integers(len(x), 0, len(RADII), x, generator)
        left_alone = uniform(len(x), 0, 1, x, generator) >= self.share
        order, counts = grouping(kind.masked_fill_(left_alone, len(RADII)), len(RADII) + 1)
        out = x.clone()
        for (p, largest), rows in zip(RADII.items(), torch.split(order, counts)[:-1], strict=True):
            radius = uniform(len(rows), 0, self.strength * largest * (d / NUMBERS) ** (1 / p), x, generator)
            noise = in_ball(len(rows), d, p, x, generator).mul_(radius.unsqueeze(1)).view(-1, *x.shape[1:])
            out[rows] = (x[rows] + noise.to(x.dtype)).clamp_(0, 1)
        return out
