"""Weather: snow, frost, fog, brightness.

Frost needs pictures of ice. The benchmark's six come with the package `imagecorruptions`; a folder of pictures can be
named in the environment variable PDEPLUS_FROST; elsewhere synthetic ice is drawn from the same fractal clouds as fog.
"""

import hashlib
import importlib.util
import os
import warnings
from functools import lru_cache
from pathlib import Path

import numpy as np
import torch
from PIL import Image
from torch import Tensor
from torch.nn import functional as F

from ..errors import UserError
from ._filters import motion_blur, separable, zoom_matrix
from .base import Draws, corruption

FOLDER = "PDEPLUS_FROST"
SYNTHETIC = "synthetic 2"
"""What manifests of corrupted copies say of synthetic frost, of which this is the second version."""
SUFFIXES = (".png", ".jpg", ".jpeg")
ROUGHNESS = 1.12
"""Roughness of synthetic frost: how fast the cloud's detail fades; nearer to 1 is rougher."""
USED = 5
"""The benchmark draws from the first five of its six pictures."""
_ADVICE = f"pip install --no-deps imagecorruptions, or name a folder in {FOLDER}"
_TINTS = (
    ((77, 148, 164), (28, 16, 15)),
    ((198, 203, 212), (20, 20, 21)),
    ((198, 203, 212), (20, 20, 21)),
    ((144, 159, 172), (26, 26, 28)),
    ((102, 113, 125), (38, 37, 36)),
)
"""Mean and spread of the grey levels of pieces of the benchmark's pictures, red, green and blue.

Pieces show the middle of a picture more often than its border, which in the last two is darker and brighter.
"""
PIECE = 224
"""Side of the largest pieces that the benchmarks cut."""


@corruption(
    "weather",
    cifar=(
        (0.1, 0.2, 1, 0.6, 8, 3, 0.95),
        (0.1, 0.2, 1, 0.5, 10, 4, 0.9),
        (0.15, 0.3, 1.75, 0.55, 10, 4, 0.9),
        (0.25, 0.3, 2.25, 0.6, 12, 6, 0.85),
        (0.3, 0.3, 1.25, 0.65, 14, 12, 0.8),
    ),
    tiny=(
        (0.1, 0.2, 1, 0.6, 8, 3, 0.8),
        (0.1, 0.2, 1, 0.5, 10, 4, 0.8),
        (0.15, 0.3, 1.75, 0.55, 10, 4, 0.7),
        (0.25, 0.3, 2.25, 0.6, 12, 6, 0.65),
        (0.3, 0.3, 1.25, 0.65, 14, 12, 0.6),
    ),
    imagenet=(
        (0.1, 0.3, 3, 0.5, 10, 4, 0.8),
        (0.2, 0.3, 2, 0.5, 12, 4, 0.7),
        (0.55, 0.3, 4, 0.9, 12, 8, 0.7),
        (0.55, 0.3, 4.5, 0.85, 12, 8, 0.65),
        (0.55, 0.3, 2.5, 0.85, 12, 12, 0.55),
    ),
)
def snow(
    x: Tensor,
    draws: Draws,
    mean: float,
    std: float,
    zoom: float,
    threshold: float,
    radius: float,
    sigma: float,
    mix: float,
) -> Tensor:
    """Falling flakes over a whitened image, and the same flakes upside down."""
    h, w = x.shape[-2:]
    flakes = separable(draws.normal(1, h, w).mul_(std).add_(mean), zoom_matrix(h, zoom), zoom_matrix(w, zoom))
    flakes = torch.where(flakes < threshold, 0, flakes).clamp(0, 1).mul(255).floor()
    flakes = motion_blur(flakes, draws.uniform(-135, -45), radius, sigma)
    luma = 0.299 * x[:, :1] + 0.587 * x[:, 1:2] + 0.114 * x[:, 2:]
    whitened = torch.maximum(x, luma * 1.5 + 127.5)
    return mix * x + (1 - mix) * whitened + flakes + flakes.flip(2, 3)


