"""The four validation corruptions: speckle noise, Gaussian blur, spatter, saturation.

Training may import these, and never the fifteen. Spatter needs a film of water, in which light breaks at the edges of
drops: edges by Canny's method and the distance from them by a 5×5 chamfer, both as the usual image libraries define
them, for a whole batch at once.
"""

from typing import cast

import numpy as np
import torch
from scipy import ndimage
from torch import Tensor

from ._filters import convolve, gaussian_filter
from .base import Draws, corruption

LOW, HIGH = 50, 150
"""Canny's thresholds, of |∂x| + |∂y| in Sobel's units."""
FARTHEST = 20.0
RELIEF = torch.tensor([[-2.0, -1.0, 0.0], [-1.0, 1.0, 1.0], [0.0, 1.0, 2.0]])


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


@corruption(
    "blur",
    cifar=(0.4, 0.6, 0.7, 0.8, 1),
    tiny=(0.5, 0.75, 1, 1.25, 1.5),
    imagenet=(1, 2, 3, 4, 6),
    extra=True,
    seeded=False,
)
def gaussian_blur(x: Tensor, draws: Draws, sigma: float) -> Tensor:
    """Blur by a Gaussian."""
    return gaussian_filter(x, sigma)


@corruption(
    "weather",
    cifar=(
        (0.62, 0.1, 0.7, 0.7, 0.5, False),
        (0.65, 0.1, 0.8, 0.7, 0.5, False),
        (0.65, 0.3, 1, 0.69, 0.5, False),
        (0.65, 0.1, 0.7, 0.69, 0.6, True),
        (0.65, 0.1, 0.5, 0.68, 0.6, True),
    ),
    tiny=(
        (0.62, 0.1, 0.7, 0.7, 0.6, False),
        (0.65, 0.1, 0.8, 0.7, 0.6, False),
        (0.65, 0.3, 1, 0.69, 0.6, False),
        (0.65, 0.1, 0.7, 0.68, 0.6, True),
        (0.65, 0.1, 0.5, 0.67, 0.6, True),
    ),
    imagenet=(
        (0.65, 0.3, 4, 0.69, 0.6, False),
        (0.65, 0.3, 3, 0.68, 0.6, False),
        (0.65, 0.3, 2, 0.68, 0.5, False),
        (0.65, 0.3, 1, 0.65, 1.5, True),
        (0.67, 0.4, 1, 0.65, 1.5, True),
    ),
    extra=True,
)
def spatter(
    x: Tensor, draws: Draws, mean: float, std: float, sigma: float, threshold: float, amount: float, mud: bool
) -> Tensor:
    """Drops of water (of intensity `amount`) or splashes of mud (softened by `amount` pixels)."""
    h, w = x.shape[-2:]
    liquid = gaussian_filter(draws.normal(h, w).mul_(std).add_(mean), sigma)
    if mud:
        cover = gaussian_filter((liquid > threshold).float(), amount)
        cover = torch.where(cover < 0.8, 0, cover)[:, None]
        return x * (1 - cover) + cover * _colour(x, 63, 42, 20)
    film = water_film(torch.where(liquid < threshold, 0, liquid))
    return x + amount * film[:, None] * _colour(x, 175, 238, 238)


def _colour(x: Tensor, *rgb: float) -> Tensor:
    return torch.tensor(rgb, device=x.device, dtype=x.dtype).view(1, 3, 1, 1)


@corruption(
    "digital",
    cifar=((0.3, 0), (0.1, 0), (1.5, 0), (2, 0.1), (2.5, 0.2)),
    tiny=((0.3, 0), (0.1, 0), (2, 0), (5, 0.1), (30, 0.2)),
    imagenet=((0.3, 0), (0.1, 0), (2, 0), (5, 0.1), (20, 0.2)),
    extra=True,
    seeded=False,
)
def saturate(x: Tensor, draws: Draws, factor: float, offset: float) -> Tensor:
    """HSV saturation S becomes S · factor + offset, in [0, 1]; a grey pixel's hue is red."""
    value, least = x.amax(1, keepdim=True), x.amin(1, keepdim=True)
    saturation = (value - least) / value.clamp(min=1)
    wanted = (saturation * factor + offset).clamp(0, 1)
    coloured = value - (value - x) * (wanted / saturation.clamp(min=1e-6))
    red = torch.tensor([0.0, 1.0, 1.0], device=x.device).view(1, 3, 1, 1)
    return torch.where(saturation > 0, coloured, value * (1 - wanted * red))


EXTRA = {corruption.name: corruption for corruption in (speckle_noise, gaussian_blur, spatter, saturate)}
"""The four by their names."""


