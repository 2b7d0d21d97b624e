"""Digital: contrast, elastic distortion, resolution, compression."""

import io
from typing import cast

import numpy as np
import torch
from PIL import Image
from torch import Tensor
from torch.nn import functional as F

from ._filters import Matrix, along, box_matrix, gaussian_filter
from .base import NEARLY, Draws, corruption


@corruption(
    "digital",
    cifar=(0.75, 0.5, 0.4, 0.3, 0.15),
    tiny=(0.4, 0.3, 0.2, 0.1, 0.05),
    imagenet=(0.4, 0.3, 0.2, 0.1, 0.05),
    seeded=False,
)
def contrast(x: Tensor, draws: Draws, factor: float) -> Tensor:
    """Values moved towards their channel's mean."""
    mean = x.mean((2, 3), keepdim=True, dtype=torch.float64).float()
    return (x - mean).mul_(factor).add_(mean)


@corruption(
    "digital",
    cifar=tuple((32 * a, 32 * s, 32 * d) for a, s, d in (
        (0, 0, 0.08), (0.05, 0.2, 0.07), (0.08, 0.06, 0.06), (0.1, 0.04, 0.05), (0.1, 0.03, 0.03)
    )),
    tiny=tuple((64 * a, 64 * s, 64 * d) for a, s, d in (
        (0, 0, 0.08), (0.05, 0.3, 0.06), (0.1, 0.08, 0.06), (0.1, 0.03, 0.03), (0.16, 0.03, 0.02)
    )),
    imagenet=tuple((244 * a, 244 * s, 244 * d) for a, s, d in (
        (2, 0.7, 0.1), (2, 0.08, 0.2), (0.05, 0.01, 0.02), (0.07, 0.01, 0.02), (0.12, 0.01, 0.02)
    )),
)  # fmt: skip
def elastic_transform(x: Tensor, draws: Draws, strength: float, smoothness: float, corners: float) -> Tensor:
    """A random affine map, then a smooth random displacement of every pixel."""
    h, w = x.shape[-2:]
    moved = _sample(x, *_affine_coordinates(draws.uniform(-corners, corners, 3, 2), h, w), mirror_edge_once=True)
    if strength == 0:
        return moved
    field = gaussian_filter(draws.uniform(-1, 1, 2, h, w), smoothness, truncate=3, border="reflect") * strength
    rows = torch.arange(h, device=x.device).view(h, 1) + field[:, 1]
    columns = torch.arange(w, device=x.device) + field[:, 0]
    return _sample(moved, rows, columns, mirror_edge_once=False)


def _affine_coordinates(shifts: Tensor, h: int, w: int) -> tuple[Tensor, Tensor]:
    """Where every output pixel comes from (rows, columns: N×H×W), if three points about the centre are shifted so."""
    side = min(h, w) // 3
    centre = torch.tensor([h // 2, w // 2], dtype=torch.float64)
    points = centre + torch.tensor([[side, side], [side, -side], [-side, -side]], dtype=torch.float64)
    before = torch.cat([points, torch.ones(3, 1, dtype=torch.float64)], 1)
    after = torch.cat([points + shifts.double().cpu(), torch.ones(len(shifts), 3, 1, dtype=torch.float64)], 2)
    # before = after · inverse, with points as rows (x, y, 1)
    inverse = cast(Tensor, torch.linalg.solve(after, before.expand_as(after))).to(shifts)
    rows, columns = torch.arange(h, device=shifts.device).view(h, 1), torch.arange(w, device=shifts.device)
    coefficients = inverse.reshape(-1, 9, 1, 1).unbind(1)  # the columns of `inverse` give x, y and 1
    source = [columns * coefficients[k] + rows * coefficients[3 + k] + coefficients[6 + k] for k in (0, 1)]
    return source[1], source[0]


def _sample(x: Tensor, rows: Tensor, columns: Tensor, *, mirror_edge_once: bool) -> Tensor:
    """Bilinear interpolation at pixel coordinates (N×H×W), the image mirrored about its edge pixels or beyond them."""
    h, w = x.shape[-2:]
    if mirror_edge_once:
        grid = torch.stack([columns * (2 / max(w - 1, 1)) - 1, rows * (2 / max(h - 1, 1)) - 1], -1)
    else:
        grid = torch.stack([(columns * 2 + 1) / w - 1, (rows * 2 + 1) / h - 1], -1)
    return F.grid_sample(x, grid, padding_mode="reflection", align_corners=mirror_edge_once)


@corruption(
    "digital",
    cifar=(0.95, 0.9, 0.85, 0.75, 0.65),
    tiny=(0.9, 0.8, 0.7, 0.6, 0.5),
    imagenet=(0.6, 0.5, 0.4, 0.3, 0.25),
    seeded=False,
)
def pixelate(x: Tensor, draws: Draws, factor: float) -> Tensor:
    """Fewer, larger pixels."""
    h, w = x.shape[-2:]
    small = max(int(h * factor), 1), max(int(w * factor), 1)
    down = _resize(x, box_matrix(h, small[0]), box_matrix(w, small[1]))
    return _resize(down, box_matrix(small[0], h), box_matrix(small[1], w))


def _resize(x: Tensor, rows: Matrix, columns: Matrix) -> Tensor:
    """Columns first, then rows, each rounded to whole grey levels as in an 8-bit image."""
    half = 0.5 + NEARLY  # what is halfway goes up
    across = along(x, columns, -1).add_(half).floor_()
    return along(across, rows, -2).add_(half).floor_()


@corruption(
    "digital", cifar=(80, 65, 58, 50, 40), tiny=(65, 58, 50, 40, 25), imagenet=(25, 18, 15, 10, 7), seeded=False
)
def jpeg_compression(x: Tensor, draws: Draws, quality: int) -> Tensor:
    """Through a JPEG file of this quality."""
    pixels = x.permute(0, 2, 3, 1).to(torch.uint8).contiguous().cpu().numpy()
    decoded = np.empty_like(pixels)
    for image, out in zip(pixels, decoded, strict=True):
        buffer = io.BytesIO()
        Image.fromarray(image).save(buffer, "JPEG", quality=quality)
        out[:] = np.asarray(Image.open(buffer))
    return torch.from_numpy(decoded).to(x.device).permute(0, 3, 1, 2).to(x.dtype)