@corruption(
    "weather",
    cifar=((1, 0.2, 0.2), (1, 0.3, 0.2), (0.9, 0.4, 0.2), (0.85, 0.4, 0.2), (0.75, 0.45, 0.2)),
    tiny=((1, 0.3, 0.3), (0.9, 0.4, 0.3), (0.8, 0.45, 0.3), (0.75, 0.5, 0.3), (0.7, 0.55, 0.3)),
    imagenet=((1, 0.4, 1), (0.8, 0.6, 1), (0.7, 0.7, 1), (0.65, 0.7, 1), (0.6, 0.75, 1)),
)
def frost(x: Tensor, draws: Draws, image: float, ice: float, zoom: float) -> Tensor:
    """A piece of a picture of ice laid over the image."""
    return image * x + ice * frost_crops(draws, x.shape[-2], x.shape[-1], zoom)


@corruption(
    "weather",
    cifar=((0.2, 3), (0.5, 3), (0.75, 2.5), (1, 2), (1.5, 1.75)),
    tiny=((0.4, 3), (0.7, 3), (1, 2.5), (1.5, 2), (2, 1.75)),
    imagenet=((1.5, 2), (2, 2), (2.5, 1.7), (2.5, 1.5), (3, 1.4)),
)
def fog(x: Tensor, draws: Draws, strength: float, decay: float) -> Tensor:
    """A cloud added and the brightest value kept."""
    h, w = x.shape[-2:]
    brightest = x.amax((1, 2, 3), keepdim=True)
    clouded = x + 255 * strength * plasma(draws, h, w, decay)[:, None]
    return clouded * (brightest / (brightest + 255 * strength))


@corruption(
    "weather",
    cifar=(0.05, 0.1, 0.15, 0.2, 0.3),
    tiny=(0.1, 0.2, 0.3, 0.4, 0.5),
    imagenet=(0.1, 0.2, 0.3, 0.4, 0.5),
    seeded=False,
)
def brightness(x: Tensor, draws: Draws, amount: float) -> Tensor:
    """Added to the value of HSV; hue and saturation stay."""
    value = x.amax(1, keepdim=True)
    brighter = (value + 255 * amount).clamp(max=255)
    return torch.where(value > 0, x * (brighter / value.clamp(min=1)), brighter)


def frost_crops(draws: Draws, h: int, w: int, zoom: float) -> Tensor:
    """A piece of ice for each image, N×3×H×W grey levels."""
    pictures = _pictures(frost_folder(), zoom, h, w)
    crops = list[Tensor]()
    for chance in draws.uniform(0, 1, 3):
        which, down, across = map(float, chance)
        picture = pictures[int(which * len(pictures))]
        top, left = int(down * (picture.shape[1] - h)), int(across * (picture.shape[2] - w))
        crops.append(picture[:, top : top + h, left : left + w])
    return torch.stack(crops).to(draws.device)


def frost_folder() -> Path | None:
    """Where the pictures of ice are; None stands for synthetic frost."""
    named = os.environ.get(FOLDER)
    if named:
        return Path(named)
    package = importlib.util.find_spec("imagecorruptions")
    folder = Path(package.origin).parent / "frost" if package and package.origin else None
    return folder if folder and folder.is_dir() else None


def frost_digest() -> str:
    """What tells the pictures in use from others: a hash of their names and sizes; SYNTHETIC where there are none."""
    folder = frost_folder()
    found = "".join(f"{p.name} {p.stat().st_size}\n" for p in _picture_paths(folder)) if folder else ""
    return hashlib.sha256(found.encode()).hexdigest()[:16] if folder else SYNTHETIC


def describe_frost() -> str:
    """Which pictures of ice are used."""
    folder = frost_folder()
    return f"the pictures in {folder}" if folder else f"synthetic frost; for the benchmark's pictures: {_ADVICE}"


