"""C̄: the ten corruptions of CIFAR-10-C̄ (Mintun et al., 2021), chosen to be unlike the fifteen.

They are only for testing: nothing is trained, validated or selected on them. The numbers in a decorator are the levels
of its severities. Lengths are shares of n, the image's shorter side, so that CIFAR's levels serve images of any size.
"""

import math
from typing import cast

import torch
from torch import Tensor
from torch.nn import functional as F

from ._filters import separable
from ._splines import enlarging_matrix, mean_of_rotations
from .base import Draws, corruption

GREY, WHITE = 128.0, 255.0
CELLS = 40
"""Most cells along a checkerboard, which is four times as long as the image: its cells are at least a tenth of it."""
STARS = 5
RAYS = (50, 200)
"""A star has 50 to 199 rays."""
DISCS = 3
"""Discs of pinch_and_twirl along either side."""


def _share(level: float, most: float) -> float:
    """As many tenths of the most as the level says."""
    return level * most / 10


def _side(x: Tensor) -> int:
    return min(x.shape[-2:])


def _places(x: Tensor) -> tuple[Tensor, Tensor]:
    """Rows (H×1) and columns (W) of the pixels, in float64."""
    rows, columns = (torch.arange(size, device=x.device, dtype=torch.float64) for size in x.shape[-2:])
    return rows[:, None], columns


@corruption("cbar", cifar=(0.7, 1.4, 2.1, 3.5, 4.2))
def blue_noise_sample(x: Tensor, draws: Draws, level: float) -> Tensor:
    """Black pixels, evenly scattered: those where noise of high frequencies is low."""
    noise = coloured_noise(draws, 1, frequencies(*x.shape[-2:]))
    return torch.where(noise <= _share(level, 3) - 2.5, 0.0, x)


@corruption("cbar", cifar=(2.5, 4, 5.5, 6.5, 7))
def brownish_noise(x: Tensor, draws: Draws, level: float) -> Tensor:
    """Additive noise of low frequencies, another in each channel; its mean is not zero."""
    noise = coloured_noise(draws, x.shape[1], 1 / (frequencies(*x.shape[-2:]).square() + 1))
    return noise.mul_(_share(level, 64)).add_(x)


def frequencies(h: int, w: int) -> Tensor:
    """Size of each frequency, H×W, in cycles along the shorter side; zero stands at (H/2, W/2)."""
    down, across = ((torch.arange(size, dtype=torch.float64) - size / 2) * (min(h, w) / size) for size in (h, w))
    return torch.hypot(down[:, None], across)


def coloured_noise(draws: Draws, fields: int, strength: Tensor) -> Tensor:
    """Noise of unit deviation, N×fields×H×W, from the amplitude of each frequency and random phases.

    As in the reference, the right half of the phases is the left half turned by 180 degrees; the real part is taken.
    """
    h, w = strength.shape
    phases = draws.uniform(0, 2 * math.pi, fields, h, w).double()
    half = w // 2
    phases[..., w - half :] = phases[..., :half].flip(-2, -1)
    spectrum = torch.polar(strength.to(phases.device).expand_as(phases), phases)
    noise = cast(Tensor, torch.fft.ifft2(cast(Tensor, torch.fft.ifftshift(spectrum, (-2, -1))))).real
    deviation = noise.std((-2, -1), correction=0, keepdim=True)
    return (noise / deviation.clamp(min=1e-12)).float()


@corruption("cbar", cifar=(1, 2, 3, 4, 5))
def checkerboard_cutout(x: Tensor, draws: Draws, level: float) -> Tensor:
    """Some of the black cells of a tilted checkerboard become grey."""
    n = _side(x)
    size = (draws.uniform(0.1, 0.25).double() * n).clamp(min=1).view(-1, 1, 1)
    angle = draws.uniform(0, 2 * math.pi).double().view(-1, 1, 1)
    chosen = draws.uniform(0, 1, CELLS * CELLS) < _share(level, 1)
    rows, columns = _places(x)
    down = ((rows * angle.cos() + columns * angle.sin()) / size).floor().long()
    across = ((columns * angle.cos() - rows * angle.sin()) / size).floor().long()
    period = (4 * n / size).floor().long().clamp(max=CELLS)
    cell = down % period * CELLS + across % period
    cut = ((down + across) % 2 == 0) & chosen.gather(1, cell.flatten(1)).view_as(cell)
    return torch.where(cut[:, None], GREY, x)


