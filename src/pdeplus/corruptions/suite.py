"""The suites: the benchmark's fifteen corruptions, four more for validation, C̄'s ten, and `corrupt` to apply them."""

from collections.abc import Callable, Iterable
from dataclasses import replace
from functools import partial
from types import ModuleType
from typing import Any, Literal, TypeVar, get_args

import numpy as np
import torch
from torch import Tensor

from .._lib.registry import load_module, unknown
from ..errors import UserError
from . import blur, cbar, digital, noise, weather
from .base import SEVERITIES, Constants, Corruption, Draws, apply
from .extra import EXTRA


def _in(*files: ModuleType) -> dict[str, Corruption]:
    return {c.name: c for file in files for c in vars(file).values() if isinstance(c, Corruption)}


FIFTEEN, TEN = _in(noise, blur, weather, digital), _in(cbar)
SUITE = FIFTEEN | EXTRA
"""The nineteen by their names, in the usual order, the four extra ones last."""
KNOWN = SUITE | TEN
"""Every corruption by its name."""
CORRUPTIONS = tuple(FIFTEEN)
"""The fifteen of the benchmark."""
EXTRA_CORRUPTIONS = tuple(EXTRA)
"""The other four, for validation."""
CBAR = tuple(TEN)
"""The ten of C̄, a second test, unlike the fifteen."""
CorruptedSuite = Literal["corruptions", "all_corruptions", "cbar"]
NAMES: dict[str, tuple[str, ...]] = {"corruptions": CORRUPTIONS, "all_corruptions": tuple(SUITE), "cbar": CBAR}
"""The corruptions of each suite of them."""
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
        name: one of `CORRUPTIONS`, `EXTRA_CORRUPTIONS` or `CBAR`.
        severity: 1 to 5.
        constants: whose: "cifar" (meant for 32 px, the default), "tiny" (64 px) or "imagenet" (224 px);
            C̄ has the same for all.
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
    """The corruption of that name, or a user's own by its dotted name; an unknown one is answered with the known ones.

    A user's own is what the decorator `corruption` makes, or a function of a float image C×H×W in [0, 1], the severity
    and a seeded generator that gives such an image.
    """
    if "." in name.strip("."):
        module, _, own = name.rpartition(".")
        found = getattr(load_module("corruptions", module, module), own, None)
        if isinstance(found, Corruption):
            return replace(found, name=name)
        if not callable(found):
            raise UserError(f"corruptions: {name!r}: the module {module} has no function {own}")
        severities = dict.fromkeys(get_args(Constants), tuple(SEVERITIES))
        return Corruption(name, "own", False, True, severities, partial(_each_image, found, name))
    if name not in KNOWN:
        raise unknown(f"corruption {name!r}", name, KNOWN)
    return KNOWN[name]


def _each_image(function: Callable[..., Any], name: str, x: Tensor, draws: Draws, severity: int) -> Tensor:
    """A user's function on each image, whose mistakes are told by name."""
    done = list[Tensor]()
    for image, stream in zip(x / 255, draws.streams, strict=True):
        try:
            out = torch.as_tensor(function(image, severity, stream))
        except Exception as error:  # a user's function may raise anything
            reason = f"{type(error).__name__}: {error}"
            raise UserError(f"corruption {name} fails at severity {severity}: {reason}") from error
        if out.shape != image.shape:
            shapes = ("×".join(map(str, t.shape)) for t in (image, out))
            raise UserError("corruption {} makes {} of an image of {}".format(name, *reversed([*shapes])))
        done.append(out.float())
    return torch.stack(done) * 255
