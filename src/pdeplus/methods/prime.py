"""PRIME (Modas et al., 2022): agreement of three views, two of them mixed chains of random primitive changes.

Idea: random deformations, colour curves and filters of maximum entropy cover more of the changes that an image may
undergo than a list of chosen operations.
Formula: CE(x) + jsd · JS(p(x), p(a_1(x)), p(a_2(x))), where JS = (1/3) Σ KL(p_i ‖ mean of the three) and a_1, a_2 are
PRIME's views of one crop and flip; without consistency CE(a(x)).
Source: Modas et al., PRIME: a few primitives can boost robustness to common corruptions, ECCV 2022.
Defaults: PRIME's settings for CIFAR-10 (width 3, random depth) and jsd 12, as published.
Cost: three forward and three backward passes, or one of each without consistency; and PRIME itself, twice or once.
Published: CIFAR-10 accuracy clean / corrupted: ResNet-18 93.06 / 89.05; CIFAR-100: ResNet-18 77.60 / 68.28.
"""

from dataclasses import dataclass
from typing import final

from ..augment.base import Augmentor
from ..augment.prime import Prime
from .base import Augmented


@final
@dataclass(frozen=True, kw_only=True)
class PrimeTraining(Augmented):
    """Training on PRIME's views. The defaults are the published recipe."""

    augmentor: Augmentor = Prime()
    jsd: float = 12.0
    """Weight of the agreement of the views' predictions; 0 for none."""

    @property
    def label(self) -> str:
        return "PRIME" + " w/o JSD" * (not self.jsd) + self.other_views
