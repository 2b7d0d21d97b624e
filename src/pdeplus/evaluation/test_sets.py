"""Test sets: the suites of a data set, and data as a user names them (a name, a Source, or images and labels in hand).

A suite says in its origin where its images come from; equal origins mean equal images.
"""

import hashlib
import os
import sys
import warnings
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, is_dataclass
from functools import partial
from pathlib import Path
from typing import Any, Literal, cast, final

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import DataLoader, Dataset

from .._lib.registry import build, names
from .._lib.seeds import generator_for
from ..corruptions.base import SEVERITIES, apply_planes, fitting_constants
from ..corruptions.suite import CBAR, NAMES, find
from ..corruptions.weather import SYNTHETIC, frost_digest
from ..data._reading import read_corrupted, read_manifest
from ..data.base import Images, Source, index_batches
from ..data.image_folder import ImageFolder
from ..errors import UserError, check_choice, reason_of
from .records import CLEAN, Suite, TestKey

FILES_READ = 500
"""Number of picture files whose contents tell a test set from another."""
IMAGE_KEYS, LABEL_KEYS = ("image", "img", "images", "pixel_values"), ("label", "labels")
"""What an item that is a table, as of the library `datasets`, calls its two parts."""
NO_TRAINING = "images passed as data can only be tested on; to train, make a data set of them (docs/extending.md)"
Wanted = Literal["clean", "corruptions", "all_corruptions", "cbar", "domains", "adversarial"]
"""What can be asked for: the clean test set alone; with the fifteen corruptions; with all nineteen; with the ten of C̄;
with the data set's other domains; under attack."""


@final
class Kept:
    """Corrupted images that one process tests several models on, made once: as many as `limit` bytes hold.

    Those that no longer fit are made anew each time: models go through all test sets in one order, so dropping the
    oldest would keep none until it is needed again.
    """

    def __init__(self) -> None:
        self.limit = 0
        self._images = dict[Hashable, Tensor]()

    @property
    def size(self) -> int:
        """Bytes that are kept."""
        return sum(images.nbytes for images in self._images.values())

    def get(self, key: Hashable, make: Callable[[], Tensor]) -> Tensor:
        """The images of this key, kept or made."""
        images = self._images.get(key)
        if images is None:
            images = make()
            if self.size + images.nbytes <= self.limit:
                self._images[key] = images
        return images


KEPT = Kept()
"""What this process keeps: nothing, unless it tests one model after another (`studies/jobs.py`)."""


@final
@dataclass(frozen=True)
class TestSet:
    """Labelled images under one corruption (or of one domain)."""

    __test__ = False  # not one of pytest's

    corruption: str
    severity: int
    read: Callable[[], Images]
    """Gives the images, before they are changed batch by batch."""
    change: Callable[[Images, Sequence[int]], Tensor] | None = None
    """Corrupts or attacks images, given their places in the test set; the result is floats, N×C×H×W in [0, 1]."""
    at_once: int | None = None
    """Images in every batch, where the change depends on it."""

    @property
    def shape(self) -> tuple[int, ...]:
        """Channels, height and width of its images."""
        return self.read().shape

    def batches(self, size: int, order: Tensor | None = None) -> Iterator[tuple[Tensor, Tensor]]:
        """The test images as floats in [0, 1] and their labels, in their or this order, at most `size` at a time."""
        images = self.read()
        parts = index_batches(torch.arange(len(images)) if order is None else order, self.at_once or size)
        for part, batch in zip(parts, images.batches(parts), strict=True):
            places = cast(list[int], part.tolist())
            yield batch.floats() if self.change is None else self.change(batch, places), batch.labels


@final
@dataclass(frozen=True)
class TestSuite:
    """Test sets that are evaluated together; the clean one comes first."""

    __test__ = False

    name: Suite
    data: str
    origin: str
    """Where the images come from, in words; equal words mean equal images."""
    classes: tuple[str, ...]
    """The names of the labels."""
    open_classes: bool
    """There may be more classes than the labels tell."""
    sets: tuple[TestSet, ...]


