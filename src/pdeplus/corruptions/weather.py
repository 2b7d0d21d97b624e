"""Weather: snow, frost, fog, brightness."""

import torch
from torch import Tensor

from ._filters import motion_blur, separable, zoom_matrix
from ._frost import frost_crops, plasma
from .base import Draws, corruption


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
    whitened = torch.maximum(x, _luma(x) * 1.5 + 127.5)
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


def _luma(x: Tensor) -> Tensor:
    return 0.299 * x[:, :1] + 0.587 * x[:, 1:2] + 0.114 * x[:, 2:]