@corruption("cbar", cifar=(0.7, 3.5, 5.6, 6.3, 7))
def sparkles(x: Tensor, draws: Draws, level: float) -> Tensor:
    """Five white stars."""
    dark = torch.ones_like(x[:, :1])
    for _ in range(STARS):
        centre, rays = draws.uniform(0, 1, 2), draws.integers(*RAYS)
        lengths = _ray_lengths(draws, _share(level, 0.1) * _side(x)).clamp_(min=1)
        dark *= 1 - starlight(x, centre, rays, lengths, exponent=1)
    return WHITE - (WHITE - x) * dark


@corruption("cbar", cifar=(1, 1.5, 2.5, 4.5, 5))
def inverse_sparkles(x: Tensor, draws: Draws, level: float) -> Tensor:
    """White all around a star."""
    centre, rays = draws.uniform(0.25, 0.75, 2), draws.integers(*RAYS)
    lengths = _ray_lengths(draws, 0.25 * _side(x))
    return WHITE - (WHITE - x) * starlight(x, centre, rays, lengths, exponent=_share(level, 65) / 50)


def _ray_lengths(draws: Draws, radius: float) -> Tensor:
    return draws.normal(RAYS[1]).mul_(0.25).add_(1).mul_(radius)


def starlight(x: Tensor, centre: Tensor, rays: Tensor, lengths: Tensor, exponent: float) -> Tensor:
    """How bright a star is at every pixel, N×1×H×W in [0, 1]: brightest halfway between two rays.

    `centre` (N×2) is its row and column as shares of height and width; of `lengths` each star has its first `rays` (N).
    Light decays with the squared distance to the power of `exponent`.
    """
    h, w = x.shape[-2:]
    rows, columns = (place.float() for place in _places(x))
    down, across = rows - h * centre[:, :1, None], columns - w * centre[:, 1:, None]
    number = rays.view(-1, 1, 1)
    turn = (torch.atan2(down, across) / (2 * math.pi) % 1) * number
    ray = turn.long() % number
    before, after = (lengths.gather(1, i.flatten(1)).view_as(turn) for i in (ray, (ray + 1) % number))
    between = turn - turn.floor()
    length = torch.lerp(before, after, between)
    light = (length.square() / (down.square() + across.square() + 1e-4)) ** exponent
    return (light * (1 - (between - 0.5).square())).clamp_(0, 1)[:, None]


@corruption("cbar", cifar=(0.5, 1, 1.5, 2, 2.5))
def lines(x: Tensor, draws: Draws, level: float) -> Tensor:
    """Grey lines in more or less one direction; one at least."""
    h, w = x.shape[-2:]
    n = _side(x)
    count = max(int(_share(level, 1) * n), 1)
    points = draws.uniform(0, 1, count, 2).double() * torch.tensor([h, w], device=x.device)
    spread, common = draws.uniform(0.1, 1).double(), draws.uniform(0, 2 * math.pi).double()
    angles = common[:, None] + 2 * math.pi * spread[:, None] * draws.uniform(-0.5, 0.5, count)
    half = n * torch.stack([angles.sin(), angles.cos()], -1)
    free = torch.ones_like(x[:, :1])
    for start, end in zip((points - half).trunc().unbind(1), (points + half).trunc().unbind(1), strict=True):
        free *= 1 - covered(x, start, end)
    return GREY + (x - GREY) * free


