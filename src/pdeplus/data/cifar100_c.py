"""CIFAR-100-C (Hendrycks and Dietterich, 2019): CIFAR-100's test images under 19 corruptions at five severities."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import final

from ._download import Origin, require_folder
from ._reading import clean_and_corrupted
from .base import Images, Source
from .cifar100 import NAMES, Cifar100

ORIGIN = Origin(
    name="cifar100_c",
    folder="CIFAR-100-C",
    marks=("labels.npy",),
    size="2.9 GB",
    downloads={"https://zenodo.org/records/3555552/files/CIFAR-100-C.tar": "11f0ed0f1191edbf9fa23466ae6021d3"},
)


@final
@dataclass(frozen=True, kw_only=True)
class Cifar100C(Source):
    """The published arrays as test sets "fog/1" …, after "clean"; one learns from CIFAR-100 itself.

    Each test set is read when it is asked for. CIFAR-100 must lie beside CIFAR-100-C.
    """

    root: str = ""
    """Folder that holds CIFAR-100-C, or that folder; else $PDEPLUS_DATA, else ~/.cache/pdeplus."""
    size: int = 32
    """Side of the images in pixels."""

    @property
    def classes(self) -> tuple[str, ...]:
        return NAMES

    def train(self) -> Images:
        return self._clean().train()

    def test(self) -> Mapping[str, Images]:
        return clean_and_corrupted(self._clean(), require_folder(ORIGIN, self.root))

    def _clean(self) -> Cifar100:
        return Cifar100(root=str(require_folder(ORIGIN, self.root).absolute().parent), size=self.size)
