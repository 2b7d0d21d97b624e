"""What a corruption is, how it is applied to images, and where its random numbers come from.

A corruption is a decorated function in its family's file: images in grey levels go in, images in grey levels come out,
`apply` clips and truncates them to whole levels. The constants of its severities stand in the decorator.
"""

import operator
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Literal, final

import torch
from torch import Tensor

from .._lib.seeds import derive
from ..errors import UserError, check_choice

Constants = Literal["cifar", "tiny", "imagenet"]
"""A benchmark's constants: CIFAR-C's (meant for 32 px), Tiny-ImageNet-C's (64 px) or ImageNet-C's (224 px)."""
Family = Literal["noise", "blur", "weather", "digital"]
CBar = Literal["cbar"]
"""Stands for a family where a corruption is one of the ten of C̄."""
Own = Literal["own"]
"""Stands for a family where a corruption is a user's own."""
SEVERITIES = (1, 2, 3, 4, 5)
VALUES_AT_ONCE = 400_000
"""Channel values in a chunk: as floats these stay in the processor's cache."""
NEARLY = 1e-3
"""Added before grey levels are cut to whole ones: white that a sum's rounding made 254.9999 stays white."""


@final
class Draws:
    """Random numbers for a batch, every image's from a stream of its own.

    What image i gets depends on (seed, purpose, i) alone. The numbers are drawn on the CPU and moved, so that they
    are the same on every device.
    """

    def __init__(self, seed: int, purpose: Sequence[str | int], indices: Sequence[int], device: torch.device) -> None:
        self.device = device
        self.streams = [torch.Generator().manual_seed(derive(seed, *purpose, i)) for i in indices]
        """A generator on the CPU for each image."""

    def normal(self, *shape: int) -> Tensor:
        """Standard normal numbers, N×shape."""
        return self._fill(shape, lambda row, stream: row.normal_(generator=stream))

    def uniform(self, low: float, high: float, *shape: int) -> Tensor:
        """Numbers from U(low, high), N×shape."""
        return self._fill(shape, lambda row, stream: row.uniform_(low, high, generator=stream))

    def integers(self, low: int, high: int, *shape: int) -> Tensor:
        """Whole numbers from low to high - 1, N×shape, int64."""
        return (self.uniform(0, 1, *shape) * (high - low)).long() + low

    def _fill(self, shape: Sequence[int], fill: Callable[[Tensor, torch.Generator], Any]) -> Tensor:
        out = torch.empty(len(self.streams), *shape)
        for row, stream in zip(out.unbind(0), self.streams, strict=True):
            fill(row, stream)
        return out.to(self.device)


@final
@dataclass(frozen=True)
class Corruption:
    """A named way of spoiling images, with the constants of its five severities in each benchmark."""

    name: str
    family: Family | CBar | Own
    extra: bool
    """One of the four kept for validation, not of those for testing."""
    seeded: bool
    """Whether chance plays a part."""
    constants: dict[Constants, tuple[Any, ...]]
    """What `function` takes at severities 1 to 5: a number, or several."""
    function: Callable[..., Tensor]

    def __call__(self, x: Tensor, draws: Draws, severity: int, constants: Constants) -> Tensor:
        """Corrupt N×3×H×W grey levels (float, 0 to 255); the result is not yet clipped."""
        values = self.constants[constants][severity - 1]
        return self.function(x, draws, *(values if isinstance(values, tuple) else (values,)))


def corruption(
    family: Family | CBar,
    *,
    cifar: tuple[Any, ...],
    tiny: tuple[Any, ...] | None = None,
    imagenet: tuple[Any, ...] | None = None,
    extra: bool = False,
    seeded: bool = True,
) -> Callable[[Callable[..., Tensor]], Corruption]:
    """Make a corruption of a function `f(x, draws, *constants)`, given the constants of severities 1 to 5.

    Those of CIFAR serve images of any size where no others are given.
    """

    def decorate(function: Callable[..., Tensor]) -> Corruption:
        constants: dict[Constants, tuple[Any, ...]] = {
            "cifar": cifar,
            "tiny": tiny or cifar,
            "imagenet": imagenet or cifar,
        }
        assert all(len(values) == len(SEVERITIES) for values in constants.values()), function.__name__
        return Corruption(function.__name__, family, extra, seeded, constants, function)

    return decorate


@torch.no_grad()
def apply(
    corruption: Corruption,
    images: Tensor,
    severity: int,
    constants: Constants | None,
    seed: int,
    indices: Iterable[int] | None = None,
) -> Tensor:
    """uint8 N×H×W×3 under a corruption; image i depends on (seed, name, severity, i) and its pixels alone.

    The constants are those of this name, or for None those that suit the images' size.
    """
    severity, seed = _whole("severity", severity), _whole("seed", seed)
    check_severities(severity)
    if constants is not None:
        check_choice("constants", constants, Constants)
    if images.dtype != torch.uint8 or images.ndim != 4 or images.shape[-1] != 3 or 0 in images.shape[1:]:
        shape = "×".join(map(str, images.shape))
        raise UserError(f"images must be uint8 N×H×W×3, not {str(images.dtype).removeprefix('torch.')} {shape}")
    places = range(len(images)) if indices is None else [_whole("indices", i) for i in indices]
    if len(places) != len(images):
        raise UserError(f"{len(images)} images need as many indices, not {len(places)}")
    constants = fitting_constants(*images.shape[1:3]) if constants is None else constants
    out = torch.empty_like(images, memory_format=torch.contiguous_format)
    size = max(VALUES_AT_ONCE // max(images[0:1].numel(), 1), 1)
    for start in range(0, len(images), size):
        part = slice(start, start + size)
        x = images[part].permute(0, 3, 1, 2).float()
        draws = Draws(seed, (corruption.name, severity), places[part], images.device)
        levels = corruption(x.contiguous(), draws, severity, constants).add_(NEARLY).clamp_(0, 255)
        out[part] = levels.to(torch.uint8).permute(0, 2, 3, 1)
    return out


def apply_planes(corruption: Corruption, pixels: Tensor, places: Sequence[int], severity: int, seed: int) -> Tensor:
    """uint8 N×C×H×W under a corruption, with the constants that suit its size; grey images stay grey."""
    channels = pixels.shape[1]
    if channels not in (1, 3):
        raise UserError(f"corruptions need images of one or three channels, not {channels}")
    colour = pixels.expand(-1, 3, -1, -1).permute(0, 2, 3, 1).contiguous()
    done = apply(corruption, colour, severity, None, seed, places).permute(0, 3, 1, 2)
    return done if channels == 3 else done.float().mean(1, keepdim=True).round().to(torch.uint8)


def fitting_constants(height: int, width: int) -> Constants:
    """The benchmark whose constants suit images of this size best."""
    side = min(height, width)
    return "cifar" if side <= 48 else "tiny" if side <= 128 else "imagenet"


def check_severities(*severities: int) -> None:
    """Refuse what is no severity."""
    wrong = next((severity for severity in severities if severity not in SEVERITIES), None)
    if wrong is not None:
        raise UserError(f"severity={wrong} must be a whole number from 1 to 5")


def _whole(name: str, value: object) -> int:
    """A whole number of any kind as an int: others would quietly give another stream."""
    try:
        return operator.index(value)  # type: ignore[reportArgumentType]
    except TypeError as error:
        raise UserError(f"{name}={value!r} must be a whole number") from error
