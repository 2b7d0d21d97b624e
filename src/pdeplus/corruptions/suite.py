"""The suite: the fifteen corruptions of the benchmark, four more for validation, and `corrupt` to apply them."""

from collections.abc import Iterable
from typing import TypeVar

import numpy as np
import torch
from torch import Tensor

from .._lib.registry import unknown
from ..errors import UserError
from . import blur, digital, noise, weather
from .base import Constants, Corruption, apply
from .extra import EXTRA

FIFTEEN = {c.name: c for f in (noise, blur, weather, digital) for c in vars(f).values() if isinstance(c, Corruption)}
SUITE = FIFTEEN | EXTRA
"""Every corruption by its name, in the usual order, the four extra ones last."""
CORRUPTIONS = tuple(FIFTEEN)
"""The fifteen of the benchmark."""
EXTRA_CORRUPTIONS = tuple(EXTRA)
"""The other four, for validation."""
Pixels = TypeVar("Pixels", np.ndarray, Tensor)


def corrupt(
    images: Pixels,
    name: str,
    severity: int = 3,
    constants: Constants | None = None,
    seed: int = 0,
    *,
    indices: Iterable[int] | None = None,
    scale: Constants | None = None,
) -> Pixels:
    """Corrupt images; what becomes of image i depends on (seed, name, severity, i) and its pixels alone.

    Args:
        images: uint8 N×H×W×3, an array or a tensor on any device; the result is the same kind.
        name: one of `CORRUPTIONS` or `EXTRA_CORRUPTIONS`.
        severity: 1 to 5.
        constants: whose: "cifar" (meant for 32 px, the default), "tiny" (64 px) or "imagenet" (224 px).
        seed: of all randomness.
        indices: the images' places in their data set; 0, 1, … if not given.
        scale: the older name of `constants`.
    """
    corruption = find(name)
    if None not in (constants, scale) and constants != scale:
        raise UserError(f"constants={constants!r} and scale={scale!r} differ; scale is the older name of constants")
    constants = next(chosen for chosen in (constants, scale, "cifar") if chosen is not None)
    if isinstance(images, Tensor):
        return apply(corruption, images, severity, constants, seed, indices)
    array = np.ascontiguousarray(images)
    if array.dtype.kind not in "biuf":
        raise UserError(f"images must be uint8 N×H×W×3, not {array.dtype}")
    tensor = torch.from_numpy(array if array.flags.writeable else array.copy())
    return apply(corruption, tensor, severity, constants, seed, indices).numpy()


def find(name: str) -> Corruption:
    """The corruption of that name; an unknown name is answered with the known ones."""
    if name not in SUITE:
        raise unknown(f"corruption {name!r}", name, SUITE)
    return SUITE[name]