def covered(x: Tensor, start: Tensor, end: Tensor) -> Tensor:
    """How much of each pixel the line from `start` to `end` covers, N×1×H×W: 1 less the distance, between the ends.

    The ends are rows and columns of pixels, N×2.
    """
    rows, columns = _places(x)
    length = torch.hypot(*(end - start).unbind(1)).clamp(min=1e-12).view(-1, 1, 1)
    dy, dx = ((end - start)[:, i].view(-1, 1, 1) / length for i in (0, 1))
    down, across = rows - start[:, :1, None], columns - start[:, 1:, None]
    along, beside = down * dy + across * dx, down * dx - across * dy
    cover = (1 - beside.abs()).clamp_(min=0).mul_((along >= 0) & (along <= length))
    return cover[:, None].float()


@corruption("cbar", cifar=(5.5, 6, 6.5, 8.5, 10))
def pinch_and_twirl(x: Tensor, draws: Draws, level: float) -> Tensor:
    """Nine discs, each drawn towards its centre and twisted to the left or right."""
    h, w = x.shape[-2:]
    sides = 2.0 * draws.integers(0, 2, DISCS * DISCS).double() - 1
    rows, columns = _places(x)
    height, width = h // DISCS, w // DISCS
    i, j = ((p / max(s, 1)).floor().clamp(max=DISCS - 1) for p, s in ((rows, height), (columns, width)))
    down, across = rows - (i + 0.5) * height, columns - (j + 0.5) * width
    # discs hardly touch, so that warping them one after another or at once is the same
    radius = max(_side(x) // DISCS / 2, 0.5)
    d = (torch.hypot(down, across) / radius).clamp(1e-9, 1)  # 1, where nothing moves, outside the disc
    pull = torch.sin(math.pi / 2 * d) ** -(_share(level, 0.4) + 0.1)
    angle = _share(level, math.pi / 2) * (1 - d).square() * sides[:, (i * DISCS + j).long()]
    cos, sin = pull * angle.cos(), pull * angle.sin()
    return bilinear(x, rows + cos * down + sin * across - down, columns + cos * across - sin * down - across)


@corruption("cbar", cifar=(5.5, 6, 6.5, 7.5, 8))
def ripple(x: Tensor, draws: Draws, level: float) -> Tensor:
    """Waves along both axes."""
    n = _side(x)
    lengths, phases = draws.uniform(0.1, 0.3, 2) * n, draws.uniform(0, 2 * math.pi, 2)
    rows, columns = (
        place + _share(level, 0.025) * n * torch.sin(2 * math.pi * place / length.view(-1, 1, 1) + phase.view(-1, 1, 1))
        for place, length, phase in zip(_places(x), lengths.double().unbind(1), phases.double().unbind(1), strict=True)
    )
    return bilinear(x, rows, columns)


def bilinear(x: Tensor, rows: Tensor, columns: Tensor) -> Tensor:
    """Images at pixel coordinates, which broadcast to N×H×W; around the image all is black."""
    h, w = x.shape[-2:]
    across, down = columns * (2 / max(w - 1, 1)) - 1, rows * (2 / max(h - 1, 1)) - 1
    grid = torch.stack([across.expand(-1, h, w), down.expand(-1, h, w)], -1).to(x.dtype)
    return F.grid_sample(x, grid, padding_mode="zeros", align_corners=True)


@corruption("cbar", cifar=(2.8, 3.6, 4.4, 5.2, 6), seeded=False)
def circular_motion_blur(x: Tensor, draws: Draws, level: float) -> Tensor:
    """The mean of rotations about the centre, in which black turns in at the edges."""
    return mean_of_rotations(x, _share(level, 15))


@corruption("cbar", cifar=(1, 2, 5, 9, 10))
def transverse_chromatic_aberration(x: Tensor, draws: Draws, level: float) -> Tensor:
    """All channels are softened, one is enlarged and another enlarged twice as much, in random order.

    The reference enlarges bytes, which are rounded where all else is truncated.
    """
    order = draws.uniform(0, 1, 3).argsort(1)
    out = torch.empty_like(x)
    for k in range(3):
        rows, columns = (enlarging_matrix(size, 1 + _share(level, 0.5) * k / 2) for size in x.shape[-2:])
        channel = order[:, k].view(-1, 1, 1, 1).expand_as(x[:, :1])
        out.scatter_(1, channel, separable(x.gather(1, channel), rows, columns))
    return out.add_(0.5)
