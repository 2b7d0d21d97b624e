"""What readers of data sets share: class folders as labelled images, corrupted sets, checked labels, resizing.

A corrupted set is arrays NAME.npy beside labels.npy, or folders NAME/SEVERITY/CLASS of pictures.
"""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, ClassVar, cast, final

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional as F

from ..errors import UserError
from ._download import Origin, require_folder
from ._pictures import MEMORY_GB, Files, picture_files
from .base import Images, Source

CHUNK = 1000
"""Images that are resized at a time: as floats they take four times the room."""
SEVERITIES = range(1, 6)
MANIFEST = "corruptions.json"
"""What `pdeplus corrupt` leaves beside the images it writes: the settings, and which corruptions are complete."""


def class_folders(folder: Path) -> tuple[str, ...]:
    """The names of the class folders in a folder, sorted; fewer than two are refused."""
    try:
        found = [entry.name for entry in folder.iterdir() if entry.is_dir()]
    except OSError as error:
        raise UserError(f"{folder} cannot be read as a folder: {error.strerror}") from error
    names = sorted(name for name in found if not name.startswith(".") and name != "__MACOSX")
    if len(names) < 2:
        there = f"only {names[0]!r}" if names else "none"
        raise UserError(f"{folder} needs a folder for each of two or more classes; it has {there}")
    return tuple(names)


def labelled_pictures(
    folder: Path, classes: Sequence[str], size: int, memory_gb: float = MEMORY_GB, **shown: Any
) -> Images:
    """All pictures in the folders of these classes, class by class in order of their paths.

    A class without a folder or without a picture is refused. `shown` says how they are cut and resized, as in `Files`.
    """
    paths, labels = list[Path](), list[int]()
    for label, name in enumerate(classes):
        if not (folder / name).is_dir():
            raise UserError(f"{folder} has no folder for class {name!r}")
        found = picture_files(folder / name)
        if not found:
            raise UserError(f"{folder / name} has no picture in it")
        paths += found
        labels += [label] * len(found)
    return Images(Files.open(paths, size, memory_gb, **shown), torch.tensor(labels))


def checked_labels(values: Sequence[Any] | NDArray[Any], classes: int, path: str | Path) -> Tensor:
    """Labels as int64 N; one that is not among 0 … classes − 1 is refused with its place."""
    try:
        array = np.asarray(values)
    except ValueError as error:
        raise UserError(f"{path}: labels must be a list of whole numbers: {error}") from error
    if array.ndim != 1 or not (np.issubdtype(array.dtype, np.integer) or not len(array)):
        raise UserError(f"{path}: labels must be a list of whole numbers, not {array.dtype} of shape {array.shape}")
    wrong = np.flatnonzero((array < 0) | (array >= classes))
    if len(wrong):
        place = int(wrong[0])
        raise UserError(f"{path}: label {array[place]} at {place} is not among 0 … {classes - 1}")
    return torch.from_numpy(array.astype(np.int64))


def resize(images: Tensor, size: int) -> Tensor:
    """uint8 N×C×H×W → uint8 N×C×size×size, bilinear, antialiased when it shrinks; the same images at their own size."""
    if images.shape[-2:] == (size, size):
        return images
    out = torch.empty(*images.shape[:2], size, size, dtype=torch.uint8)
    for start in range(0, len(images), CHUNK):
        some = images[start : start + CHUNK].float()
        shown = F.interpolate(some, (size, size), mode="bilinear", antialias=True)
        out[start : start + CHUNK] = shown.round_().clamp_(0, 255).to(torch.uint8)
    return out


@final
class OnDemand(Mapping[str, Images]):
    """Test images by distribution, each read when it is asked for and not kept."""

    def __init__(self, readers: Mapping[str, Callable[[], Images]]) -> None:
        self._readers = dict(readers)

    def __getitem__(self, name: str) -> Images:
        return self._readers[name]()

    def __iter__(self) -> Iterator[str]:
        return iter(self._readers)

    def __len__(self) -> int:
        return len(self._readers)


class CorruptedSource(Source):
    """A published corrupted set: "clean", then "fog/1" and so on, each read when it is asked for. One learns from the
    clean data set, which must lie beside it."""

    origin: ClassVar[Origin]
    clean: ClassVar[Callable[..., Source]]
    root: str

    @property
    def classes(self) -> tuple[str, ...]:
        return self.clean_source().classes

    def train(self) -> Images:
        return self.clean_source().train()

    def test(self) -> Mapping[str, Images]:
        folder, clean = require_folder(self.origin, self.root), self.clean_source()
        read = partial(read_corrupted, folder, classes=clean.class_folders, size=clean.size)
        cells = [(name, severity) for name in corruption_names(folder) for severity in SEVERITIES]
        readers = {f"{name}/{severity}": partial(read, name, severity) for name, severity in cells}
        return OnDemand({"clean": lambda: clean.test()["clean"], **readers})

    def clean_source(self) -> Source:
        """The clean data set beside it, at the same size."""
        return type(self).clean(root=str(require_folder(self.origin, self.root).absolute().parent), size=self.size)