def build_suite(
    data: Source,
    label: str,
    suite: Wanted,
    *,
    corruptions: Sequence[str] | None = None,
    files: str | Path | None = None,
    severities: Sequence[int] = SEVERITIES,
    limit: int = 0,
    seed: int = 0,
) -> TestSuite:
    """The test sets of a data set, which records call by its label.

    In place of a suite's corruptions there may be some by name, also a user's own by dotted name; `files` is a folder
    of corrupted images, such as CIFAR-10-C, to read instead. `limit` images of each set, the same of all; 0 for all.
    """
    check_choice("suite", suite, Wanted)
    if not severities or any(severity not in SEVERITIES for severity in severities):
        raise UserError(f"severities={list(severities)} must be some of 1, 2, 3, 4, 5")
    if files is not None and suite not in NAMES:
        raise UserError(f"files={str(files)!r} is for corruptions; the suite is {suite!r}")
    if corruptions is not None and (suite not in NAMES or not corruptions):
        raise UserError(f"corruptions={list(corruptions)} need a suite of corruptions; the suite is {suite!r}")
    names = NAMES.get(suite, ()) if corruptions is None else tuple(dict.fromkeys(find(n).name for n in corruptions))
    tests = data.test()
    first, *others = tests
    read = {name: _limited(partial(tests.__getitem__, name), limit) for name in tests}
    clean = TestSet(CLEAN, 0, read[first])
    wanted = [(name, severity) for name in names for severity in severities]
    if suite in ("clean", "adversarial"):  # whose other sets depend on the model: `evaluate` adds them
        sets, origin = list[TestSet](), f"test images of {label}"
    elif suite == "domains":
        if not others:
            raise UserError(f"{label} has one test set, {first!r}; domains need several, as pacs and synthetic have")
        sets, origin = [TestSet(name, 0, read[name]) for name in others], f"{label}, learnt from {first}"
    elif files is not None:
        sets, origin = _from_files(data, Path(files), wanted, clean, limit)
    elif any(f"{name}/{severity}" in tests for name, severity in wanted):
        _check_none_missing(label, wanted, [(n, s) for n, s in wanted if f"{n}/{s}" not in tests])
        sets = [TestSet(name, severity, read[f"{name}/{severity}"]) for name, severity in wanted]
        origin = f"published files of {label}"
    else:
        sets, origin = _corrupted(clean, chosen_places(len(tests[first]), limit), wanted, label, seed)
    shape = "×".join(map(str, clean.shape))
    some = f", {limit} of each" if limit else ""
    fixed = [test for test in (clean, *sets[:1]) if test.change is None]
    mark = _digest([test.read() for test in fixed])
    where = f"{origin}{_options(data)}, {shape}{some}, #{mark}"
    only_cbar = bool(names) and all(name in CBAR for name in names)
    kind = "cbar" if only_cbar else "corruptions" if suite == "all_corruptions" else suite
    open_classes = isinstance(data, UserImages) and data.named is None
    return TestSuite(kind, label, where, data.classes, open_classes, (clean, *sets))


