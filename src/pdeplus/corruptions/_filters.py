"""Linear image operations of the corruptions.

An image's result must not depend on the batch it is in, nor on the number of threads. Dense matrix products sum in an
order of their own, so they run in float64 and are rounded to float32, where order no longer shows; sparse products and
sums of shifted images add one term after the other.
"""

import math
from collections.abc import Sequence
from functools import lru_cache
from typing import Any, cast

import numpy as np
import torch
from scipy import sparse
from torch import Tensor

Matrix = Any
"""A sparse matrix of scipy's."""
FEW = 4
"""A Gaussian of up to so many taps a side is faster tap by tap than as a matrix."""
DENSE = 128
"""Lines of up to so many pixels are multiplied with whole matrices, longer ones with their few entries."""
WHOLE = 256
"""Zooming images of up to so many pixels a side is one sparse matrix, of 10 to 30 MB at the most."""
MANY = 80
"""From so many taps on, a filter of large images is faster by Fourier transform."""


def separable(x: Tensor, rows: Matrix, columns: Matrix) -> Tensor:
    """rows · x · columnsᵀ for each image plane of `x` (…×H×W); the rule for the border is part of the matrices."""
    return along(along(x, rows, -2), columns, -1)


def along(x: Tensor, matrix: Matrix, axis: int) -> Tensor:
    """Multiply every line along an axis (-1 or -2) with a matrix."""
    if max(matrix.shape) <= DENSE:
        dense = torch.from_numpy(matrix.toarray()).to(x.device)
        return (dense @ x.double() if axis == -2 else x.double() @ dense.mT).to(x.dtype)
    lines = x.movedim(axis, 0)
    flat = lines.reshape(len(lines), -1).cpu().numpy()
    out = torch.from_numpy(matrix.astype(np.float32) @ flat).to(x)
    return out.view(-1, *lines.shape[1:]).movedim(0, axis).contiguous()


def gaussian_filter(x: Tensor, sigma: float, *, truncate: float = 4.0, border: str = "nearest") -> Tensor:
    """Gaussian blur of the last two axes; taps beyond `truncate` sigmas are dropped."""
    radius = int(truncate * sigma + 0.5)
    if radius == 0:
        return x
    offsets = np.arange(-radius, radius + 1)
    taps = np.exp(-0.5 * (offsets / sigma) ** 2)
    taps /= taps.sum()
    if radius <= FEW:
        kernel = torch.from_numpy(taps)
        return convolve(convolve(x, kernel[:, None], border), kernel[None], border)

    def matrix(size: int) -> Matrix:
        places = border_index(np.arange(size) + offsets[:, None], size, border)
        return _matrix(np.repeat(taps, size), np.tile(np.arange(size), len(taps)), places.ravel(), (size, size))

    return separable(x, matrix(x.shape[-2]), matrix(x.shape[-1]))


def _matrix(values: np.ndarray, rows: np.ndarray, columns: np.ndarray, shape: tuple[int, int]) -> Matrix:
    """Values at their places; those at the same place are added."""
    return sparse.csr_matrix((values, (rows, columns)), shape=shape)


def border_index(index: np.ndarray, size: int, border: str) -> np.ndarray:
    """Where an index outside the image looks: `nearest` aaa|abc, `mirror` cb|abc (edge once), `reflect` ba|abc."""
    if border == "nearest" or size == 1:
        return index.clip(0, size - 1)
    if border == "mirror":
        period = 2 * size - 2
        index = np.abs(index) % period
        return np.minimum(index, period - index)
    index = index % (2 * size)
    return np.minimum(index, 2 * size - 1 - index)


