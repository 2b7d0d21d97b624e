"""PixMix (Hendrycks et al., 2022): cross-entropy on images blended with fractals and with views of themselves.

Idea: fractals have structure that no label tells of; a network that must see through them becomes robust without losing
accuracy on clean images.
Formula: CE(a(x)), or CE(x) + jsd · JS(p(x), p(a_1(x)), p(a_2(x))) with consistency. a(x) starts from x or a view of it;
0 to 4 times it becomes 1/2 + a (z - 1/2) + b (y - 1/2) or (2z)^a (2y)^b / 2, cut to [0, 1], of what it was, z, and a
fractal or a view, y, with a ~ Beta(β, 1) and b ~ Beta(1, β). A view is x after one of AugMix's operations.
Source: Hendrycks et al., PixMix: dreamlike pictures comprehensively improve safety measures, CVPR 2022. The consistency
is as in IPMix (Huang et al., NeurIPS 2023), whose mixing of patches and pixels is not here.
Defaults: four rounds, β 3, operations of strength 3, no consistency; AugMix's nine operations, so that none is a test
corruption (published: thirteen, `operations = 13`). Our fractals come from a seed, in place of the published pictures.
Cost: one forward and one backward pass, as ERM, or three with consistency; about two blends of each image.
Published: CIFAR-100 accuracy corrupted: PixMix 71.7, IPMix 73.4 (IPMix's comparison; with the published pictures).
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import final

from torch import nn

from ..augment.base import Augmentor
from ..augment.pixmix import PixMix
from ..data.base import Batch
from .base import Method, Objective, check_range, check_views, objective_on, views_of


@final
@dataclass(frozen=True, kw_only=True)
class PixMixTraining(Method):
    """Training on PixMix's views. The default has one view, as published."""

    augmentor: Augmentor = PixMix()
    """What makes the views."""
    jsd: float = 0.0
    """Weight of the consistency of the clean and two augmented views, such as 12; 0 for one augmented view."""

    def __post_init__(self) -> None:
        check_range(0, math.inf, jsd=self.jsd)
        check_views(self.jsd, self.augmentor)

    @property
    def label(self) -> str:
        return type(self.augmentor).__name__ + "+JSD" * bool(self.jsd)

    def objectives(self, model: nn.Module, batch: Batch) -> Iterator[Objective]:
        views = views_of(batch, *[self.augmentor] * 2) if self.jsd else views_of(batch, self.augmentor)[1:]
        yield objective_on(model, views, batch, jsd=self.jsd)
