"""Tiny-ImageNet-C (Hendrycks and Dietterich, 2019): Tiny-ImageNet's validation images under 15 corruptions."""

from dataclasses import dataclass
from typing import final

from ._download import Origin
from ._reading import CorruptedSource
from .tiny_imagenet import TinyImagenet

ORIGIN = Origin(
    name="tiny_imagenet_c",
    folder="Tiny-ImageNet-C",
    marks=("*/1", "*/5"),
    size="1.8 GB",
    downloads={"https://zenodo.org/records/2536630/files/Tiny-ImageNet-C.tar": "f9c9a9dbdc11469f0b850190f7ad8be1"},
)


@final
@dataclass(frozen=True, kw_only=True)
class TinyImagenetC(CorruptedSource):
    """The published pictures as test sets "fog/1" …, after "clean"; one learns from Tiny-ImageNet, by its classes."""

    origin = ORIGIN
    clean = TinyImagenet
    root: str = ""
    """Folder that holds Tiny-ImageNet-C, or that folder; else $PDEPLUS_DATA, else ~/.cache/pdeplus."""
    size: int = 64
    """Side of the images in pixels; the authors' code has 32."""