@lru_cache(maxsize=8)
def _pictures(folder: Path | None, zoom: float, h: int, w: int) -> tuple[Tensor, ...]:
    """The pictures as 3×H'×W' grey levels, zoomed, and further where a piece of h×w needs it."""
    if folder is None:
        warnings.warn(f"synthetic frost stands in for the benchmark's pictures; for those: {_ADVICE}", stacklevel=2)
    zoomed = list[Tensor]()
    for picture in _synthetic_pictures() if folder is None else _read_pictures(folder):
        enough = max(zoom, (h + 1) / picture.shape[1], (w + 1) / picture.shape[2])
        small = F.interpolate(picture[None], scale_factor=enough, mode="bilinear", recompute_scale_factor=False)
        zoomed.append(small[0].add_(0.5).floor_())
    return tuple(zoomed)


def _picture_paths(folder: Path) -> list[Path]:
    """The first five pictures of a folder, by name."""
    found = sorted(p for p in folder.iterdir() if p.suffix.lower() in SUFFIXES) if folder.is_dir() else []
    if not found:
        raise UserError(f"{folder} has no frost pictures ({', '.join(SUFFIXES)}); {FOLDER} names their folder")
    return found[:USED]


def _read_pictures(folder: Path) -> list[Tensor]:
    pictures = list[Tensor]()
    for path in _picture_paths(folder):
        try:
            pixels = np.asarray(Image.open(path).convert("RGB"))
        except (OSError, ValueError, Image.DecompressionBombError) as error:
            raise UserError(f"{path} cannot be read as a picture: {error}") from error
        pictures.append(torch.from_numpy(pixels.copy()).permute(2, 0, 1).float())
    return pictures


@lru_cache(maxsize=1)
def _synthetic_pictures() -> tuple[Tensor, ...]:
    """Ridges of rough plasma clouds, coloured so that pieces of them are like those of the benchmark's pictures."""
    draws = Draws(0, ("ice",), range(USED), torch.device("cpu"))
    ridges = 1 - (plasma(draws, 512, 512, ROUGHNESS) * 2 - 1).abs()
    reach = torch.arange(1.0, 513).clamp(max=PIECE)
    reach = torch.minimum(reach, reach.flip(0))  # how many pieces show a row
    share = torch.outer(reach, reach) / reach.sum() ** 2
    ridges = ridges - (ridges * share).sum((1, 2), keepdim=True)
    ridges = ridges / (ridges.square() * share).sum((1, 2), keepdim=True).sqrt()
    tints = torch.tensor(_TINTS).view(USED, 2, 3, 1, 1)
    return tuple((tints[:, 0] + tints[:, 1] * ridges[:, None]).clamp(0, 255).unbind(0))


def plasma(draws: Draws, h: int, w: int, decay: float) -> Tensor:
    """A cloud per image in [0, 1], N×H×W.

    Diamond-square on a torus whose side is the next power of two: a new point is a quarter of the sum of its four
    neighbours plus U(-a, a); a falls by decay² with every halving of the grid.
    """
    size = 1 << (max(h, w, 2) - 1).bit_length()
    noise = draws.uniform(-1, 1, size, size)
    cloud = torch.zeros_like(noise)
    step, amplitude = size, 1.0
    while step >= 2:
        half = step // 2
        noise_here = noise * amplitude  # each point is set once, so each takes its own number
        corners = cloud[:, ::step, ::step]
        centres = _quarter(corners, (0, 0), (-1, 0), (0, -1), (-1, -1)) + noise_here[:, half::step, half::step]
        cloud[:, half::step, half::step] = centres
        across = _quarter(corners, (0, 0), (0, -1)) + _quarter(centres, (0, 0), (1, 0))
        cloud[:, ::step, half::step] = across + noise_here[:, ::step, half::step]
        down = _quarter(corners, (0, 0), (-1, 0)) + _quarter(centres, (0, 0), (0, 1))
        cloud[:, half::step, ::step] = down + noise_here[:, half::step, ::step]
        step, amplitude = half, amplitude / decay**2
    low, high = cloud.amin((1, 2), keepdim=True), cloud.amax((1, 2), keepdim=True)
    return ((cloud - low) / (high - low))[:, :h, :w]


def _quarter(grid: Tensor, *shifts: tuple[int, int]) -> Tensor:
    """A quarter of the sum of the shifted grids."""
    total = torch.zeros_like(grid)
    for shift in shifts:
        total += grid.roll(shift, (1, 2))
    return total / 4