def convolve(x: Tensor, kernel: Tensor, border: str = "mirror") -> Tensor:
    """Filter the last two axes with one small kernel of odd sides, tap by tap."""
    padded, total, term = x, torch.zeros_like(x), torch.empty_like(x)
    h, w = x.shape[-2:]
    for axis, size, reach in ((-2, h, kernel.shape[0] // 2), (-1, w, kernel.shape[1] // 2)):
        places = torch.from_numpy(border_index(np.arange(-reach, size + reach), size, border)).to(x.device)
        padded = padded.index_select(axis, places) if reach else padded
    if max(h, w) > DENSE and kernel.numel() >= MANY:
        return _convolve_by_fourier(padded, kernel, h, w)
    for place in kernel.nonzero():
        i, j = int(place[0]), int(place[1])
        torch.mul(padded[..., i : i + h, j : j + w], float(kernel[i, j]), out=term)
        total += term
    return total


def _convolve_by_fourier(padded: Tensor, kernel: Tensor, h: int, w: int) -> Tensor:
    """The same, of an image that is padded for the kernel."""
    sides = [-(-side // 16) * 16 for side in padded.shape[-2:]]  # which have small prime factors
    rows, columns = (side - side % 2 for side in kernel.shape)
    parts = (padded.double(), kernel.flip(0, 1).to(padded.device))
    seen, filtering = (cast(Tensor, torch.fft.rfft2(part, sides)) for part in parts)
    filtered = cast(Tensor, torch.fft.irfft2(seen * filtering, sides))
    return filtered[..., rows : rows + h, columns : columns + w].to(padded.dtype)


def zoom_matrix(size: int, factor: float) -> Matrix:
    """Enlarge the middle of a line by `factor`, linearly, and keep the length.

    As the reference does it: ⌈size/factor⌉ pixels become round(that · factor), end points on end points, trimmed at
    both ends; where rounding gives nothing to trim, the line may be shifted by up to a pixel.
    """
    kept = math.ceil(size / factor)
    enlarged = round(kept * factor)
    start, trim = (size - kept) // 2, (enlarged - size) // 2
    step = (kept - 1) / (enlarged - 1) if enlarged > 1 else 0.0
    position = (np.arange(size) + trim) * step
    left = np.minimum(np.floor(position).astype(int), kept - 1)
    weight = position - left
    columns = start + np.concatenate([left, np.minimum(left + 1, kept - 1)])
    return _matrix(np.concatenate([1 - weight, weight]), np.tile(np.arange(size), 2), columns, (size, size))


def zoom_mean(x: Tensor, factors: Sequence[float]) -> Tensor:
    """The mean of the images (N×C×H×W) and of their middles enlarged by each factor."""
    n, c, h, w = x.shape
    if max(h, w) <= WHOLE:
        pixels = x.reshape(n * c, h * w).T.contiguous().cpu().numpy()
        return torch.from_numpy(_zoom_mean_operator(h, w, tuple(factors)) @ pixels).to(x).T.reshape(n, c, h, w)
    total = x.clone()
    for factor in factors:
        total += separable(x, zoom_matrix(h, factor), zoom_matrix(w, factor))
    return total / (len(factors) + 1)


@lru_cache(maxsize=16)
def _zoom_mean_operator(h: int, w: int, factors: tuple[float, ...]) -> Matrix:
    """That mean as one sparse matrix: a pixel sees few others, on the line towards the centre."""
    total: Any = sparse.identity(h * w, format="csr")
    for factor in factors:
        total = total + sparse.kron(zoom_matrix(h, factor), zoom_matrix(w, factor), format="csr")
    return (total / (len(factors) + 1)).astype(np.float32)


def box_matrix(size: int, new_size: int) -> Matrix:
    """Resize a line with a box filter as Pillow does: a pixel is the mean of those whose centres fall into it."""
    ratio = size / new_size
    width = max(ratio, 1.0)
    centre = (np.arange(new_size) + 0.5) * ratio
    first = np.maximum((centre - width / 2 + 0.5).astype(int), 0)
    last = np.minimum((centre + width / 2 + 0.5).astype(int), size)
    places = first[:, None] + np.arange(int((last - first).max()))
    distance = (places - centre[:, None] + 0.5) / width
    inside = (places < last[:, None]) & (distance > -0.5) & (distance <= 0.5)
    weights = inside / inside.sum(1, keepdims=True)
    rows = np.broadcast_to(np.arange(new_size)[:, None], places.shape)
    return _matrix(weights[inside], rows[inside], places[inside], (new_size, size))


def motion_blur(x: Tensor, angle: Tensor, radius: float, sigma: float) -> Tensor:
    """ImageMagick's motion blur of N×C×H×W grey levels in one direction per image, in whole grey levels.

    A half Gaussian of 2⌈radius⌉ + 1 taps along the direction `angle` (degrees, N); each tap reads the nearest pixel,
    the edge repeats.
    """
    n, c, h, w = x.shape
    step = torch.arange(2 * math.ceil(radius) + 1, dtype=torch.float64)
    taps = torch.exp(-0.5 * (step / sigma) ** 2)
    taps = taps / taps.sum()
    step, taps = step[taps > 1e-6], taps[taps > 1e-6]  # the rest is under a thousandth of a grey level
    radians = torch.deg2rad(angle.double().cpu())[:, None]
    across = torch.ceil(step * radians.cos() - 0.5).long()
    down = torch.ceil(step * radians.sin() - 0.5).long()
    reach = int(torch.maximum(across.abs().max(), down.abs().max()))
    padded = torch.nn.functional.pad(x, [reach] * 4, mode="replicate")
    out = torch.zeros_like(x)
    if max(h, w) > DENSE:  # one image after the other, as sums of shifted ones
        for i in range(n):
            for k, tap in enumerate(taps):
                top, left = int(down[i, k]) + reach, int(across[i, k]) + reach
                out[i] += padded[i, :, top : top + h, left : left + w] * float(tap)
    else:
        plane, width = padded.shape[-2] * padded.shape[-1], padded.shape[-1]
        here = (torch.arange(h)[:, None] + reach) * width + torch.arange(w) + reach
        offsets = (down * width + across).to(x.device)
        base = (here.view(1, 1, -1) + (torch.arange(c) * plane).view(1, c, 1)).view(1, -1).to(x.device)
        flat, sums = padded.reshape(n, -1), out.view(n, -1)
        for k, tap in enumerate(taps):
            sums += flat.gather(1, base + offsets[:, k : k + 1]).mul_(float(tap))
    return out.mul_(257).add_(0.5).floor_().div_(257).floor_()
