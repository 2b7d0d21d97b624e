"""PRIME's three families of transformations of greatest entropy (Modas et al., 2022).

Float B×C×H×W in [0, 1] → the same. Formulas and ranges are those of the authors' published code, which draws one
deformation for the whole batch; here every image draws its own.
"""

import math

import torch
from torch import Tensor
from torch.nn import functional as F

from ._geometry import displace
from ._random import arcsine, integers, normal, uniform

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