def water_film(liquid: Tensor) -> Tensor:
    """How much light each pixel gets from the drops, N×H×W in [0, 1], from the depth of liquid (0 where it is dry)."""
    levels = (liquid * 255).floor().clamp(0, 255)
    distance = torch.from_numpy(edge_distance(canny(levels.cpu().numpy()))).to(liquid)
    smooth = _mean3(distance.clamp(max=FARTHEST)).floor()
    relief = convolve(_equalize(smooth)[:, None], RELIEF)[:, 0].clamp(0, 255)
    film = levels * _mean3(relief).add(0.5).floor()
    return film / film.amax((1, 2), keepdim=True).clamp(min=1e-6)


def canny(levels: np.ndarray) -> np.ndarray:
    """Edges of N×H×W whole grey levels, as booleans: thin, and connected to a strong one."""
    x = np.pad(levels.astype(np.int32), ((0, 0), (1, 1), (1, 1)), mode="edge")
    across = x[:, :, 2:] - x[:, :, :-2]
    across = across[:, :-2] + 2 * across[:, 1:-1] + across[:, 2:]
    down = x[:, 2:] - x[:, :-2]
    down = down[:, :, :-2] + 2 * down[:, :, 1:-1] + down[:, :, 2:]
    strength = np.abs(across) + np.abs(down)
    candidates = _local_maxima(strength, across, down) & (strength > LOW)
    neighbours = np.zeros((3, 3, 3), bool)
    neighbours[1] = True  # eight in the same image, none in another
    connected = cast(np.ndarray, ndimage.label(candidates, structure=neighbours)[0])  # type: ignore[reportIndexIssue]
    strong = np.unique(connected[candidates & (strength > HIGH)])
    return np.isin(connected, strong[strong > 0])


def _local_maxima(strength: np.ndarray, across: np.ndarray, down: np.ndarray) -> np.ndarray:
    """Where the gradient is the greatest along its own direction, which is one of four."""
    padded = np.pad(strength, ((0, 0), (1, 1), (1, 1)))
    h, w = strength.shape[1:]

    def neighbour(dy: int, dx: int) -> np.ndarray:
        return padded[:, 1 + dy : 1 + dy + h, 1 + dx : 1 + dx + w]

    flat, steep = np.tan(np.pi / 8), np.tan(3 * np.pi / 8)
    horizontal = np.abs(down) < flat * np.abs(across)
    vertical = np.abs(down) > steep * np.abs(across)
    rising = (across ^ down) < 0
    first = [neighbour(0, -1), neighbour(-1, 0), neighbour(-1, 1), neighbour(-1, -1)]
    second = [neighbour(0, 1), neighbour(1, 0), neighbour(1, -1), neighbour(1, 1)]
    straight = horizontal | vertical
    before = np.select([horizontal, vertical, rising], first[:3], first[3])
    after = np.select([horizontal, vertical, rising], second[:3], second[3])
    return (strength > before) & np.where(straight, strength >= after, strength > after)


def edge_distance(edges: np.ndarray) -> np.ndarray:
    """Distance of every pixel from the nearest edge, in steps of 1, 1.4 and 2.1969 (knight's move), N×H×W float32.

    Exact in two sweeps; along a row, the sequential minimum is a running minimum of distance minus position.
    """
    n, h, w = edges.shape
    far = np.float32(2 * (h + w))
    distance = np.full((n, h + 4, w + 4), far, np.float32)
    distance[:, 2:-2, 2:-2][edges] = 0
    position = np.arange(w, dtype=np.float32)
    steps = ((1, 0, 1.0), (1, 1, 1.4), (1, -1, 1.4), (2, 1, 2.1969), (2, -1, 2.1969), (1, 2, 2.1969), (1, -2, 2.1969))
    for sign, order in ((-1, range(2, h + 2)), (1, range(h + 1, 1, -1))):
        for row in order:
            here = distance[:, row, 2:-2]
            for dy, dx, length in steps:
                np.minimum(here, distance[:, row + sign * dy, 2 + dx : 2 + dx + w] + np.float32(length), out=here)
            if sign < 0:
                here[:] = np.minimum.accumulate(here - position, axis=1) + position
            else:
                here[:] = np.minimum.accumulate((here + position)[:, ::-1], axis=1)[:, ::-1] - position
    return distance[:, 2:-2, 2:-2]


def _mean3(x: Tensor) -> Tensor:
    """Mean of 3×3 pixels, N×H×W."""
    return convolve(x[:, None], torch.full((3, 3), 1 / 9))[:, 0]


def _equalize(levels: Tensor) -> Tensor:
    """Flatten each image's histogram over 0…255: the first level present goes to 0, the last to 255."""
    n, h, w = levels.shape
    index = levels.long().view(n, -1)
    ones = torch.ones_like(index, dtype=torch.float32)
    counts = torch.zeros(n, 256, device=levels.device).scatter_add_(1, index, ones)
    first = counts.gather(1, index.amin(1, keepdim=True))
    stretch = 255 / (h * w - first).clamp(min=1)
    table = ((counts.cumsum(1) - first) * stretch).round().clamp(0, 255)
    flat = (first == h * w).view(n, 1, 1)
    return torch.where(flat, levels, table.gather(1, index).view(n, h, w))
