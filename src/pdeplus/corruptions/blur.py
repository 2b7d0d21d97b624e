"""Blur: out of focus, through frosted glass, in motion, while zooming."""

from functools import lru_cache

import numpy as np
import torch
from torch import Tensor

from ._filters import border_index, convolve, gaussian_filter, zoom_mean
from ._filters import motion_blur as blur_along
from .base import NEARLY, Draws, corruption


@corruption(
    "blur",
    cifar=((0.3, 0.4), (0.4, 0.5), (0.5, 0.6), (1, 0.2), (1.5, 0.1)),
    tiny=((0.5, 0.6), (1, 0.1), (1.5, 0.1), (2.5, 0.01), (3, 0.1)),
    imagenet=((3, 0.1), (4, 0.5), (6, 0.5), (8, 0.5), (10, 0.5)),
    seeded=False,
)
def defocus_blur(x: Tensor, draws: Draws, radius: float, softness: float) -> Tensor:
    """Blur by a disk whose edge a small Gaussian softens."""
    return convolve(x, _disk(radius, softness))


@lru_cache(maxsize=32)
def _disk(radius: float, softness: float) -> Tensor:
    half = 8 if radius <= 8 else int(radius)
    taps_each_side = 1 if radius <= 8 else 2
    across = np.arange(-half, half + 1)
    disk = (across**2 + across[:, None] ** 2 <= radius**2).astype(float)
    soft = np.exp(-0.5 * (np.arange(-taps_each_side, taps_each_side + 1) / softness) ** 2)
    blur = np.zeros((2 * half + 1, 2 * half + 1))
    for offset, tap in zip(range(-taps_each_side, taps_each_side + 1), soft / soft.sum(), strict=True):
        columns = border_index(np.arange(2 * half + 1) + offset, 2 * half + 1, "mirror")
        np.add.at(blur, (np.arange(2 * half + 1), columns), tap)
    kernel = blur @ (disk / disk.sum()) @ blur.T
    empty = int(np.argmax(kernel.max(0) > 1e-9))  # columns of zeros at either side
    return torch.from_numpy(kernel[empty : 2 * half + 1 - empty, empty : 2 * half + 1 - empty])


@corruption(
    "blur",
    cifar=((0.05, 1, 1), (0.25, 1, 1), (0.4, 1, 1), (0.25, 1, 2), (0.4, 1, 2)),
    tiny=((0.1, 1, 1), (0.5, 1, 1), (0.6, 1, 2), (0.7, 2, 1), (0.9, 2, 2)),
    imagenet=((0.7, 1, 2), (0.9, 2, 1), (1, 2, 3), (1.1, 3, 2), (1.5, 4, 2)),
)
def glass_blur(x: Tensor, draws: Draws, sigma: float, reach: int, rounds: int) -> Tensor:
    """Every pixel becomes a copy of a near one, between two Gaussian blurs.

    The scan runs from the last pixel to the first, so that a pixel may copy a copy.
    """
    n, c, h, w = x.shape
    blurred = gaussian_filter(x, sigma).add(NEARLY).floor_()
    source = torch.arange(h * w, device=x.device).expand(n, -1)
    for _ in range(rounds):
        source = source.gather(1, _scan_sources(draws, n, h, w, reach))
    shuffled = blurred.view(n, c, h * w).gather(2, source[:, None].expand(n, c, h * w)).view(n, c, h, w)
    return gaussian_filter(shuffled, sigma)


def _scan_sources(draws: Draws, n: int, h: int, w: int, reach: int) -> Tensor:
    """Which pixel's value every pixel holds after one scan, N×(H·W).

    Pixel p copies q = p + offset. If q was scanned before, p gets what q got: a chain of pointers to later pixels,
    followed by doubling its links.
    """
    offsets = draws.integers(-reach, reach, 2, h, w)
    here = torch.arange(h * w, device=offsets.device).view(h, w)
    rows, columns = here // w, here % w
    scanned = (rows > reach) & (rows <= h - reach) & (columns > reach) & (columns <= w - reach)
    pointer = torch.where(scanned, here + offsets[:, 0] * w + offsets[:, 1], here).view(n, -1)
    goes_on = (pointer > here.view(-1)) & scanned.view(-1)[pointer]
    while goes_on.any():
        # a pointer that goes on takes over its target's pointer; one that does not has arrived
        further = pointer.gather(1, pointer)
        pointer, goes_on = torch.where(goes_on, further, pointer), goes_on & goes_on.gather(1, pointer)
    return pointer


@corruption(
    "blur",
    cifar=((6, 1), (6, 1.5), (6, 2), (8, 2), (9, 2.5)),
    tiny=((10, 1), (10, 1.5), (10, 2), (10, 2.5), (12, 3)),
    imagenet=((10, 3), (15, 5), (15, 8), (15, 12), (20, 15)),
)
def motion_blur(x: Tensor, draws: Draws, radius: float, sigma: float) -> Tensor:
    """A streak in a direction of up to 45 degrees from the horizontal."""
    return blur_along(x, draws.uniform(-45, 45), radius, sigma)


@corruption(
    "blur",
    cifar=((1.06, 0.01), (1.11, 0.01), (1.16, 0.01), (1.21, 0.01), (1.26, 0.01)),
    tiny=((1.06, 0.01), (1.11, 0.01), (1.16, 0.01), (1.21, 0.01), (1.26, 0.01)),
    imagenet=((1.11, 0.01), (1.16, 0.01), (1.21, 0.02), (1.26, 0.02), (1.31, 0.03)),
    seeded=False,
)
def zoom_blur(x: Tensor, draws: Draws, end: float, step: float) -> Tensor:
    """The mean of the image and its enlargements."""
    factors = [float(factor) for factor in np.arange(1, end, step)]  # floating point decides whether `end` is one
    return zoom_mean(x, factors)
