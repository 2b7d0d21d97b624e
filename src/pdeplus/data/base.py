"""What a data set provides, how it is split, and how batches are cut."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from .._errors import UserError
from .._seeds import generator_for
from ..augment.base import Augmentor


@dataclass(frozen=True)
class Images:
    """Labelled images in memory: uint8 N×C×H×W and int64 N."""

    images: Tensor
    labels: Tensor

    def __len__(self) -> int:
        return len(self.labels)

    def take(self, indices: Tensor) -> "Images":
        """Those images, in that order."""
        return Images(self.images[indices], self.labels[indices])

    def floats(self) -> Tensor:
        """The images as float32 in [0, 1]."""
        return self.images.float().div_(255)


class Source(ABC):
    """A data set: classes, training images, test images by distribution.

    Training code calls `train` only; `test` is for evaluation.
    """

    classes: tuple[str, ...]
    transform: Augmentor
    """The light, label-preserving transform of training images."""

    @abstractmethod
    def train(self) -> Images:
        """All images one may learn from; the validation split is carved out of these."""

    @abstractmethod
    def test(self) -> Mapping[str, Images]:
        """Test images by distribution; the first is the training distribution's own."""


@dataclass(frozen=True)
class Split:
    """What training sees of a data set: no test image is in it."""

    train: Images
    validation: Images
    transform: Augmentor


@dataclass(frozen=True)
class Batch:
    """One step's images, untransformed in [0, 1], and the step's own random stream."""

    images: Tensor
    labels: Tensor
    transform: Callable[[Tensor, torch.Generator | None], Tensor]
    generator: torch.Generator

    def view(self) -> Tensor:
        """A freshly transformed view of the images."""
        return self.transform(self.images, self.generator)


def split(source: Source, *, validation: float, limit: int, seed: int) -> Split:
    """Carve a stratified validation split out of the training images.

    The same seed gives the same split; every class is in both parts in proportion, at least once each.

    Args:
        source: the data set.
        validation: fraction of the training images, in (0, 1).
        limit: learn from at most so many images (a stratified subset); 0 for all.
        seed: of the split.
    """
    images = source.train()
    generator = generator_for(seed, "split")
    order = torch.randperm(len(images), generator=generator)
    if limit:
        order, _ = _stratified(order, images.labels, min(limit / len(images), 1.0))
    held_out, kept = _stratified(order, images.labels, validation)
    return Split(images.take(kept), images.take(held_out), source.transform)


def _stratified(order: Tensor, labels: Tensor, fraction: float) -> tuple[Tensor, Tensor]:
    """Cut `order` in two; `fraction` of each class, at least one and not all, goes to the first part.

    Both parts keep the order.
    """
    if fraction >= 1:
        return order, order[:0]
    chosen = torch.zeros(len(order), dtype=torch.bool)
    for label in range(int(labels.max()) + 1):
        mine = (labels[order] == label).nonzero().squeeze(1)
        if len(mine) < 2:
            raise UserError(f"class {label} has {len(mine)} training images; a validation split needs 2 of each")
        chosen[mine[: min(max(round(len(mine) * fraction), 1), len(mine) - 1)]] = True
    return order[chosen], order[~chosen]


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


def check_least(name: str, value: int, least: int) -> None:
    """Refuse an option's value below `least`."""
    if value < least:
        raise UserError(f"data.{name}={value} must be at least {least}")
