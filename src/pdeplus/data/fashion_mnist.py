"""Fashion-MNIST (Xiao et al., 2017): 60,000 + 10,000 grey pictures of clothes, 28×28, in ten classes."""

import gzip
import math
import shutil
import tempfile
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import final

import numpy as np
import torch
from numpy.typing import NDArray

from ..errors import UserError, check_least
from ._download import Origin, SecondSource, left_by, require_folder
from ._reading import checked_labels, resize
from .base import Images, Source, check_size

NAMES = ("T-shirt", "trouser", "pullover", "dress", "coat", "sandal", "shirt", "sneaker", "bag", "ankle boot")
FILES = {
    "train-images-idx3-ubyte.gz": "8d4fb7e6c68d591d4c3dfef9ec88bf0d",
    "train-labels-idx1-ubyte.gz": "25c81989df183df01b3e8a0aad5dffbe",
    "t10k-images-idx3-ubyte.gz": "bef4ecab320f06d8554ea6380940ec79",
    "t10k-labels-idx1-ubyte.gz": "bb300cfdad3c16e7a12a480ee83cd310",
}
OFFICIAL = "https://github.com/zalandoresearch/fashion-mnist/raw/master/data/fashion"
MEAN = 72.940
"""Mean pixel of the 60,000 training images."""
DEBIAN_FOLDER = Path("/usr/share/datasets/fashion-mnist")


@final
@dataclass(frozen=True, kw_only=True)
class FashionMnist(Source):
    """The original idx files, compressed or not."""

    root: str = ""
    """Folder that holds fashion-mnist, or that folder; else $PDEPLUS_DATA, else ~/.cache/pdeplus."""
    size: int = 28
    """Side of the images in pixels."""
    channels: int = 3
    """3 repeats the grey channel, as colour augmentations and corruptions expect."""

    def __post_init__(self) -> None:
        check_size(self.size)
        check_least("data.channels", self.channels, 1)

    @property
    def classes(self) -> tuple[str, ...]:
        return NAMES

    def train(self) -> Images:
        return self._part("train")

    def test(self) -> Mapping[str, Images]:
        return {"clean": self._part("t10k")}

    def _part(self, part: str) -> Images:
        folder = require_folder(ORIGIN, self.root)
        pixels, _ = _read_idx(folder, f"{part}-images-idx3-ubyte", 3)
        values, path = _read_idx(folder, f"{part}-labels-idx1-ubyte", 1)
        if len(pixels) != len(values):
            raise UserError(f"{path} has {len(values)} labels for {len(pixels)} images")
        images = resize(torch.from_numpy(pixels)[:, None], self.size)
        return Images(images.repeat(1, self.channels, 1, 1), checked_labels(values, len(NAMES), path))


def _read_idx(folder: Path, file: str, dimensions: int) -> tuple[NDArray[np.uint8], Path]:
    """The array in an idx file of bytes, and the file's path; no more is unpacked than the header announces."""
    path = folder / file if (folder / file).is_file() else folder / f"{file}.gz"
    try:
        with gzip.open(path) if path.suffix == ".gz" else path.open("rb") as stream:
            header = np.frombuffer(stream.read(4 + 4 * dimensions), ">u4")
            if len(header) != 1 + dimensions or header[0] != 0x0800 + dimensions:
                raise UserError(f"{path} is not an idx file of bytes in {dimensions} dimensions")
            shape = tuple(int(n) for n in header[1:])
            if math.prod(shape) > 1_000_000_000:
                raise UserError(f"{path} announces {'×'.join(map(str, shape))} bytes, which is impossible")
            raw = bytearray(stream.read(math.prod(shape) + 1))
    except (OSError, EOFError, ValueError, zlib.error) as error:
        if isinstance(error, UserError):
            raise
        raise UserError(f"{path} cannot be read: {error}") from error
    if len(raw) != math.prod(shape):
        raise UserError(f"{path} does not hold the {'×'.join(map(str, shape))} bytes that it announces")
    return np.frombuffer(raw, np.uint8).reshape(shape), path


def from_debian(folder: Path) -> None:
    """Write the idx files into `folder` from Debian's package, installed or downloaded; another's are refused."""
    with tempfile.TemporaryDirectory(dir=folder.parent) as scratch:
        found = DEBIAN_FOLDER
        if not found.is_dir():
            package = left_by(["apt-get", "download", "dataset-fashion-mnist"], Path(scratch), "*.deb")
            left_by(["dpkg-deb", "-x", package.name, "unpacked"], Path(scratch), "unpacked")
            found = Path(scratch, "unpacked", *DEBIAN_FOLDER.parts[1:])
        for file in FILES:
            if not (found / file).is_file():
                raise UserError(f"Debian's package dataset-fashion-mnist has no {file}")
            shutil.copyfile(found / file, folder / file)
    images, labels, _, tests = (np.frombuffer(gzip.decompress((folder / file).read_bytes()), "u1") for file in FILES)
    counts = [np.bincount(part[8:], minlength=10).tolist() for part in (labels, tests)]
    if counts != [[6000] * 10, [1000] * 10] or abs(images[16:].mean() - MEAN) > 0.01:
        raise UserError("Debian's package dataset-fashion-mnist is not Fashion-MNIST: labels or the mean differ")


ORIGIN = Origin(
    name="fashion_mnist",
    folder="fashion-mnist",
    marks=tuple(file.replace(".gz", "*") for file in FILES),
    size="31 MB",
    downloads={f"{OFFICIAL}/{file}": md5 for file, md5 in FILES.items()},
    second=SecondSource(about="Debian's package dataset-fashion-mnist", command="apt-get", make=from_debian),
    aliases=("FashionMNIST/raw",),
)
