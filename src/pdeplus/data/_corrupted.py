"""Published corrupted test sets: arrays NAME.npy beside labels.npy, or folders NAME/SEVERITY/CLASS of pictures."""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, cast, final

import numpy as np
import torch
from numpy.typing import NDArray

from ..errors import UserError
from ._reading import checked_labels, labelled_pictures, resize
from .base import Images, Source

SEVERITIES = range(1, 6)
MANIFEST = "corruptions.json"
"""What `pdeplus corrupt` leaves beside the images it makes: the settings, and which corruptions are complete."""


def read_manifest(folder: Path) -> dict[str, Any] | None:
    """The manifest of a regenerated set; None where there is none, as in published sets."""
    path = folder / MANIFEST
    if not path.is_file():
        return None
    try:
        manifest: Any = json.loads(path.read_bytes())
        if all(isinstance(manifest[key], list) for key in ("wanted", "complete")):
            return cast(dict[str, Any], manifest)
    except (ValueError, KeyError, TypeError):
        pass
    raise UserError(f"{path} is damaged; make the set anew in another folder")


def check_complete(folder: Path) -> None:
    """Refuse a regenerated set whose making was interrupted: a part of it would pass for the whole."""
    manifest = read_manifest(folder) or {"wanted": [], "complete": []}
    missing = [name for name in manifest["wanted"] if name not in manifest["complete"]]
    if missing:
        raise UserError(f"{folder} is unfinished, {missing[0]} for one; call the same pdeplus corrupt again")


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


def clean_and_corrupted(clean: Source, folder: Path, size: int) -> OnDemand:
    """The test images of the clean data set under "clean", then "fog/1" and so on for each name and severity."""
    classes = clean.class_folders
    readers: dict[str, Callable[[], Images]] = {"clean": lambda: clean.test()["clean"]}
    for name in corruption_names(folder):
        for severity in SEVERITIES:
            reader = partial(read_corrupted, folder, name, severity, classes=classes, size=size)
            readers[f"{name}/{severity}"] = reader
    return OnDemand(readers)


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

    Only that severity is read. `size` None keeps arrays as they are; pictures must be given one.

    Args:
        folder: such as CIFAR-10-C or Tiny-ImageNet-C.
        name: such as "fog".
        severity: 1 to 5.
        classes: in the order of the labels; for pictures, the names of the class folders.
        size: side of the images in pixels.
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
