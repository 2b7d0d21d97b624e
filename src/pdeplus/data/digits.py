"""Handwritten digits (Alpaydin and Kaynak, 1998): 1,797 real images that come with scikit-learn."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import final

import numpy as np
import torch
from torch.nn import functional as F

from .._lib.registry import require
from .._lib.seeds import generator_for
from ..augment.crop_flip import CropFlip
from ..errors import check_least
from .base import Images, Source, check_size

TEST_IMAGES = 500


@final
@dataclass(frozen=True, kw_only=True)
class Digits(Source):
    """The bundled digits, enlarged from 8×8; a fixed 500 of them are the test set."""

    size: int = 32
    """Side of the images in pixels."""
    channels: int = 3
    """3 repeats the grey channel, as colour augmentations and corruptions expect."""

    def __post_init__(self) -> None:
        check_size(self.size)
        check_least("data.channels", self.channels, 1)

    @property
    def classes(self) -> tuple[str, ...]:
        return tuple("0123456789")

    @property
    def transform(self) -> CropFlip:
        return CropFlip(padding=2, flip=False)

    def train(self) -> Images:
        return self._part(slice(TEST_IMAGES, None))

    def test(self) -> Mapping[str, Images]:
        return {"clean": self._part(slice(TEST_IMAGES))}

    def _part(self, part: slice) -> Images:
        (datasets,) = require("sklearn.datasets", purpose="data set digits", extra="digits")
        pixels, targets = datasets.load_digits(return_X_y=True)
        grey = torch.from_numpy(np.asarray(pixels, dtype=np.float32)).view(-1, 8, 8)  # 0..16
        labels = torch.from_numpy(np.asarray(targets, dtype=np.int64))
        chosen = torch.randperm(len(labels), generator=generator_for(0, "digits"))[part]
        shown = F.interpolate(grey[chosen, None] / 16, (self.size, self.size), mode="bicubic", antialias=True)
        images = shown.clamp(0, 1).mul(255).round().to(torch.uint8)
        return Images(images.repeat(1, self.channels, 1, 1), labels[chosen])
