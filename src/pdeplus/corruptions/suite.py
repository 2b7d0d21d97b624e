"""The suite: fifteen corruptions of the benchmark, four more for validation, one function to apply them."""

import operator
from collections.abc import Iterable
from typing import TypeVar

import numpy as np
import torch
from torch import Tensor

from .. import _registry
from .._errors import UserError, check_choice
from . import blur, digital, noise, weather
from .base import NEARLY, SEVERITIES, Corruption, Draws, Scale

SUITE = {
    name: made
    for file in (noise, blur, weather, digital)
    for name, made in vars(file).items()
    if isinstance(made, Corruption)
}
"""Every corruption by its name, in the usual order."""
CORRUPTIONS = tuple(name for name, made in SUITE.items() if not made.extra)
"""The fifteen of the benchmark."""
EXTRA_CORRUPTIONS = tuple(name for name, made in SUITE.items() if made.extra)
"""The other four, for validation."""
VALUES_AT_ONCE = 400_000
"""Channel values in a chunk: as floats these stay in the processor's cache."""

Pixels = TypeVar("Pixels", np.ndarray, Tensor)


def corrupt(
    images: Pixels,
    name: str,
    severity: int = 3,
    scale: Scale = "cifar",
    seed: int = 0,
    *,
    indices: Iterable[int] | None = None,
) -> Pixels:
    """Corrupt images; what becomes of image i depends on (seed, name, severity, i) and its pixels alone.

    Args:
        images: uint8 N×H×W×3, an array or a tensor on any device; the result is the same kind.
        name: one of `CORRUPTIONS` or `EXTRA_CORRUPTIONS`.
        severity: 1 to 5.
        scale: whose constants: "cifar" (made for 32 px), "tiny" (64 px) or "imagenet" (224 px).
        seed: of all randomness.
        indices: the images' places in their data set; 0, 1, … if not given.
    """
    corruption = find(name)
    severity, seed = _whole("severity", severity), _whole("seed", seed)
    if severity not in SEVERITIES:
        raise UserError(f"severity={severity} must be a whole number from 1 to 5")
    check_choice("scale", scale, Scale)
    if isinstance(images, Tensor):
        return _corrupt(_checked(images), corruption, severity, scale, seed, indices)
    array = np.ascontiguousarray(images)
    if array.dtype.kind not in "biuf":
        raise UserError(f"images must be uint8 N×H×W×3, not {array.dtype}")
    tensor = torch.from_numpy(array if array.flags.writeable else array.copy())
    return _corrupt(_checked(tensor), corruption, severity, scale, seed, indices).numpy()


def find(name: str) -> Corruption:
    """The corruption of that name; an unknown name is answered with the known ones."""
    if name not in SUITE:
        raise _registry.unknown(f"corruption {name!r}", name, SUITE)
    return SUITE[name]


def _whole(name: str, value: object) -> int:
    """A whole number of any kind as an int: others would quietly give another stream."""
    try:
        return operator.index(value)  # type: ignore[reportArgumentType]
    except TypeError as error:
        raise UserError(f"{name}={value!r} must be a whole number") from error


def _checked(images: Tensor) -> Tensor:
    if images.dtype != torch.uint8 or images.ndim != 4 or images.shape[-1] != 3 or 0 in images.shape[1:]:
        shape = "×".join(map(str, images.shape))
        raise UserError(f"images must be uint8 N×H×W×3, not {str(images.dtype).removeprefix('torch.')} {shape}")
    return images


@torch.no_grad()
def _corrupt(
    images: Tensor, corruption: Corruption, severity: int, scale: Scale, seed: int, indices: Iterable[int] | None
) -> Tensor:
    places = range(len(images)) if indices is None else [_whole("indices", i) for i in indices]
    if len(places) != len(images):
        raise UserError(f"{len(images)} images need as many indices, not {len(places)}")
    out = torch.empty_like(images, memory_format=torch.contiguous_format)
    size = max(VALUES_AT_ONCE // max(images[0:1].numel(), 1), 1)
    for start in range(0, len(images), size):
        part = slice(start, start + size)
        x = images[part].permute(0, 3, 1, 2).float()
        draws = Draws(seed, (corruption.name, severity), places[part], images.device)
        levels = corruption(x.contiguous(), draws, severity, scale).add_(NEARLY).clamp_(0, 255)
        out[part] = levels.to(torch.uint8).permute(0, 2, 3, 1)
    return out
