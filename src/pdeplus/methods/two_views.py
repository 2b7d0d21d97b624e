"""Two views: cross-entropy on an image and on its augmentation, which agree; PDE+ without its diffusion.

Idea: PDE+ differs from ERM in the diffusion, but also in its second, augmented view and in the agreement of both. This
control has everything except the diffusion: it shows what the views achieve alone.
Formula: (CE(x) + CE(a(x))) / 2 + jsd · JS(p(x), p(a(x))), where JS = (1/2) Σ KL(p_i ‖ mean of the two). Both views
share one crop and flip and go through the network as one batch.
Source: ours; its parts are AugMix's (Hendrycks et al., ICLR 2020) and the mixture of PDE+ (Yuan et al., AAAI 2024).
Defaults: PDE+'s own: AugMix of severity 3, width 3 and nine operations, jsd 6, the original and its augmentation. With
the same seed it sees the same views as PDE+ does.
Cost: two forward and two backward passes; AugMix once, or twice where both views are augmented.
Published: none.
"""

from dataclasses import dataclass, field
from typing import Literal, final

from .._lib.registry import NEW
from ..augment.augmix import AugMix
from ..augment.base import Augmentor
from .base import Augmented, Views


@final
@dataclass(frozen=True, kw_only=True)
class TwoViews(Augmented):
    """Training on an image and its augmentation. The defaults are those of PDE+."""

    augmentor: Augmentor = AugMix()
    """What makes the second view, or both."""
    jsd: float = 6.0
    """Weight of the agreement of the views' predictions; 0 for none."""
    views: Views = "original+augmented"
    """Whose cross-entropy is the task."""
    agreeing: Literal[2, 3] = field(default=2, metadata=NEW)
    """Views that agree."""

    @property
    def label(self) -> str:
        other = "" if isinstance(self.augmentor, AugMix) else f" ({type(self.augmentor).__name__})"
        return f"Two views{other}" + "+JSD" * bool(self.jsd) + self.other_views
