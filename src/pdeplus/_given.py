"""Data to test on, as a user says it: a name, a Source, or images and labels in hand."""

from pathlib import Path
from typing import Any, cast, final

import numpy as np
import torch
from torch import Tensor

from ._errors import UserError
from ._registry import build
from .data.base import Images, Source
from .data.image_folder import ImageFolder
from .records import CLEAN


def as_source(data: object) -> tuple[Source, str]:
    """A data set and its name: of a Source, a registered name, or a pair of images and labels."""
    if isinstance(data, Source):
        return data, name_of(data)
    if isinstance(data, str):
        return build("data", data, {}), data
    if isinstance(data, tuple) and len(cast(tuple[Any, ...], data)) == 2:
        return Given(*cast(tuple[Any, Any], data)), "given images"
    raise UserError("data must be the name of a data set, a Source, or a pair (images, labels)")


def name_of(data: Source) -> str:
    """As the registry has it; a folder of pictures has its own name."""
    if isinstance(data, ImageFolder):
        return Path(data.root).resolve().name
    return type(data).__module__.rpartition(".")[2]


@final
class Given(Source):
    """Test images a user hands over: bytes N×H×W×C or N×C×H×W, or floats N×C×H×W in [0, 1]."""

    def __init__(self, images: Any, labels: Any) -> None:
        pixels, targets = _bytes(images), _tensor(labels).long()
        if targets.ndim != 1 or len(targets) != len(pixels) or not len(targets):
            shown = "×".join(map(str, targets.shape)) or "none"
            raise UserError(f"{len(pixels)} images need as many labels in one row, not {shown}")
        if int(targets.min()) < 0:
            raise UserError(f"labels start at 0; the least is {int(targets.min())}")
        self.images = Images(pixels, targets)

    @property
    def classes(self) -> tuple[str, ...]:
        return tuple(str(i) for i in range(int(self.images.labels.max()) + 1))

    @property
    def transform(self) -> Any:
        raise UserError("given images are for testing")

    def train(self) -> Images:
        raise UserError("given images are for testing")

    def test(self) -> dict[str, Images]:
        return {CLEAN: self.images}


def _tensor(values: Any) -> Tensor:
    if isinstance(values, Tensor):
        return values.detach().cpu()
    array = np.ascontiguousarray(values)
    return torch.from_numpy(array if array.flags.writeable else array.copy())


def _bytes(images: Any) -> Tensor:
    pixels = _tensor(images)
    if pixels.ndim == 4 and not pixels.numel():
        raise UserError("there are no images to test on")
    if pixels.ndim != 4:
        raise UserError(f"images must have four dimensions, N×C×H×W or N×H×W×C, not {pixels.ndim}")
    if pixels.is_floating_point():
        low, high = float(pixels.min()), float(pixels.max())
        if not (low >= 0 and high <= 1):
            way_out = "give them in [0, 1] or as bytes, and put any normalisation into the model"
            raise UserError(f"images run from {low:.3g} to {high:.3g}; {way_out}")
        pixels = pixels.float().mul(255).round().to(torch.uint8)
    elif pixels.dtype != torch.uint8:
        raise UserError(f"images must be bytes or floats in [0, 1], not {str(pixels.dtype).removeprefix('torch.')}")
    if pixels.shape[1] not in (1, 3) and pixels.shape[3] in (1, 3):
        pixels = pixels.permute(0, 3, 1, 2)
    return pixels.contiguous()
