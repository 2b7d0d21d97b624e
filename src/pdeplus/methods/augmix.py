"""AugMix (Hendrycks et al., 2020): cross-entropy on mixed augmentations, or agreement of three views.

Idea: a network that is trained on random mixtures of chains of simple operations, and that predicts the same for an
image and for two such mixtures, also predicts the same under corruptions it has never seen.
Formula: without consistency CE(a(x)); with it CE(x) + jsd · JS(p(x), p(a_1(x)), p(a_2(x))), where JS = (1/3) Σ KL(p_i ‖
mean of the three) and the mean is at least 1e-7. All views share one crop and flip.
Source: Hendrycks et al., AugMix: a simple data processing method to improve robustness and uncertainty, ICLR 2020.
Defaults: AugMix of severity 3 and width 3 with its nine operations, no consistency; published with jsd = 12.
Cost: one forward and one backward pass, as ERM, or three of each with consistency (two if two views agree); and AugMix
itself, once or twice.
Published: CIFAR-10 accuracy clean / corrupted: without consistency ResNet-18 95.26 / 86.24 (PDE+ paper) and
PreAct-ResNet-18 94.97 / 86.60 (Kireev et al., 2022); with it ResNet-18 95.2 / 88.6 (Modas et al., 2022), WRN-40-2 95.08
/ 88.82 and ResNeXt 95.83 / 89.09 (RobustBench).
"""

from dataclasses import dataclass
from typing import final

from ..augment.augmix import AugMix
from ..augment.base import Augmentor
from .base import Augmented


@final
@dataclass(frozen=True, kw_only=True)
class AugMixTraining(Augmented):
    """Training on AugMix's views. The defaults are the published "AugMix" without consistency."""

    augmentor: Augmentor = AugMix()
    jsd: float = 0.0
    """Weight of the agreement of the views' predictions; 12 as published, 0 for none."""
