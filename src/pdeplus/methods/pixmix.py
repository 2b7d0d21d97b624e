"""PixMix (Hendrycks et al., 2022): cross-entropy on images blended with fractals and with views of themselves.

Idea: fractals have structure that is unrelated to any label; a network that must see through them becomes robust
without losing accuracy on clean images.
Formula: CE(a(x)), or CE(x) + jsd · JS(p(x), p(a_1(x)), p(a_2(x))) with consistency. a(x) starts from x or a view of it;
0 to 4 times the current image z is mixed with a fractal or a view y into 1/2 + a (z - 1/2) + b (y - 1/2) or (2z)^a
(2y)^b / 2, clipped to [0, 1], with a ~ Beta(β, 1) and b ~ Beta(1, β). A view is x after one of AugMix's operations.
Source: Hendrycks et al., PixMix: dreamlike pictures comprehensively improve safety measures, CVPR 2022. The consistency
is as in IPMix (Huang et al., NeurIPS 2023), whose mixing of patches and pixels is not here.
Defaults: four rounds, β 3, operations of strength 3, no consistency; AugMix's nine operations, so that none is a test
corruption (published: thirteen, `operations = 13`). Our fractals come from a seed, in place of the published pictures.
Cost: one forward and one backward pass, as ERM, or three with consistency; about two blends of each image.
Published: CIFAR-100 accuracy corrupted: PixMix 71.7, IPMix 73.4 (IPMix's comparison; with the published pictures).
"""

from dataclasses import dataclass
from typing import final

from ..augment.base import Augmentor
from ..augment.pixmix import PixMix
from .base import Augmented


@final
@dataclass(frozen=True, kw_only=True)
class PixMixTraining(Augmented):
    """Training on PixMix's views. The default has one view, as published."""

    augmentor: Augmentor = PixMix()
    jsd: float = 0.0
    """Weight of the agreement of the views' predictions, such as 12; 0 for none."""
