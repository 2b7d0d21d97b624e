"""PRIME (Modas et al., 2022): mixed chains of random deformations, colour curves and filters."""

import math
from dataclasses import dataclass
from typing import ClassVar, final

import torch
from torch import Tensor
from torch.nn import functional as F

from ..errors import UserError
from ._geometry import displace
from ._operations import check_chains, grouping, mix_chains
from .base import Augmentor, arcsine, integers, normal, uniform

LEAST_CUT = 2
NODES = 4 * 255 + 1
"""Where a colour curve is evaluated: four times as fine as grey levels, which are among them."""


def deform(x: Tensor, largest_cut: int, generator: torch.Generator | None) -> Tensor:
    """Read pixel (u, v) at (u, v) + τ, where each part of τ is √T Σ_ij a_ij sin(π i u) sin(π j v), borders fixed.

    a_ij ~ N(0, 1 / (i² + j²)) for i² + j² within the cut c², which is drawn below `largest_cut`. The temperature
    T lies between a typical displacement of half a pixel and the least at which the map may fold.
    """
    n, _, h, w = x.shape
    highest = integers(n, LEAST_CUT + 1, largest_cut + 1, x, generator)
    cut = (LEAST_CUT + arcsine(n, x, generator) * (highest + 1 - LEAST_CUT)).floor().minimum(highest)
    low, high = temperatures(cut, h * w)
    temperature = low + arcsine(n, x, generator) * (high - low)
    field = sine_field(cut, h, w, largest_cut, generator) * temperature.sqrt().view(n, 1, 1, 1)
    return displace(x, field[:, 0] * w, field[:, 1] * h)


def temperatures(cut: Tensor, pixels: int) -> tuple[Tensor, Tensor]:
    """The range of T for images of `pixels` = H · W: 1 / (π H W ln c) to 4 / (π³ c² ln c), not below the first."""
    low = 1 / (math.pi * pixels * cut.log())
    return low, low.maximum(4 / (math.pi**3 * cut.square() * cut.log()))


def sine_field(cut: Tensor, h: int, w: int, largest_cut: int, generator: torch.Generator | None) -> Tensor:
    """B×2×H×W: Σ_ij a_ij sin(π i u) sin(π j v) on points from border to border, at temperature 1."""
    k = torch.arange(1.0, largest_cut + 1, device=cut.device)
    squared = k.square().view(-1, 1) + k.square()
    std = (squared.sqrt() < cut.view(-1, 1, 1) + 0.5) / squared.sqrt()
    coefficients = normal(len(cut), 2, largest_cut, largest_cut, like=cut, generator=generator) * std.unsqueeze(1)
    across, down = (torch.sin(math.pi * torch.linspace(0, 1, n, device=cut.device).view(-1, 1) * k) for n in (w, h))
    return down @ coefficients @ across.mT


def recolor(x: Tensor, largest_cut: int, temperature: float, generator: torch.Generator | None) -> Tensor:
    """x + Σ_{i ≤ c} β_i sin(π i x) in each channel, cut to [0, 1], with β ~ N(0, T).

    c is drawn from 1 to `largest_cut` and T from U(0, temperature). Exact at grey levels, linear between nodes
    a quarter of a level apart.
    """
    n, channels, h, w = x.shape
    k = torch.arange(1.0, largest_cut + 1, device=x.device)
    std = uniform(n, 0, temperature, x, generator).sqrt().view(n, 1, 1)
    std = std * (k <= integers(n, 1, largest_cut + 1, x, generator).view(n, 1, 1))
    beta = normal(n, channels, largest_cut, like=x, generator=generator) * std
    nodes = torch.linspace(0, 1, NODES, device=x.device)
    curve = (nodes + beta @ torch.sin(math.pi * k.view(-1, 1) * nodes)).clamp_(0, 1)
    place = x.reshape(n, channels, h * w) * (NODES - 1)
    below = place.floor().clamp_(0, NODES - 2)
    index = below.long()
    return torch.lerp(curve.gather(2, index), curve.gather(2, index + 1), place - below).view_as(x)


def refilter(x: Tensor, size: int, largest_std: float, generator: torch.Generator | None) -> Tensor:
    """Convolve with δ + σ N(0, I), one kernel of size × size for all channels, cut to [0, 1].

    σ is drawn from U(0, largest_std); black surrounds the image.
    """
    n, _, h, w = x.shape
    kernel = normal(n, size, size, like=x, generator=generator)
    kernel = kernel * uniform(n, 0, largest_std, x, generator).view(n, 1, 1)
    kernel[:, size // 2, size // 2] += 1
    padded = F.pad(x, [size // 2] * 4)
    out = torch.zeros_like(x)
    for i in range(size):
        for j in range(size):
            out.addcmul_(padded[..., i : i + h, j : j + w], kernel[:, i, j].view(n, 1, 1, 1))
    return out.clamp_(0, 1)


@final
@dataclass(frozen=True, kw_only=True)
class Prime(Augmentor):
    """A random convex mixture of the image and of chains of its three primitives, each as likely.

    The defaults are the published settings for CIFAR-10.
    """

    applies: ClassVar[tuple[str, ...]] = ("deform", "recolor", "refilter")
    width: int = 3
    """Number of chains."""
    depth: int = 0
    """Primitives in a chain; 0 draws 1, 2 or 3."""
    deformation_cut: int = 100
    """Largest spatial frequency of the deformation."""
    color_cut: int = 100
    """Largest frequency of the colour curve."""
    color_temperature: float = 0.01
    """Largest variance of the colour curve's coefficients."""
    filter_size: int = 3
    """Pixels across the filter, an odd number."""
    filter_std: float = 4.0
    """Largest standard deviation of the filter's weights."""

    def __post_init__(self) -> None:
        check_chains(self.width, self.depth)
        if self.deformation_cut <= LEAST_CUT or self.color_cut < 1:
            raise UserError(
                f"deformation_cut={self.deformation_cut} must be at least 3 and color_cut={self.color_cut} at least 1"
            )
        if self.filter_size % 2 == 0 or self.filter_size < 1:
            raise UserError(f"filter_size={self.filter_size} must be an odd number")

    def __call__(self, x: Tensor, generator: torch.Generator | None = None) -> Tensor:
        def one_primitive(images: Tensor, level: int) -> Tensor:
            which = integers(len(images), 0, 3, x, generator)
            order, counts = grouping(which, 3)
            moved, colored, filtered = torch.split(images.index_select(0, order), counts)
            parts = (
                deform(moved, self.deformation_cut, generator),
                recolor(colored, self.color_cut, self.color_temperature, generator),
                refilter(filtered, self.filter_size, self.filter_std, generator),
            )
            return torch.cat(parts).index_select(0, order.argsort())

        exact = x.float()
        return mix_chains(exact, exact, self.width, self.depth, one_primitive, generator).to(x.dtype)
