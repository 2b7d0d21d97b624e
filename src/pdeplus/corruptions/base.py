"""What a corruption is, and where its random numbers come from.

A corruption is a decorated function in its family's file: images in grey levels go in, images in grey levels come out,
the caller clips and truncates them to whole levels. Its severities stand in the decorator.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal, final

import torch
from torch import Tensor

from .._seeds import derive

Scale = Literal["cifar", "tiny", "imagenet"]
"""Whose constants: CIFAR-C's (made for 32 px), Tiny-ImageNet-C's (64 px) or ImageNet-C's (224 px)."""
Family = Literal["noise", "blur", "weather", "digital"]
SEVERITIES = (1, 2, 3, 4, 5)
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
        self._streams = [torch.Generator().manual_seed(derive(seed, *purpose, i)) for i in indices]

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
        out = torch.empty(len(self._streams), *shape)
        for row, stream in zip(out.unbind(0), self._streams, strict=True):
            fill(row, stream)
        return out.to(self.device)


@final
@dataclass(frozen=True)
class Corruption:
    """A named way of spoiling images, with the constants of its five severities at each scale."""

    name: str
    family: Family
    extra: bool
    """One of the four kept for validation, not of the fifteen of the benchmark."""
    seeded: bool
    """Whether chance plays a part."""
    constants: dict[Scale, tuple[Any, ...]]
    function: Callable[..., Tensor]

    def __call__(self, x: Tensor, draws: Draws, severity: int, scale: Scale) -> Tensor:
        """Corrupt N×3×H×W grey levels (float, 0 to 255); the result is not yet clipped."""
        constants = self.constants[scale][severity - 1]
        return self.function(x, draws, *(constants if isinstance(constants, tuple) else (constants,)))


def corruption(
    family: Family,
    *,
    cifar: tuple[Any, ...],
    tiny: tuple[Any, ...],
    imagenet: tuple[Any, ...],
    extra: bool = False,
    seeded: bool = True,
) -> Callable[[Callable[..., Tensor]], Corruption]:
    """Make a corruption of a function `f(x, draws, *constants)`; the constants are those of severities 1 to 5."""

    def made(function: Callable[..., Tensor]) -> Corruption:
        constants: dict[Scale, tuple[Any, ...]] = {"cifar": cifar, "tiny": tiny, "imagenet": imagenet}
        assert all(len(levels) == len(SEVERITIES) for levels in constants.values()), function.__name__
        return Corruption(function.__name__, family, extra, seeded, constants, function)

    return made
