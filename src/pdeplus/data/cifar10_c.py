"""CIFAR-10-C (Hendrycks and Dietterich, 2019): CIFAR-10's test images under 19 corruptions at five severities."""

from dataclasses import dataclass
from typing import final

from ._download import Origin
from ._reading import CorruptedSource
from .cifar10 import Cifar10

ORIGIN = Origin(
    name="cifar10_c",
    folder="CIFAR-10-C",
    marks=("labels.npy",),
    size="2.9 GB",
    downloads={"https://zenodo.org/records/2535967/files/CIFAR-10-C.tar": "56bf5dcef84df0e2308c6dcbcbbd8499"},
)


@final
@dataclass(frozen=True, kw_only=True)
class Cifar10C(CorruptedSource):
    """The published arrays as test sets "fog/1" …, after "clean"; one learns from CIFAR-10 itself."""

    origin = ORIGIN
    clean = Cifar10
    root: str = ""
    """Folder that holds CIFAR-10-C, or that folder; else $PDEPLUS_DATA, else ~/.cache/pdeplus."""
    size: int = 32
    """Side of the images in pixels."""
