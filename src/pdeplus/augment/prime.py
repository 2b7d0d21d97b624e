"""PRIME (Modas et al., 2022): mixed chains of random deformations, colour curves and filters."""

from dataclasses import dataclass
from typing import final

import torch
from torch import Tensor

from .._errors import UserError
from ._chains import check_chains, grouping, mix_chains
from ._overlaps import corruptions_in
from ._primitives import LEAST_CUT, deform, recolor, refilter
from ._random import integers
from .base import Augmentor


@final
@dataclass(frozen=True, kw_only=True)
class Prime(Augmentor):
    """A random convex mixture of the image and of chains of its three primitives, each as likely.

    The defaults are the published settings for CIFAR-10.
    """

    width: int = 3
    """Number of chains."""
    depth: int = 0
    """Primitives in a chain; 0 draws 1, 2 or 3."""
    deformation_cut: int = 100
    """Largest spatial frequency of the deformation."""
    color_cut: int = 100
    """Largest frequency of the colour curve."""
    color_temperature: float = 0.01
    """Largest variance of the colour curve's coefficients."""
    filter_size: int = 3
    """Pixels across the filter, an odd number."""
    filter_std: float = 4.0
    """Largest standard deviation of the filter's weights."""

    def __post_init__(self) -> None:
        check_chains(self.width, self.depth)
        if self.deformation_cut <= LEAST_CUT or self.color_cut < 1:
            raise UserError(
                f"deformation_cut={self.deformation_cut} must be at least 3 and color_cut={self.color_cut} at least 1"
            )
        if self.filter_size % 2 == 0 or self.filter_size < 1:
            raise UserError(f"filter_size={self.filter_size} must be an odd number")

    @property
    def overlaps(self) -> tuple[str, ...]:
        return corruptions_in(("deform", "recolor", "refilter"))

    def __call__(self, x: Tensor, generator: torch.Generator | None = None) -> Tensor:
        def one_primitive(images: Tensor, level: int) -> Tensor:
            which = integers(len(images), 0, 3, x, generator)
            order, counts = grouping(which, 3)
            moved, colored, filtered = torch.split(images.index_select(0, order), counts)
            parts = (
                deform(moved, self.deformation_cut, generator),
                recolor(colored, self.color_cut, self.color_temperature, generator),
                refilter(filtered, self.filter_size, self.filter_std, generator),
            )
            return torch.cat(parts).index_select(0, order.argsort())

        exact = x.float()
        return mix_chains(exact, exact, self.width, self.depth, one_primitive, generator).to(x.dtype)