def corruption_names(folder: str | Path) -> list[str]:
    """The corruptions that a published set's folder holds, sorted."""
    path = Path(folder)
    check_complete(path)
    arrays = {file.stem for file in path.glob("*.npy")} - {"labels"}
    folders = {entry.name for entry in path.iterdir() if (entry / "1").is_dir()}
    if not arrays | folders:
        raise UserError(f"{folder} holds no corrupted images: neither NAME.npy nor NAME/1")
    return sorted(arrays | folders)


def read_corrupted(
    folder: str | Path, name: str, severity: int, *, classes: Sequence[str], size: int | None = None
) -> Images:
    """One corruption at one severity, from either published layout.

    Only that severity, 1 to 5, is read. `classes` are in the order of the labels; for pictures, the names of their
    folders. Images become `size` pixels wide; without it arrays stay as they are, and pictures become 64.
    """
    if severity not in SEVERITIES:
        raise UserError(f"severity={severity} must be between 1 and 5")
    check_complete(Path(folder))
    array = Path(folder) / f"{name}.npy"
    if array.is_file():
        return _from_array(array, severity, len(classes), size)
    pictures = Path(folder) / name / str(severity)
    if not pictures.is_dir():
        raise UserError(f"{folder} has no {name} at severity {severity}: neither {array.name} nor {name}/{severity}")
    return labelled_pictures(pictures, classes, size or 64)


def _from_array(path: Path, severity: int, classes: int, size: int | None) -> Images:
    """One fifth of N×H×W×3 bytes, which are in order of severity."""
    pixels, labels = _load(path), _load(path.parent / "labels.npy")
    if labels.ndim != 1:
        raise UserError(f"{path.parent / 'labels.npy'} holds an array of {labels.ndim} dimensions, not a list")
    if pixels.dtype != np.uint8 or pixels.ndim != 4 or pixels.shape[3] != 3:
        raise UserError(f"{path} holds {pixels.dtype} of shape {pixels.shape}, not uint8 of N×H×W×3")
    if not len(pixels) or len(pixels) % len(SEVERITIES) or len(labels) != len(pixels):
        raise UserError(f"{path} has {len(pixels)} images for {len(labels)} labels; five equal parts must match")
    n = len(pixels) // len(SEVERITIES)
    part = slice((severity - 1) * n, severity * n)
    images = torch.from_numpy(np.array(pixels[part])).permute(0, 3, 1, 2).contiguous()
    known = checked_labels(np.array(labels[part]), classes, path.parent / "labels.npy")
    return Images(images if size is None else resize(images, size), known)


def _load(path: Path) -> NDArray[Any]:
    """The array in a .npy file, mapped into memory; pickled contents are refused."""
    try:
        loaded: object = np.load(path, mmap_mode="r", allow_pickle=False)
    except Exception as error:  # numpy's reader of headers raises all kinds on broken files
        reason = "there is no such file" if isinstance(error, FileNotFoundError) else " ".join(str(error).split())
        raise UserError(f"{path} cannot be read: {reason}") from error
    if isinstance(loaded, np.lib.npyio.NpzFile):
        loaded.close()
    if not isinstance(loaded, np.ndarray):
        raise UserError(f"{path} is an archive, not one array")
    return cast(NDArray[Any], loaded)


def read_manifest(folder: Path) -> dict[str, Any] | None:
    """The manifest of a regenerated set; None where there is none, as in published sets."""
    path = folder / MANIFEST
    if not path.is_file():
        return None
    try:
        manifest: Any = json.loads(path.read_bytes())
        if all(isinstance(manifest[key], list) for key in ("wanted", "complete")):
            return cast(dict[str, Any], manifest)
    except (ValueError, KeyError, TypeError, RecursionError):
        pass
    raise UserError(f"{path} is damaged; make it again in another folder")


def check_complete(folder: Path) -> None:
    """Refuse a regenerated set whose making was interrupted: a part of it would pass for the whole."""
    manifest = read_manifest(folder) or {"wanted": [], "complete": []}
    missing = [name for name in manifest["wanted"] if name not in manifest["complete"]]
    if missing:
        raise UserError(f"{folder} is unfinished ({missing[0]} is missing); repeat the same pdeplus corrupt command")
