"""Image operations on batches: float B×C×H×W in grey levels 0..255, one strength per image (B).

Tone operations follow Pillow's look-up tables; geometric ones are affine maps about the centre, sampled
bilinearly, black outside.
"""

import math
from collections.abc import Callable

import torch
from torch import Tensor
from torch.nn import functional as F

Operation = Callable[[Tensor, Tensor], Tensor]
LEVELS = 10.0
"""A strength of 10 is an operation's full range."""


def autocontrast(x: Tensor, level: Tensor) -> Tensor:
    """Stretch each channel to the full range; `level` plays no part."""
    low, high = x.amin((2, 3), keepdim=True), x.amax((2, 3), keepdim=True)
    span = high - low
    return torch.where(span > 0, ((x - low) * (255 / span.clamp(min=1e-6))).floor().clamp(0, 255), x)


def equalize(x: Tensor, level: Tensor) -> Tensor:
    """Flatten each channel's histogram; `level` plays no part."""
    b, c, h, w = x.shape
    grey = x.round().long().view(b * c, h * w)
    histogram = torch.zeros(b * c, 256, dtype=torch.long, device=x.device)
    histogram.scatter_add_(1, grey, torch.ones_like(grey))
    last = histogram.gather(1, grey.amax(1, keepdim=True))
    step = (h * w - last) // 255
    below = histogram.cumsum(1) - histogram
    table = ((below + step // 2) // step.clamp(min=1)).clamp(max=255)
    table = torch.where(step > 0, table, torch.arange(256, device=x.device))
    return table.gather(1, grey).view(b, c, h, w).to(x.dtype)


def posterize(x: Tensor, level: Tensor) -> Tensor:
    """Keep 4 - ⌊4 · level/10⌋ bits."""
    bits = 4 - (4 * level / LEVELS).floor()
    step = torch.exp2(8 - bits).view(-1, 1, 1, 1)
    return (x.round() / step).floor() * step


def solarize(x: Tensor, level: Tensor) -> Tensor:
    """Invert the grey levels from 256 - ⌊256 · level/10⌋ on."""
    threshold = (256 - (256 * level / LEVELS).floor()).view(-1, 1, 1, 1)
    return torch.where(x < threshold, x, 255 - x)


def color(x: Tensor, level: Tensor) -> Tensor:
    """Blend with the grey image."""
    return _blend(_grey(x).expand_as(x), x, level)


def contrast(x: Tensor, level: Tensor) -> Tensor:
    """Blend with the mean grey level."""
    mean = (_grey(x).mean((1, 2, 3), keepdim=True) + 0.5).floor()
    return _blend(mean.expand_as(x), x, level)


def brightness(x: Tensor, level: Tensor) -> Tensor:
    """Blend with black."""
    return _blend(torch.zeros_like(x), x, level)


def sharpness(x: Tensor, level: Tensor) -> Tensor:
    """Blend with a smoothed image; the border stays."""
    kernel = torch.ones(3, 3, device=x.device, dtype=x.dtype)
    kernel[1, 1] = 5
    kernel = (kernel / 13).expand(x.shape[1], 1, 3, 3)
    smooth = x.clone()
    smooth[..., 1:-1, 1:-1] = F.conv2d(x, kernel, groups=x.shape[1]).round()
    return _blend(smooth, x, level)


def affine(x: Tensor, matrix: Tensor) -> Tensor:
    """Map output pixels to input pixels by `matrix` (B×2×3, in pixels about the centre)."""
    h, w = x.shape[-2:]
    scale = torch.tensor([w / 2, h / 2], device=x.device, dtype=x.dtype)
    theta = matrix.to(x.dtype).clone()
    theta[:, :, :2] *= scale.view(1, 1, 2) / scale.view(1, 2, 1)
    theta[:, :, 2] /= scale
    grid = F.affine_grid(theta, list(x.shape), align_corners=False)
    return F.grid_sample(x, grid, mode="bilinear", padding_mode="zeros", align_corners=False)


def rotation(level: Tensor, size: int) -> Tensor:
    """By up to 30 degrees; a negative level turns the other way."""
    angle = level / LEVELS * math.radians(30)
    return _matrix(angle.cos(), -angle.sin(), angle.sin(), angle.cos())


def shear_x(level: Tensor, size: int) -> Tensor:
    """By up to 0.3."""
    return _matrix(b=level / LEVELS * 0.3, like=level)


def shear_y(level: Tensor, size: int) -> Tensor:
    """By up to 0.3."""
    return _matrix(c=level / LEVELS * 0.3, like=level)


def translate_x(level: Tensor, size: int) -> Tensor:
    """By up to a third of the image."""
    return _matrix(dx=(level / LEVELS * size / 3).trunc(), like=level)


def translate_y(level: Tensor, size: int) -> Tensor:
    """By up to a third of the image."""
    return _matrix(dy=(level / LEVELS * size / 3).trunc(), like=level)


TONE: tuple[Operation, ...] = (autocontrast, equalize, posterize, solarize)
GEOMETRY = (rotation, shear_x, shear_y, translate_x, translate_y)
OVERLAPPING: tuple[Operation, ...] = (color, contrast, brightness, sharpness)
"""The four that coincide with test corruptions; in the authors' preset only."""


def _blend(other: Tensor, x: Tensor, level: Tensor) -> Tensor:
    factor = (level / LEVELS * 1.8 + 0.1).view(-1, 1, 1, 1)
    return torch.lerp(other, x, factor.expand_as(x)).clamp(0, 255)


def _grey(x: Tensor) -> Tensor:
    if x.shape[1] != 3:
        return x.mean(1, keepdim=True)
    weights = torch.tensor([0.299, 0.587, 0.114], device=x.device, dtype=x.dtype)
    return (x * weights.view(1, 3, 1, 1)).sum(1, keepdim=True).round()


def _matrix(
    a: Tensor | float = 1.0,
    b: Tensor | float = 0.0,
    c: Tensor | float = 0.0,
    d: Tensor | float = 1.0,
    dx: Tensor | float = 0.0,
    dy: Tensor | float = 0.0,
    like: Tensor | None = None,
) -> Tensor:
    """(x, y) → (a x + b y + dx, c x + d y + dy), one row of numbers per image."""
    first = like if like is not None else a
    assert isinstance(first, Tensor)
    rows = [value if isinstance(value, Tensor) else torch.full_like(first, value) for value in (a, b, dx, c, d, dy)]
    return torch.stack(rows, 1).view(-1, 2, 3)
