"""Tiny-ImageNet-C (Hendrycks and Dietterich, 2019): Tiny-ImageNet's validation images under 15 corruptions."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import final

from ._download import Origin, require_folder
from ._reading import clean_and_corrupted
from .base import Images, Source
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
class TinyImagenetC(Source):
    """The published pictures as test sets "fog/1" …, after "clean"; one learns from Tiny-ImageNet itself.

    Each test set is read when it is asked for. Tiny-ImageNet must lie beside Tiny-ImageNet-C; its classes count.
    """

    root: str = ""
    """Folder that holds Tiny-ImageNet-C, or that folder; else $PDEPLUS_DATA, else ~/.cache/pdeplus."""
    size: int = 64
    """Side of the images in pixels; the authors' code has 32."""

    @property
    def classes(self) -> tuple[str, ...]:
        return self._clean().classes

    def train(self) -> Images:
        return self._clean().train()

    def test(self) -> Mapping[str, Images]:
        return clean_and_corrupted(self._clean(), require_folder(ORIGIN, self.root))

    def _clean(self) -> TinyImagenet:
        return TinyImagenet(root=str(require_folder(ORIGIN, self.root).absolute().parent), size=self.size)
