"""What a data set provides, how it is split, and how batches are cut."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import final

import torch
from torch import Tensor

from .._lib.long_work import in_order
from .._lib.seeds import generator_for
from ..augment.base import Augmentor
from ..augment.crop_flip import CropFlip
from ..errors import UserError, check_least, counted
from ._pictures import Files, refuse

READ_AHEAD = 2
"""Batches of picture files that are decoded while the one before them is in use."""

LARGEST = 4096
"""Side of an image in pixels: a batch of 32 takes 6 GB."""


@final
@dataclass(frozen=True)
class Images:
    """Labelled images: uint8 N×C×H×W in memory, or picture files that are decoded when they are asked for; int64 N."""

    stored: Tensor | Files
    labels: Tensor

    def __len__(self) -> int:
        return len(self.labels)

    @property
    def shape(self) -> tuple[int, int, int]:
        """C, H and W; nothing is decoded."""
        _, c, h, w = self.stored.shape if isinstance(self.stored, Tensor) else (0, 3, *[self.stored.size] * 2)
        return c, h, w

    @property
    def images(self) -> Tensor:
        """All of them in memory: uint8 N×C×H×W. Take a batch first where they are many files."""
        return self.stored if isinstance(self.stored, Tensor) else self.stored.read()

    def take(self, indices: Tensor) -> "Images":
        """Those images, in that order; nothing is decoded."""
        return Images(self.stored[indices], self.labels[indices])

    def floats(self) -> Tensor:
        """The images as float32 in [0, 1]."""
        return self.images.float().div_(255)

    def batches(self, parts: Sequence[Tensor]) -> Iterator["Images"]:
        """Take each part in turn; files are decoded ahead, while the caller works on the part before."""
        if isinstance(self.stored, Tensor):
            yield from map(self.take, parts)
            return

        def read(part: Tensor) -> Images:
            batch = self.take(part)
            return Images(batch.images, batch.labels)

        yield from in_order(read, parts, 1, READ_AHEAD)


def preload(*several: Images) -> None:
    """Decode now what memory is to hold, and open the other files: all broken ones are named before the work begins."""
    if failed := [told for each in several if isinstance(each.stored, Files) for told in each.stored.preload()]:
        refuse(failed)


class Source(ABC):
    """A data set, a dataclass of its options: classes, training images, test images by distribution.

    Training code calls `train` only; `test` is for evaluation.
    """

    size: int = 32
    """Side of the images in pixels."""

    def __post_init__(self) -> None:
        check_size(self.size)

    @property
    @abstractmethod
    def classes(self) -> tuple[str, ...]:
        """The names of the labels 0, 1, …"""

    @property
    def class_folders(self) -> tuple[str, ...]:
        """The names of the classes' folders where images lie in such."""
        return tuple(name.replace("/", "_") for name in self.classes)

    @property
    def transform(self) -> Augmentor:
        """The light, label-preserving transform of training images: moved by up to an eighth of a side, mirrored."""
        return CropFlip(padding=self.size // 8)

    @abstractmethod
    def train(self) -> Images:
        """All images one may learn from; the validation split is carved out of these."""

    @abstractmethod
    def test(self) -> Mapping[str, Images]:
        """Test images by distribution; the first is the training distribution's own."""

    def as_tested(self, images: Images) -> Images:
        """Some of the training images as the test would show them: for most data sets they are so already."""
        return images


@dataclass(frozen=True)
class Split:
    """What training sees of a data set: no test image is in it."""

    train: Images
    validation: Images
    transform: Augmentor
    shifted: Images | None = None
    """Validation images under corruptions that no test has, to select by; None where there are none."""


@dataclass(frozen=True)
class Batch:
    """One step's images, untransformed in [0, 1], and the step's own random stream."""

    images: Tensor
    labels: Tensor
    transform: Callable[[Tensor, torch.Generator | None], Tensor]
    generator: torch.Generator
    label_smoothing: float = 0.0
    """Share of a label that the cross-entropy of the task spreads evenly over all classes."""
    class_weights: Tensor | None = None
    """Weight of each class in the cross-entropy of the task; None for equal ones."""
    progress: float = 1.0
    """Share of the training's steps that are done, for methods that change on the way; 1 where nobody counts."""

    def view(self) -> Tensor:
        """A freshly transformed view of the images."""
        return self.transform(self.images, self.generator)


def split(source: Source, *, validation: float, limit: int, seed: int) -> Split:
    """Carve a stratified validation split out of the training images.

    The same seed gives the same split; every class is in both parts in proportion, at least once each. `validation` is
    a fraction of the training images, in (0, 1); they are at most `limit`, a stratified subset, where that is not 0.
    """
    images = source.train()
    generator = generator_for(seed, "split")
    order = torch.randperm(len(images), generator=generator)
    why = "a validation split needs 2 of each"
    if limit:
        order, _ = stratified(order, images.labels, min(limit / len(images), 1.0), source.classes, why)
        why += f" (train.limit={limit})"
    held_out, kept = stratified(order, images.labels, validation, source.classes, why)
    return Split(images.take(kept), source.as_tested(images.take(held_out)), source.transform)


def stratified(
    order: Tensor, labels: Tensor, fraction: float, classes: Sequence[str], why: str
) -> tuple[Tensor, Tensor]:
    """Cut `order` in two; `fraction` of each class, at least one and not all, goes to the first part.

    Both parts keep the order. A class of fewer than two images is refused: `why` says what for.
    """
    if fraction >= 1:
        return order, order[:0]
    chosen = torch.zeros(len(order), dtype=torch.bool)
    for label in range(int(labels.max()) + 1):
        mine = (labels[order] == label).nonzero().squeeze(1)
        if len(mine) < 2:
            raise UserError(f"class {classes[label]!r} has {counted(len(mine), 'image')} to train on; {why}")
        chosen[mine[: min(max(round(len(mine) * fraction), 1), len(mine) - 1)]] = True
    return order[chosen], order[~chosen]


def hold_out(images: Images, fraction: float, seed: int, purpose: str, classes: Sequence[str]) -> tuple[Images, Images]:
    """Cut images in two, stratified: what is left, and `fraction` of each class. The seed alone decides which."""
    order = torch.randperm(len(images), generator=generator_for(seed, purpose))
    why = "one is held out for testing, and a validation split needs 2 more"
    held, rest = stratified(order, images.labels, fraction, classes, why)
    return images.take(rest.sort().values), images.take(held.sort().values)


def epoch_batches(n: int, *, batch_size: int, epoch: int, seed: int, reshuffle: bool = True) -> list[Tensor]:
    """Index batches of one epoch: every index once, in an order that (seed, epoch) determines.

    A last batch of one would be useless to BatchNorm; it joins the batch before it.
    """
    order = torch.randperm(n, generator=generator_for(seed, "order", epoch if reshuffle else 0))
    batches = index_batches(order, batch_size)
    if len(batches) > 1 and len(batches[-1]) == 1:
        batches[-2:] = [torch.cat(batches[-2:])]
    return batches


def index_batches(indices: Tensor, size: int) -> list[Tensor]:
    """Cut indices into batches of at most `size`, in order."""
    return [indices[start : start + size] for start in range(0, len(indices), size)]


def check_size(size: int) -> None:
    """Refuse a side that no image can have, or so long that not one batch of them fits into memory."""
    check_least("data.size", size, 1)
    if size > LARGEST:
        raise UserError(f"data.size={size} must be at most {LARGEST} pixels")


def check_fraction(name: str, value: float) -> None:
    """Refuse a fraction outside (0, 1)."""
    if not 0 < value < 1:
        raise UserError(f"data.{name}={value} must lie between 0 and 1")
