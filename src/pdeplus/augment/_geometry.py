"""Geometry of batches: shifts, affine maps and displacement fields as Pillow samples them, and Gaussian smoothing.

Pixels have their centres at halves, (1/2, 1/2) the first, as in Pillow's `Image.transform`.
"""

import math
from typing import Literal

import torch
from torch import Tensor
from torch.nn import functional as F

Interpolation = Literal["bilinear", "nearest"]


def pick(x: Tensor, rows: Tensor, columns: Tensor) -> Tensor:
    """Pixel (i, j) of image b reads pixel (rows[b, i], columns[b, j]); black where there is none.

    Images are B×C×H×W of any type, rows B×H and columns B×W whole numbers.
    """
    b, c, h, w = x.shape
    row, column = rows.clamp(0, h - 1), columns.clamp(0, w - 1)
    there = (row == rows).to(x.dtype).unsqueeze(2) * (column == columns).to(x.dtype).unsqueeze(1)
    place = (row.mul_(w).unsqueeze(2) + column.unsqueeze(1)).view(b, 1, h * w).expand(b, c, h * w)
    return x.reshape(b, c, h * w).gather(2, place).view(b, c, h, w).mul_(there.unsqueeze(1))


def shift(x: Tensor, right: Tensor, down: Tensor) -> Tensor:
    """Each pixel reads the one `right` to its right and `down` below, whole numbers of pixels (B)."""
    rows = torch.arange(x.shape[2], device=x.device) + down.long().unsqueeze(1)
    columns = torch.arange(x.shape[3], device=x.device) + right.long().unsqueeze(1)
    return pick(x, rows, columns)


def affine(x: Tensor, matrix: Tensor, interpolation: Interpolation = "bilinear") -> Tensor:
    """Output pixel (u, v) reads the input at (a u + b v + c, d u + e v + f), with these rows in `matrix` (B×2×3).

    Images are float B×C×H×W and span -1..1 from edge to edge in either direction.
    """
    columns, rows = (_centres(n, x) for n in (x.shape[3], x.shape[2]))
    a, b, c = torch.split(matrix, 1, dim=2)
    return sample(x, torch.addcmul(c, b, rows).unsqueeze(3) + (a * columns).unsqueeze(2), interpolation)


def displace(x: Tensor, right: Tensor, down: Tensor) -> Tensor:
    """Each pixel reads `right` and `down` pixels away (B×H×W, fractions allowed); the image's edge repeats."""
    h, w = x.shape[-2:]
    u = torch.add(_centres(w, x), right, alpha=2 / w)
    v = torch.add(_centres(h, x).view(-1, 1), down, alpha=2 / h)
    return sample(x, torch.stack((u, v), 1).clamp_(-1, 1))


def sample(x: Tensor, position: Tensor, interpolation: Interpolation = "bilinear") -> Tensor:
    """Read `x` at `position` (B×2×H×W; the image spans -1..1 from edge to edge); black beyond its edges.

    Within the image a border pixel is not mixed with the black outside.
    """
    out = F.grid_sample(x, position.permute(0, 2, 3, 1), interpolation, padding_mode="border", align_corners=False)
    # Comparing in place keeps floats, which is faster on a CPU than booleans; the edge itself is inside.
    inside = position.abs().amax(1, keepdim=True).le_(1 + 1e-5)
    return out.mul_(inside)


def shear(x: Tensor, y: Tensor, h: int, w: int) -> Tensor:
    """Matrices for images of h × w pixels: i below the top read x · i to the right, j from the left y · j below."""
    one, right, down = torch.ones_like(x), x * (h / w), y * (w / h)
    return torch.stack((one, right, right, down, one, down), 1).view(-1, 2, 3)


def rotation(degrees: Tensor, h: int, w: int) -> Tensor:
    """Matrices that turn images of h × w pixels counter-clockwise about their centre."""
    angle = degrees * (math.pi / 180)
    cosine, sine, zero = angle.cos(), angle.sin(), torch.zeros_like(angle)
    return torch.stack((cosine, sine * (-h / w), zero, sine * (w / h), cosine, zero), 1).view(-1, 2, 3)


def _centres(n: int, like: Tensor) -> Tensor:
    """Where the centres of n pixels lie on a side that runs from -1 to 1."""
    return torch.linspace(1 / n - 1, 1 - 1 / n, n, device=like.device)


REACH = 4
"""Standard deviations after which a Gaussian counts as zero."""


def blurred(x: Tensor, sigma: Tensor) -> Tensor:
    """Convolve image b with a Gaussian of standard deviation sigma[b] pixels; the edge repeats."""
    h, w = x.shape[-2:]
    across = _averages(w, sigma)
    down = across if h == w else _averages(h, sigma)
    return down.unsqueeze(1).to(x.dtype) @ x @ across.mT.unsqueeze(1).to(x.dtype)


def smoothed_noise(noise: Tensor, sigma: float) -> Tensor:
    """White noise (…×H×W, of variance 1) weighed with a Gaussian of `sigma` pixels; the variance stays 1 everywhere."""
    width = torch.full((1,), sigma, device=noise.device)
    down, across = (F.normalize(_gaussians(n, 0, width)[0]) for n in noise.shape[-2:])
    return down @ noise @ across.mT


def _averages(n: int, sigma: Tensor) -> Tensor:
    """B×n×n: row i holds the weights with which pixel i averages a line of n pixels."""
    reach = max(1, round(REACH * float(sigma.max()))) if len(sigma) else 1
    weights = _gaussians(n, reach, sigma)
    weights = weights / weights.sum(2, keepdim=True)
    inside = weights[:, :, reach:-reach].clone()
    inside[:, :, 0] += weights[:, :, :reach].sum(2)
    inside[:, :, -1] += weights[:, :, -reach:].sum(2)
    return inside


def _gaussians(n: int, reach: int, sigma: Tensor) -> Tensor:
    """B×n×(n + 2 reach): row i is a Gaussian about pixel i, on a line that goes on by `reach` at both ends."""
    source = torch.arange(-reach, n + reach, device=sigma.device)
    squared = (torch.arange(n, device=sigma.device).view(n, 1) - source).square()
    return torch.exp(squared * (-0.5 / sigma.clamp(min=1e-3).square()).view(-1, 1, 1))
