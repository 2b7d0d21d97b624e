"""Elastic deformation alone (Simard et al., 2003): a smooth random field moves the pixels."""

from dataclasses import dataclass
from typing import ClassVar, final

import torch
from torch import Tensor

from ..errors import UserError
from ._geometry import displace, smoothed_noise
from .base import Augmentor, normal


@final
@dataclass(frozen=True, kw_only=True)
class Elastic(Augmentor):
    """Each pixel reads from a place displaced by white noise smoothed with a Gaussian; the edge repeats.

    The displacement has the given standard deviation everywhere, in either direction.
    """

    applies: ClassVar[tuple[str, ...]] = ("elastic",)
    displacement: float = 0.03
    """Standard deviation of the displacement, as a share of the image's shorter side."""
    smoothness: float = 0.12
    """Standard deviation of the Gaussian, as a share of the image's shorter side."""

    def __post_init__(self) -> None:
        if self.displacement < 0 or not 0 < self.smoothness <= 1:
            raise UserError(
                f"displacement={self.displacement} must be at least 0 and smoothness={self.smoothness} in (0, 1]"
            )

    def __call__(self, x: Tensor, generator: torch.Generator | None = None) -> Tensor:
        n, _, h, w = x.shape
        noise = normal(n, 2, h, w, like=x, generator=generator)
        field = smoothed_noise(noise, self.smoothness * min(h, w)) * (self.displacement * min(h, w))
        return displace(x.float(), field[:, 0], field[:, 1]).to(x.dtype)
