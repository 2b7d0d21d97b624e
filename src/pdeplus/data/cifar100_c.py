"""CIFAR-100-C (Hendrycks and Dietterich, 2019): CIFAR-100's test images under 19 corruptions at five severities."""

from dataclasses import dataclass
from typing import final

from ._download import Origin
from ._reading import CorruptedSource
from .cifar100 import Cifar100

ORIGIN = Origin(
    name="cifar100_c",
    folder="CIFAR-100-C",
    marks=("labels.npy",),
    size="2.9 GB",
    downloads={"https://zenodo.org/records/3555552/files/CIFAR-100-C.tar": "11f0ed0f1191edbf9fa23466ae6021d3"},
)


@final
@dataclass(frozen=True, kw_only=True)
class Cifar100C(CorruptedSource):
    """The published arrays as test sets "fog/1" …, after "clean"; one learns from CIFAR-100 itself."""

    origin = ORIGIN
    clean = Cifar100
    root: str = ""
    """Folder that holds CIFAR-100-C, or that folder; else $PDEPLUS_DATA, else ~/.cache/pdeplus."""
    size: int = 32
    """Side of the images in pixels."""
