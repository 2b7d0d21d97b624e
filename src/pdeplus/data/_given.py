"""Data that a user's own Python holds, any torch Dataset, as a data set to train on and to test."""

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast, final

import torch
from torch import Tensor

from ..errors import UserError
from ._pictures import as_bytes
from .base import Images, Source, hold_out

HELD_OUT = 0.2
"""Share of each class that is the test set where none is given."""
NORMALISED = "leave the normalisation out of the dataset and give it as model.mean and model.std"


@final
@dataclass(frozen=True, kw_only=True)
class GivenData(Source):
    """Images in memory, all of one size."""

    images: Images
    tested: Images
    names: tuple[str, ...]
    size: int

    @property
    def classes(self) -> tuple[str, ...]:
        return self.names

    def train(self) -> Images:
        return self.images

    def test(self) -> Mapping[str, Images]:
        return {"test": self.tested}

    @property
    def mark(self) -> str:
        """A short hash that tells such data apart."""
        digest = hashlib.sha256(",".join(self.names).encode())
        for part in (self.images, self.tested):
            digest.update(part.labels.numpy().tobytes())
            digest.update(part.take(torch.arange(min(8, len(part)))).images.numpy().tobytes())
        return digest.hexdigest()[:8]


def read_data(train: Any, test: Any = None) -> GivenData:
    """A torch Dataset, or anything with a length and items, as a data set; it is read into memory at once.

    Items are pairs (image, label) or mappings as those of Hugging Face; images are bytes or floats in [0, 1], C×H×W
    tensors, H×W×C arrays or PIL pictures, all of one size; labels are numbers from 0 on, or names. Without `test` a
    fifth of each class is held out for testing.
    """
    pixels, labels = _read("data", train)
    names = _names(train, labels)
    images = Images(pixels, _numbers("data", labels, names))
    if len(names) < 2:
        raise UserError(f"data has images of one class only: {', '.join(names)}; two or more are needed")
    if test is None:
        images, tested = hold_out(images, HELD_OUT, 0, "given data", names)
    else:
        shown, others = _read("test", test)
        tested = Images(shown, _numbers("test", others, names))
        if shown.shape[1:] != pixels.shape[1:]:
            raise UserError(f"test has images of {_size(shown)} and data of {_size(pixels)}; give both the same size")
    return GivenData(images=images, tested=tested, names=names, size=min(pixels.shape[2:]))


def _read(name: str, dataset: Any) -> tuple[Tensor, list[Any]]:
    """All images, uint8 N×C×H×W, and their labels."""
    if not hasattr(dataset, "__getitem__") or not hasattr(dataset, "__len__") or not len(dataset):
        raise UserError(f"{name}={type(dataset).__name__} must be a dataset with a length above 0, and items")
    images, labels = list[Tensor](), list[Any]()
    for i in range(len(dataset)):
        image, label = _pair(name, dataset[i])
        pixels, _ = as_bytes(image, NORMALISED)
        images.append(pixels[0].permute(2, 0, 1))
        labels.append(label.item() if isinstance(label, Tensor) or hasattr(label, "dtype") else label)
        if images[-1].shape != images[0].shape:
            sizes = f"{_size(images[0])} and {_size(images[-1])}"
            raise UserError(f"{name}: items 0 and {i} have images of {sizes}; resize them in the dataset")
    return torch.stack(images), labels


def _pair(name: str, item: Any) -> tuple[Any, Any]:
    if isinstance(item, Mapping):
        row = cast(Mapping[str, Any], item)
        image = next((key for key in ("image", "img", "pixel_values") if key in row), None)
        label = next((key for key in ("label", "labels", "fine_label") if key in row), None)
        if image and label:
            return row[image], row[label]
        raise UserError(f"{name}: an item has {', '.join(row)}; image and label are needed")
    pair = list(cast(Sequence[Any], item)) if isinstance(item, tuple | list) else []
    if len(pair) != 2:
        kind = type(cast(object, item)).__name__
        raise UserError(f"{name}: an item is a {kind}; a pair (image, label) is needed")
    return pair[0], pair[1]


def _names(dataset: Any, labels: Sequence[Any]) -> tuple[str, ...]:
    """The names of the labels 0, 1, …: the dataset's own, those that the labels are, or the numbers."""
    features = getattr(dataset, "features", None)
    column = next((features[key] for key in ("label", "labels") if key in features), None) if features else None
    own = getattr(dataset, "classes", None) or getattr(column, "names", None)
    if own:
        return tuple(map(str, own))
    if all(isinstance(label, str) for label in labels):
        return tuple(sorted(set(labels)))
    return tuple(str(i) for i in range(max((n for n in labels if isinstance(n, int)), default=0) + 1))


def _numbers(name: str, labels: Sequence[Any], names: Sequence[str]) -> Tensor:
    """Labels as int64 N."""
    places = {text: place for place, text in enumerate(names)}
    found = list[int]()
    for i, label in enumerate(labels):
        number = places.get(label, -1) if isinstance(label, str) else label
        if not isinstance(number, int) or not 0 <= number < len(names):
            raise UserError(f"{name}: item {i} has the label {label!r}; known are {len(names)}: {', '.join(names[:8])}")
        found.append(number)
    return torch.tensor(found)


def _size(images: Tensor) -> str:
    return "×".join(map(str, images.shape[-3:]))