def _digest(sets: Sequence[Images]) -> str:
    """Tells test images apart: by pixels and labels, or by picture files' names, sizes and, of many, some contents."""
    found = hashlib.sha256()
    for images in sets:
        found.update(images.labels.numpy().tobytes())
        if isinstance(images.stored, Tensor):
            found.update(images.stored.contiguous().numpy().tobytes())
        else:
            paths = [images.stored.paths[int(i)] for i in images.stored.chosen]
            found.update("\n".join(f"{Path(path).name} {os.path.getsize(path)}" for path in paths).encode())
            for path in paths[:: len(paths) // FILES_READ + 1]:
                found.update(Path(path).read_bytes())
    return found.hexdigest()[:6]


def _limited(read: Callable[[], Images], limit: int) -> Callable[[], Images]:
    """The same images in every test set of that length, drawn once and for all."""
    if limit < 0:
        raise UserError(f"limit={limit} must be 0 (all images) or more")

    def read_some() -> Images:
        images = read()
        return images.take(chosen_places(len(images), limit)) if 0 < limit < len(images) else images

    return read_some


def chosen_places(n: int, limit: int) -> Tensor:
    """The places of at most `limit` of `n` images; 0 for all."""
    if not 0 < limit < n:
        return torch.arange(n)
    return torch.randperm(n, generator=generator_for(0, "limit", n))[:limit].sort().values


def _options(data: Source) -> str:
    """Options of a data set that differ from the defaults and may change its test images."""
    options = [option for option in fields(data) if option.name not in _HARMLESS] if is_dataclass(data) else []
    given = {
        option.name: getattr(data, option.name) for option in options if getattr(data, option.name) != option.default
    }
    return "".join(f", data.{name}={value}" for name, value in given.items())


_HARMLESS = ("root", "size", "read_size", "channels", "train_images", "flip", "memory_gb", "guidance_domain")
"""Options that change no test image, or are told otherwise: the shape is in the origin."""


def _from_files(
    data: Source, folder: Path, wanted: Sequence[TestKey], clean: TestSet, limit: int
) -> tuple[list[TestSet], str]:
    read = partial(read_corrupted, folder, classes=data.class_folders, size=clean.shape[-1])
    read(*wanted[0])  # a wrong folder is answered now, as is one that lacks something
    there = {(n, s): (folder / f"{n}.npy").is_file() or (folder / n / str(s)).is_dir() for n, s in wanted}
    _check_none_missing(str(folder), wanted, [cell for cell, found in there.items() if not found])
    manifest = read_manifest(folder)
    seed = f" (made with seed {manifest['seed']})" if manifest and "seed" in manifest else ""
    sets = [TestSet(*cell, _limited(partial(read, *cell), limit)) for cell in wanted]
    return sets, f"files of {folder.resolve().name}{seed}"


def _check_none_missing(where: str, wanted: Sequence[TestKey], missing: Sequence[TestKey]) -> None:
    if missing:
        some = "{} {}".format(*missing[0])
        raise UserError(f"{where} lacks {len(missing)} of {len(wanted)} test sets, such as {some}")


def _corrupted(
    clean: TestSet, chosen: Tensor, wanted: Sequence[TestKey], label: str, seed: int
) -> tuple[list[TestSet], str]:
    """The chosen images corrupted as they would be among all others, whose places decide what is drawn."""
    own = sorted({name for name, _ in wanted if "." in name})
    if all(name in CBAR for name, _ in wanted):  # which has the same constants for all sizes
        about = f"C̄, seed {seed}"
    else:
        ice = "made ice" if frost_digest() == SYNTHETIC else "the benchmark's ice"  # records are known by these words
        about = f"scale {fitting_constants(*clean.shape[1:])}, seed {seed}, {ice}"

    def change(batch: Images, places: Sequence[int], name: str, severity: int) -> Tensor:
        among_all = cast(list[int], chosen[list(places)].tolist())

        def make() -> Tensor:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", UserWarning)  # of synthetic frost: the suite's origin says it
                return apply_planes(find(name), batch.images, among_all, severity, seed)

        if name in own or not KEPT.limit:
            return Images(make(), batch.labels).floats()
        images = hashlib.sha256(batch.images.contiguous().numpy().tobytes()).digest()
        return Images(KEPT.get((about, name, severity, tuple(among_all), images), make), batch.labels).floats()

    sets = [TestSet(n, s, clean.read, partial(change, name=n, severity=s)) for n, s in wanted]
    codes = "".join(f", {name} #{_code_mark(name)}" for name in own)  # other code makes other images
    return sets, f"test images of {label}, corrupted by pdeplus ({about}{codes})"


def _code_mark(name: str) -> str:
    """Tells the code of a user's own corruption from a changed one, by the file that it stands in."""
    file = sys.modules[name.rpartition(".")[0]].__file__
    return hashlib.sha256(Path(file).read_bytes() if file else b"").hexdigest()[:6]


def as_source(data: object) -> tuple[Source, str]:
    """A data set and its name, from a Source, a registered name, or a pair of images and labels."""
    if isinstance(data, ImageFolder):
        return data, Path(data.root).resolve().name
    if isinstance(data, Source):
        return data, type(data).__module__.rpartition(".")[2]
    if isinstance(data, str):
        return build("data", data, {}), data
    if isinstance(data, tuple) and len(cast(tuple[Any, ...], data)) == 2:
        return UserImages(*cast(tuple[Any, Any], data)), "given images"
    if isinstance(data, Dataset | DataLoader):
        return _of_torch(cast(Any, data)), "given images"
    raise UserError("data must be the name of a data set, a folder, a Source, a pair (images, labels) or a Dataset")


def is_folder(data: object) -> bool:
    """Whether it is the path of a folder of pictures, options behind a question mark, and no name of a data set."""
    if not isinstance(data, str | Path):
        return False
    bare = str(data).partition("?")[0]
    return str(data) not in names("data") and (Path(bare).expanduser().is_dir() or "/" in bare)


def _of_torch(data: Any) -> "UserImages":
    """The images and labels of a torch Dataset or DataLoader, all in memory; names of classes where it has them."""
    images, labels = list[Tensor](), list[Tensor]()
    loader = isinstance(data, DataLoader)
    try:
        for item in data if loader or not hasattr(data, "__len__") else (data[i] for i in range(len(data))):
            image, label = _pair(item)
            pixels, label = _tensor(image), _tensor(label)
            images.append(pixels if loader else pixels[None])
            labels.append(label.reshape(-1))
        pair = torch.cat(images), torch.cat(labels)
    except (RuntimeError, TypeError, ValueError) as error:
        reason = reason_of(error, 120)
        raise UserError(f"data: its items are not (image, label) pairs of one size: {reason}") from error
    named = getattr(cast(Any, data).dataset if loader else data, "classes", None)
    return UserImages(*pair, classes=named)


def _pair(item: Any) -> tuple[Any, Any]:
    if isinstance(item, Mapping):
        table = cast(Mapping[str, Any], item)
        image, label = (next((table[k] for k in keys if k in table), None) for keys in (IMAGE_KEYS, LABEL_KEYS))
        return image, label
    image, label = item[:2]
    return image, label


@final
class UserImages(Source):
    """Test images a user hands over: bytes N×H×W×C or N×C×H×W, or floats N×C×H×W in [0, 1]."""

    def __init__(self, images: Any, labels: Any, classes: Sequence[str] | None = None) -> None:
        pixels, targets = _bytes(images), _tensor(labels).long()
        if targets.ndim != 1 or len(targets) != len(pixels) or not len(targets):
            shown = "×".join(map(str, targets.shape)) or "none"
            raise UserError(f"{len(pixels)} images need as many labels in one row, not {shown}")
        if int(targets.min()) < 0:
            raise UserError(f"labels start at 0; the least is {int(targets.min())}")
        self.images, least = Images(pixels, targets), int(targets.max()) + 1
        self.named = tuple(classes) if classes is not None and len(classes) >= least else None

    @property
    def classes(self) -> tuple[str, ...]:
        return self.named or tuple(str(i) for i in range(int(self.images.labels.max()) + 1))

    @property
    def transform(self) -> Any:
        raise UserError(NO_TRAINING)

    def train(self) -> Images:
        raise UserError(NO_TRAINING)

    def test(self) -> dict[str, Images]:
        return {CLEAN: self.images}


def _tensor(values: Any) -> Tensor:
    if isinstance(values, Tensor):
        return values.detach().cpu()
    array = np.ascontiguousarray(values)
    if array.dtype.kind not in "biuf":
        way_out = "number the names: [classes.index(name) for name in labels]"
        raise UserError(f"images and labels must be numbers, not {array.dtype}; {way_out}")
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
            seems = "images are already normalised: they" if low < 0 else "images"
            way_out = "give them in [0, 1] or as bytes, and put any normalisation into the model"
            raise UserError(f"{seems} run from {low:.3g} to {high:.3g}; {way_out}")
        pixels = pixels.float().mul(255).round().to(torch.uint8)
    elif pixels.dtype != torch.uint8:
        raise UserError(f"images must be bytes or floats in [0, 1], not {str(pixels.dtype).removeprefix('torch.')}")
    if pixels.shape[1] not in (1, 3) and pixels.shape[3] in (1, 3):
        pixels = pixels.permute(0, 3, 1, 2)
    return pixels.contiguous()
