"""Corrupted copies of data sets and folders, on disk, in the published layouts.

Work that was interrupted at any point goes on where it stopped: an image's corruption depends on the seed and its place
alone, files are complete or not there, and an unfinished array grows in order, so that its length says what is done.
"""

import hashlib
import json
import os
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path
from typing import Any, Literal, final

import numpy as np
import torch
from PIL import Image

from .._lib.files import TEMPORARY, held, sync_all, sync_folder, write_file
from .._lib.long_work import Item, Result, in_order
from .._lib.seeds import derive
from ..data._pictures import Picture, picture_files, read_picture
from ..data._reading import MANIFEST, read_manifest
from ..data.base import Images
from ..errors import UserError, check_least
from .base import SEVERITIES, Constants, check_severities
from .suite import corrupt, find
from .weather import frost_digest

Layout = Literal["npy", "folders"]
"""CIFAR-C's: NAME.npy with all severities, one after the other; or ImageNet-C's: NAME/SEVERITY/CLASS/PICTURE."""
Watch = Callable[[int], object]
"""Called with the number of images done since the last call."""
BLOCK_VALUES = 1_500_000
"""Channel values that a worker takes at a time."""


@final
@dataclass(frozen=True, kw_only=True)
class CorruptionPlan:
    """Which corruptions to write, and what they depend on besides the images."""

    names: tuple[str, ...]
    severities: tuple[int, ...] = SEVERITIES
    constants: Constants
    seed: int = 0
    workers: int = 0
    """Threads; 0 for one per core. They change nothing in the result."""

    def __post_init__(self) -> None:
        for name in self.names:
            find(name)
        check_severities(*self.severities)
        check_least("workers", self.workers, 0)

    @property
    def cells(self) -> list[tuple[str, int]]:
        """Every corruption at every severity."""
        return [(name, severity) for name in self.names for severity in self.severities]


def corrupt_arrays(images: Images, out: Path, plan: CorruptionPlan, watch: Watch) -> None:
    """Write labels.npy and, for each corruption, NAME.npy: uint8 5N×H×W×3, severity 1 first."""
    if plan.severities != SEVERITIES:
        raise UserError("an array holds all five severities; for some of them use --layout folders")
    with _claimed(out, plan, {"layout": "npy", **_described(images)}) as complete:
        labels = images.labels.numpy().astype(np.uint8 if int(images.labels.max()) < 256 else np.int64)
        write_file(out / "labels.npy", _npy(np.tile(labels, len(SEVERITIES))))
        for name in plan.names:
            if (out / f"{name}.npy").exists():
                watch(len(SEVERITIES) * len(images))
            else:
                _grow_array(images, out / f"{name}.npy", name, plan, watch)
            complete(name)


