"""CIFAR-100 (Krizhevsky, 2009): 50,000 + 10,000 photographs of 32×32 in a hundred classes."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import final

from ._download import Origin, require_folder
from .base import Images, Source
from .cifar10 import read_batches

ORIGIN = Origin(
    name="cifar100",
    folder="cifar-100-python",
    marks=("train", "test", "meta"),
    size="169 MB",
    downloads={"https://www.cs.toronto.edu/~kriz/cifar-100-python.tar.gz": "eb9058c3a382ffc7106e4002c42a8d85"},
)


@final
@dataclass(frozen=True, kw_only=True)
class Cifar100(Source):
    """The original python pickles, read without running them; labels are the hundred fine ones."""

    root: str = ""
    """Folder that holds cifar-100-python, or that folder; else $PDEPLUS_DATA, else ~/.cache/pdeplus."""
    size: int = 32
    """Side of the images in pixels."""

    @property
    def classes(self) -> tuple[str, ...]:
        return NAMES

    def train(self) -> Images:
        return self._part("train")

    def test(self) -> Mapping[str, Images]:
        return {"clean": self._part("test")}

    def _part(self, file: str) -> Images:
        return read_batches([require_folder(ORIGIN, self.root) / file], "fine_labels", len(NAMES), self.size)


_FINE = """
apple aquarium_fish baby bear beaver bed bee beetle bicycle bottle bowl boy bridge bus butterfly camel can castle
caterpillar cattle chair chimpanzee clock cloud cockroach couch crab crocodile cup dinosaur dolphin elephant flatfish
forest fox girl hamster house kangaroo keyboard lamp lawn_mower leopard lion lizard lobster man maple_tree motorcycle
mountain mouse mushroom oak_tree orange orchid otter palm_tree pear pickup_truck pine_tree plain plate poppy porcupine
possum rabbit raccoon ray road rocket rose sea seal shark shrew skunk skyscraper snail snake spider squirrel streetcar
sunflower sweet_pepper table tank telephone television tiger tractor train trout tulip turtle wardrobe whale
willow_tree wolf woman worm
"""
NAMES = tuple(_FINE.split())
