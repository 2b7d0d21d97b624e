"""PACS (Li et al., 2017): 9,991 pictures in four domains and seven classes; learn from one domain, test on all."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, final, get_args

from ..errors import UserError
from ._download import Origin, require_folder
from ._reading import class_folders, labelled_pictures
from .base import Images, Source, check_fraction, check_size, hold_out

Domain = Literal["photo", "art_painting", "cartoon", "sketch"]
DOMAINS: tuple[Domain, ...] = get_args(Domain)
ORIGIN = Origin(
    name="pacs",
    folder="PACS",
    marks=DOMAINS,
    size="about 170 MB",
    by_hand="PACS has no stable official download; its current place is on https://sketchx.eecs.qmul.ac.uk/downloads/",
    aliases=("pacs", "PACS/kfold"),
)


@final
@dataclass(frozen=True, kw_only=True)
class Pacs(Source):
    """Class folders within a folder for each domain; the first test set is a held-out part of the source domain.

    The authors test on the other domains only; leave out the first entry of `test` to do as they do.
    """

    root: str = ""
    """Folder that holds PACS, or that folder; else $PDEPLUS_DATA, else ~/.cache/pdeplus."""
    size: int = 227
    """Side of the images in pixels; the authors' code has 32."""
    source: Domain = "photo"
    """The domain to learn from."""
    guidance_domain: Domain | Literal["none"] = "none"
    """For a method of your own: the domain of similar samples in the authors' script ("cartoon" for source
    "art_painting", on which it still tests); no built-in method reads it."""
    held_out: float = 0.1
    """Fraction of the source domain that is its test set, stratified and the same in every run."""

    def __post_init__(self) -> None:
        check_size(self.size)
        check_fraction("held_out", self.held_out)
        if self.guidance_domain == self.source:
            raise UserError(f"data.guidance_domain={self.source!r} must be another domain than data.source")

    @property
    def classes(self) -> tuple[str, ...]:
        return class_folders(require_folder(ORIGIN, self.root) / self.source)

    def train(self) -> Images:
        return hold_out(self._domain(self.source), self.held_out, 0, "pacs", self.classes)[0]

    def test(self) -> Mapping[str, Images]:
        own = hold_out(self._domain(self.source), self.held_out, 0, "pacs", self.classes)[1]
        return {self.source: own, **{domain: self._domain(domain) for domain in DOMAINS if domain != self.source}}

    def _domain(self, domain: Domain) -> Images:
        return labelled_pictures(require_folder(ORIGIN, self.root) / domain, self.classes, self.size)