def _grow_array(images: Images, path: Path, name: str, plan: CorruptionPlan, watch: Watch) -> None:
    """Append images to NAME.npy.part in their order until all are there, then give it its name."""
    n, size = len(images), pixels(images, [0]).shape[1:]
    header = _npy(np.empty((0, *size), np.uint8), length=len(SEVERITIES) * n)
    part, bytes_each = path.with_name(path.name + ".part"), int(np.prod(size))

    def work(places: range) -> Picture:
        chosen = [place % n for place in places]
        severity = SEVERITIES[places[0] // n]
        return corrupt(pixels(images, chosen), name, severity, plan.constants, plan.seed, indices=chosen)

    with part.open("ab") as file:
        done = max(file.tell() - len(header), 0) // bytes_each
        if file.tell() < len(header):
            file.truncate(0)
            file.write(header)
        file.truncate(len(header) + done * bytes_each)
        watch(done)
        try:
            for spoilt in _in_order(work, _blocks(done, n, max(BLOCK_VALUES // bytes_each, 1)), plan.workers):
                file.write(spoilt.tobytes())
                file.flush()
                watch(len(spoilt))
            os.fsync(file.fileno())
        except OSError as error:
            raise UserError(f"{part} cannot be written: {error.strerror}; free space and repeat the command") from error
    part.replace(path)
    sync_folder(path.parent)


def _blocks(done: int, n: int, size: int) -> Iterator[range]:
    """The places from `done` to 5n in blocks that stay within a severity."""
    for severity in range(done // n, len(SEVERITIES)):
        end = (severity + 1) * n
        for start in range(max(severity * n, done), end, size):
            yield range(start, min(start + size, end))


def corrupt_labelled(images: Images, folders: Sequence[str], out: Path, plan: CorruptionPlan, watch: Watch) -> None:
    """Write NAME/SEVERITY/CLASS/NUMBER.png for each image; `folders` are the classes' folders."""
    digits = len(str(len(images) - 1))
    files = [Path(folders[int(label)], f"{place:0{digits}}.png") for place, label in enumerate(images.labels)]

    def work(place: int) -> int:
        return _corrupt_picture(lambda: pixels(images, [place]), 0.0, place, files[place], out, plan)

    with _claimed(out, plan, {"layout": "folders", **_described(images)}) as complete:
        for done in _in_order(work, range(len(images)), plan.workers):
            watch(done)
        sync_all()
        complete(*plan.names)


def corrupt_folder(folder: Path, out: Path, plan: CorruptionPlan, watch: Watch) -> None:
    """Write NAME/SEVERITY/… for each corruption: the folder mirrored, every picture a PNG file of the same name.

    What becomes of a picture depends on the seed and its path in the folder, not on the other pictures. One that has
    changed since is done again.
    """
    files = mirrored_files(folder, out)

    def work(path: Path) -> int:
        place = derive(0, os.fsencode(path.relative_to(folder).as_posix()).hex())
        changed = path.stat().st_mtime
        return _corrupt_picture(lambda: read_picture(path)[None], changed, place, files[path], out, plan)

    with _claimed(out, plan, {"layout": "mirrored", "folder": str(folder.resolve())}) as complete:
        for done in _in_order(work, files, plan.workers):
            watch(done)
        sync_all()
        complete(*plan.names)


def mirrored_files(folder: Path, out: Path) -> dict[Path, Path]:
    """Each picture of a folder and its path in the mirrored one; two that would become one file are refused."""
    if out.resolve().is_relative_to(folder.resolve()):
        raise UserError(f"{out} lies in {folder}; the corrupted pictures need a folder of their own")
    first = dict[Path, Path]()
    for path in picture_files(folder):
        target = path.relative_to(folder).with_suffix(".png")
        if target in first:
            raise UserError(f"{first[target]} and {path} would both become {target}; rename one of them")
        first[target] = path
    if not first:
        raise UserError(f"{folder} holds no pictures")
    return {path: target for target, path in first.items()}


def _corrupt_picture(
    read: Callable[[], Picture], changed: float, place: int, file: Path, out: Path, plan: CorruptionPlan
) -> int:
    """Write those of a picture's corruptions that are missing, empty or older than it; return how many there are.

    A PNG file is written whole or not at all.
    """

    def up_to_date(target: Path) -> bool:
        return target.exists() and target.stat().st_size > 0 and target.stat().st_mtime >= changed

    targets = {cell: out / cell[0] / str(cell[1]) / file for cell in plan.cells}
    missing = [cell for cell, target in targets.items() if not up_to_date(target)]
    if not missing:
        return len(targets)
    clean = read()
    for name, severity in missing:
        spoilt = corrupt(clean, name, severity, plan.constants, plan.seed, indices=[place])
        target = targets[name, severity]
        temporary = target.with_name(f".{derive(0, os.fsencode(target.name).hex()):x}.tmp")
        try:
            target.parent.mkdir(parents=True, exist_ok=True)
            Image.fromarray(spoilt[0]).save(temporary, "PNG")
            temporary.replace(target)
        except OSError as error:
            temporary.unlink(missing_ok=True)
            raise UserError(f"{target} cannot be written: {error.strerror}; repeat the command to continue") from error
    return len(targets)


@contextmanager
def _claimed(out: Path, plan: CorruptionPlan, source: dict[str, Any]) -> Generator[Callable[..., None]]:
    """Hold the folder for this process and these settings; one made with others is refused.

    Yields a function to call with the names of corruptions that are complete. The manifest says "scale" for constants,
    as it always has.
    """
    frost = {"frost": frost_digest()} if "frost" in plan.names else {}
    settings = {"scale": plan.constants, "seed": plan.seed, **source, **frost}
    out.mkdir(parents=True, exist_ok=True)
    with held(out / f"{MANIFEST}.lock", f"{out} is being written by another process", 0):
        known = read_manifest(out)
        if known is None and any(not entry.name.startswith((MANIFEST, TEMPORARY)) for entry in out.iterdir()):
            raise UserError(f"{out} holds other files; choose an empty folder")
        known = known or {"wanted": [], "complete": []}
        for key, value in settings.items():
            if known.get(key, value) != value:
                word = "constants" if key == "scale" else key
                raise UserError(f"{out} was made with {word}={known[key]}, not {value}; choose another --out")
        known |= settings | {"wanted": sorted({*known["wanted"], *plan.names})}

        def complete(*names: str) -> None:
            known["complete"] = sorted({*known["complete"], *names})
            write_file(out / MANIFEST, json.dumps(known, indent=2).encode())

        complete()
        yield complete


def _described(images: Images) -> dict[str, Any]:
    """What tells these images from others: their number, and a hash of their labels and of all images or files."""
    digest = hashlib.sha256(images.labels.numpy().tobytes())
    if isinstance(images.stored, torch.Tensor):
        digest.update(images.stored.contiguous().numpy().tobytes())
    else:
        for path in images.stored.paths:
            status = os.stat(path)
            digest.update(f"{Path(path).name!r} {status.st_size} {status.st_mtime_ns} {images.stored.size}".encode())
    return {"images": len(images), "sha256": digest.hexdigest()[:16]}


def pixels(images: Images, places: Sequence[int]) -> Picture:
    """Those images as uint8 N×H×W×3."""
    return images.take(torch.tensor(places)).images.permute(0, 2, 3, 1).contiguous().numpy()


def _npy(array: np.ndarray, length: int | None = None) -> bytes:
    """An array in .npy format; with a `length`, as the beginning of one that has so many rows."""
    shape = array.shape if length is None else (length, *array.shape[1:])
    buffer = BytesIO()
    descr = np.lib.format.dtype_to_descr(array.dtype)
    np.lib.format.write_array_header_1_0(buffer, {"descr": descr, "fortran_order": False, "shape": shape})
    return buffer.getvalue() + array.tobytes()


def _in_order(work: Callable[[Item], Result], items: Iterable[Item], workers: int) -> Iterator[Result]:
    """The results of `work` in the order of the items, from threads that keep a little ahead."""
    workers, threads = workers or os.cpu_count() or 1, torch.get_num_threads()
    torch.set_num_threads(1)  # every worker has a core, a second level of threads would only be in the way
    try:
        yield from in_order(work, items, workers, 2 * workers)
    finally:
        torch.set_num_threads(threads)
