"""Drawn shapes in four styles: a small multi-domain data set generated on the spot."""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Literal, final, get_args

import torch
from torch import Tensor
from torch.nn import functional as F

from .._lib.seeds import generator_for
from ..augment.crop_flip import CropFlip
from ..errors import check_least
from .base import Images, Source, check_size

Style = Literal["photo", "art", "cartoon", "sketch"]
STYLES: tuple[Style, ...] = get_args(Style)


@final
@dataclass(frozen=True, kw_only=True)
class Synthetic(Source):
    """Shapes of random size, place, angle and colour; one style is learnt from, all four are tested."""

    style: Style = "photo"
    """The style to learn from."""
    size: int = 32
    """Side of the images in pixels."""
    train_images: int = 1400
    """Training images, the same number of each class."""
    test_images: int = 350
    """Test images of each style."""
    seed: int = 0
    """Seed of the drawing; another seed is another data set of the same kind."""

    def __post_init__(self) -> None:
        check_size(self.size)
        check_least("data.train_images", self.train_images, 2 * len(_SHAPES))
        check_least("data.test_images", self.test_images, 1)

    @property
    def classes(self) -> tuple[str, ...]:
        return tuple(_SHAPES)

    @property
    def transform(self) -> CropFlip:
        return CropFlip(padding=2, flip=True)

    def train(self) -> Images:
        return draw(self.style, self.train_images, self.size, generator_for(self.seed, "train", self.style))

    def test(self) -> Mapping[str, Images]:
        styles = sorted(STYLES, key=lambda style: style != self.style)
        return {s: draw(s, self.test_images, self.size, generator_for(self.seed, "test", s)) for s in styles}


def draw(style: Style, n: int, size: int, generator: torch.Generator) -> Images:
    """`n` images in one style, classes in turn: uint8 n×3×size×size."""
    labels = torch.arange(n) % len(_SHAPES)
    render = {"photo": _photo, "art": _art, "cartoon": _cartoon, "sketch": _sketch}[style]
    images = render(_signed_distance(labels, size, generator), generator)
    return Images(images.clamp(0, 1).mul(255).round().to(torch.uint8), labels)


def _signed_distance(labels: Tensor, size: int, generator: torch.Generator) -> Tensor:
    """Distance to each image's outline in units of half the image, negative inside: n×1×size×size."""
    n = len(labels)
    axis = (torch.arange(size) + 0.5) / size * 2 - 1
    y, x = torch.meshgrid(axis, axis, indexing="ij")
    u = torch.rand(n, 4, 1, 1, generator=generator)
    radius, angle = 0.45 + 0.25 * u[:, 0], (u[:, 1] - 0.5) * math.pi / 3
    x, y = x - 0.4 * (u[:, 2] - 0.5), y - 0.4 * (u[:, 3] - 0.5)
    x, y = x * angle.cos() + y * angle.sin(), y * angle.cos() - x * angle.sin()
    out = torch.empty(n, size, size)
    for i, shape in enumerate(_SHAPES.values()):
        mine = labels == i
        out[mine] = shape(x[mine] / radius[mine], y[mine] / radius[mine]) * radius[mine]
    return out[:, None]


def _polygon(x: Tensor, y: Tensor, sides: int, inner: float) -> Tensor:
    """A regular polygon, or a star whose inner corners lie at `inner` of the radius."""
    sector = 2 * math.pi / sides
    radius = torch.hypot(x, y)
    angle = (torch.remainder(torch.atan2(x, -y) / sector + 0.5, 1) - 0.5).abs() * sector
    px, py = radius * angle.cos(), radius * angle.sin()
    qx, qy = inner * math.cos(sector / 2), inner * math.sin(sector / 2)
    length = math.hypot(qx - 1, qy)
    return (qy * (px - 1) - (qx - 1) * py) / length


def _cross(x: Tensor, y: Tensor) -> Tensor:
    long, short = x.abs() - 0.9, y.abs() - 0.28
    return torch.minimum(torch.maximum(long, short), torch.maximum(x.abs() - 0.28, y.abs() - 0.9))


_SHAPES: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "circle": lambda x, y: torch.hypot(x, y) - 0.85,
    "square": lambda x, y: torch.maximum(x.abs(), y.abs()) - 0.75,
    "triangle": lambda x, y: _polygon(x, y, 3, math.cos(math.pi / 3)),
    "cross": _cross,
    "star": lambda x, y: _polygon(x, y, 5, 0.4),
    "ring": lambda x, y: (torch.hypot(x, y) - 0.7).abs() - 0.2,
    "crescent": lambda x, y: torch.maximum(torch.hypot(x, y) - 0.9, 0.75 - torch.hypot(x - 0.45, y)),
}
"""Each class and its signed distance, for a radius of 1."""


def _photo(distance: Tensor, generator: torch.Generator) -> Tensor:
    """Shaded, on a blurred background, with a little sensor noise."""
    n, size = len(distance), distance.shape[-1]
    light = torch.linspace(1.0, 0.6, size).view(1, 1, size, 1)
    ground = 0.3 + 0.5 * _clouds(n, 3, size, 4, generator)
    paint = (0.2 + 0.8 * torch.rand(n, 3, 1, 1, generator=generator)) * light
    noise = 0.03 * torch.randn(n, 3, size, size, generator=generator)
    return torch.lerp(ground, paint.expand_as(ground), _inside(distance, 0.06)) + noise


def _art(distance: Tensor, generator: torch.Generator) -> Tensor:
    """Blotched, saturated paint with an unsteady edge."""
    n, size = len(distance), distance.shape[-1]
    colours = torch.rand(2, n, 3, 1, 1, generator=generator)
    ground, paint = colours + 0.5 * (_clouds(2 * n, 3, size, 8, generator).view(2, n, 3, size, size) - 0.5)
    edge = distance + 0.15 * (_clouds(n, 1, size, 8, generator) - 0.5)
    return (torch.lerp(ground, paint, _inside(edge, 0.08)) * 6).round() / 6


def _cartoon(distance: Tensor, generator: torch.Generator) -> Tensor:
    """Flat colours and a thick black outline."""
    colours = 0.3 + 0.7 * torch.rand(2, len(distance), 3, 1, 1, generator=generator)
    flat = torch.lerp(colours[0], colours[1], _inside(distance, 0.03))
    return flat * (1 - _inside(distance.abs() - 0.08, 0.03))


def _sketch(distance: Tensor, generator: torch.Generator) -> Tensor:
    """A thin, unsteady dark line on white paper."""
    n, size = len(distance), distance.shape[-1]
    wobble = 0.08 * (_clouds(n, 1, size, 8, generator) - 0.5)
    return (1 - 0.85 * _inside((distance + wobble).abs() - 0.03, 0.05)).repeat(1, 3, 1, 1)


def _inside(distance: Tensor, softness: float) -> Tensor:
    """1 inside, 0 outside, with an edge `softness` wide."""
    return torch.sigmoid(-4 * distance / softness)


def _clouds(n: int, channels: int, size: int, cells: int, generator: torch.Generator) -> Tensor:
    """Smooth noise in [0, 1] with about `cells` cells a side."""
    coarse = torch.rand(n, channels, cells, cells, generator=generator)
    return F.interpolate(coarse, (size, size), mode="bilinear", align_corners=False)
