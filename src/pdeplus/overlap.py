"""The overlap audit of a run: which test corruptions its training images have already been through."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import fields, is_dataclass
from typing import Any, cast

from .augment.base import Augmentor
from .methods.base import Method


def overlaps_of(method: Method, transform: Augmentor) -> dict[str, tuple[str, ...]]:
    """For every augmentation that a method uses, the test corruptions it coincides with; () where there is none.

    Keys are names in the registry; what several augmentations of one name do is put together. A method that has an
    attribute `overlaps` is listed by its own name. Corruptions are plain names: nothing here knows the test images.

    Args:
        method: its fields are searched, through tuples, mappings and dataclasses.
        transform: the data set's own light transform.
    """
    found = dict[str, tuple[str, ...]]()
    own = [method] if hasattr(method, "overlaps") else []
    for part in (*own, *_augmentors(method), *_augmentors(transform)):
        name, claimed = _name(part), cast(tuple[str, ...], getattr(part, "overlaps", ()))
        found[name] = tuple(sorted({*found.get(name, ()), *claimed}))
    return found


def _augmentors(value: object) -> Iterator[Augmentor]:
    """The augmentations in a value: the value itself, and those among its parts at any depth."""
    if isinstance(value, Augmentor):
        yield value
    for part in _parts(value):
        yield from _augmentors(part)


def _parts(value: object) -> Iterable[object]:
    if isinstance(value, Mapping):
        return cast(Mapping[Any, object], value).values()
    if isinstance(value, tuple | list | set | frozenset):
        return cast(Iterable[object], value)
    if is_dataclass(value) and not isinstance(value, type):
        return [getattr(value, field.name) for field in fields(value)]
    # A user's class need not be a dataclass, and an audit must not miss what it holds.
    return list(vars(value).values()) if isinstance(value, Method | Augmentor) else ()


def _name(part: object) -> str:
    """As the registry names it: by its file, or by the whole module of a user's own code."""
    module = type(part).__module__
    return module.rpartition(".")[2] if module.startswith("pdeplus.") else module
