"""The suites: the benchmark's fifteen corruptions, four more for validation, C̄'s ten; what applies them to images."""

import hashlib
from collections.abc import Callable, Iterable, Sequence
from dataclasses import KW_ONLY, dataclass, replace
from functools import partial
from types import ModuleType
from typing import Any, Literal, TypeVar, final, get_args

import numpy as np
import torch
from PIL import Image
from torch import Tensor

from .._lib.registry import load_module, unknown
from .._lib.seeds import derive
from ..data._pictures import as_bytes
from ..errors import UserError
from . import blur, cbar, digital, noise, weather
from .base import SEVERITIES, Constants, Corruption, Draws, apply, check_severities
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
NORMALISED = "corrupt images before they are normalised"
Pixels = TypeVar("Pixels", np.ndarray, Tensor, Image.Image)


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
        images: bytes, or floats in [0, 1], with one or three channels: a tensor on any device, N×C×H×W or C×H×W; an
            array or a tensor, N×H×W×C or H×W×C; a PIL picture. The result is of the same kind, in whole grey levels.
        name: one of `CORRUPTIONS`, `EXTRA_CORRUPTIONS` or `CBAR`.
        severity: 1 to 5.
        constants: whose: "cifar" (meant for 32 px), "tiny" (64 px) or "imagenet" (224 px); those that suit the images'
            size if not given. C̄ has the same for all.
        seed: of all randomness.
        indices: the images' places in their data set; 0, 1, … if not given.
        scale: the older name of `constants`.
    """
    corruption = find(name)
    if None not in (constants, scale) and constants != scale:
        raise UserError(f"constants={constants!r} and scale={scale!r} differ; scale is the older name of constants")
    pixels, as_given = _in_colour(images)
    return as_given(apply(corruption, pixels, severity, constants or scale, seed, indices))


@final
@dataclass(frozen=True)
class Corrupt:
    """A corruption as a transform, as torchvision's: called on an image or a batch, it gives the same kind back.

    Takes what `corrupt` takes. What becomes of an image depends on (seed, name, severity) and on its pixels, or its
    `index` where that is given: not on the order, nor on the workers of a loader. What stands behind the image, such as
    a label, is handed on.
    """

    name: str
    severity: int = 3
    _: KW_ONLY
    constants: Constants | None = None
    """Whose; those that suit the image's size if not given."""
    seed: int = 0

    def __post_init__(self) -> None:
        find(self.name)
        check_severities(self.severity)

    def __call__(self, image: Any, *others: Any, index: int | Iterable[int] | None = None) -> Any:
        pixels, as_given = _in_colour(image)
        places = _places(pixels) if index is None else [index] if isinstance(index, int) else index
        done = as_given(apply(find(self.name), pixels, self.severity, self.constants, self.seed, places))
        return (done, *others) if others else done


@final
@dataclass(frozen=True)
class RandomCorruption:
    """A transform that corrupts each image by one of several corruptions at one of several severities, with chance `p`.

    Takes what `Corrupt` takes. By default it draws from the four corruptions that no test has: a network trained on
    one of the fifteen, or of C̄'s ten, has seen its test.
    """

    names: Sequence[str] = EXTRA_CORRUPTIONS
    severities: Sequence[int] = SEVERITIES
    _: KW_ONLY
    p: float = 1.0
    constants: Constants | None = None
    """Whose; those that suit the image's size if not given."""
    seed: int | None = None
    """None draws anew from torch's own generator at each call; with a seed the image's pixels decide."""

    def __post_init__(self) -> None:
        if isinstance(self.names, str) or not self.names or not self.severities or not 0 <= self.p <= 1:
            raise UserError("RandomCorruption needs a list of names, a list of severities and p between 0 and 1")
        for name in self.names:
            find(name)
        check_severities(*self.severities)

    def __call__(self, image: Any, *others: Any) -> Any:
        pixels, as_given = _in_colour(image)
        if self.seed is None:
            seeds = [int(seed) for seed in torch.randint(2**62, (len(pixels),), generator=None)]
        else:
            seeds = [derive(self.seed, "random corruption", place) for place in _places(pixels)]
        for i, seed in enumerate(seeds):
            chance, name, severity = map(float, torch.rand(3, generator=torch.Generator().manual_seed(seed)))
            if chance < self.p:
                chosen = find(self.names[int(name * len(self.names))])
                level = self.severities[int(severity * len(self.severities))]
                pixels[i : i + 1] = apply(chosen, pixels[i : i + 1], level, self.constants, seed)
        done = as_given(pixels)
        return (done, *others) if others else done


def _places(pixels: Tensor) -> list[int]:
    """A number for each image by its pixels alone, in place of its place in a data set."""
    rows = pixels.cpu().contiguous().numpy()
    return [int.from_bytes(hashlib.blake2b(row.tobytes(), digest_size=8).digest(), "big") >> 1 for row in rows]


def _in_colour(given: Any) -> tuple[Tensor, Callable[[Tensor], Any]]:
    """Images of any kind as uint8 N×H×W×3, and what makes the given kind of such a tensor again; grey stays grey."""
    pixels, as_given = as_bytes(given, NORMALISED)
    if pixels.shape[-1] == 3:
        return pixels, as_given
    colour = pixels.expand(*pixels.shape[:-1], 3).contiguous()
    return colour, lambda out: as_given(out.float().mean(-1, keepdim=True).round_().to(torch.uint8))


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
