"""FixDiff (Yuan et al., 2024): PDE+ with one constant σ in place of the learnt one, the ablation of its idea.

Idea: PDE+ without adaptation: the same places, the same images, but noise of one constant size.
Formula: after each stage h_l becomes h_l + σ · N(0, I), σ the same number everywhere; CE on [x; a(x)], both diffused,
or on x alone. Test: the mean over `samples` diffused passes (Algorithm 2 of PDE+).
Source: Yuan et al., PDE+: enhancing generalization via PDE with adaptive distributional diffusion, AAAI 2024, ablation.
Defaults: σ = 0.1 (the authors' script of May 2023; the ablation goes from 0 to 2.5), after each stage, originals and
AugMix of severity 3, width 3 and nine operations, no noise at test (0 samples), as PDE+.
Cost: a forward and backward pass of two images for each image, of one with `views` = "original", AugMix once, and the
drawing of the noise; at test `samples` passes.
Published: no number that we know of; its code was never released.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Literal, final

from torch import Tensor, nn

from .._lib.registry import NEW
from ..augment.augmix import AugMix
from ..augment.base import Augmentor
from ..core.context import diffusion
from ..core.prediction import Average
from ..core.surgery import Constant, add_noise
from ..data.base import Batch
from ..errors import UserError
from ..models.base import placed
from .base import Objective, Views, WithViews, check_range


@final
@dataclass(frozen=True, kw_only=True)
class FixedDiffusion(WithViews):
    """Diffusion of constant size. With scale 0 and without mixture a step is ERM's, bit for bit."""

    scale: float = 0.1
    """σ, the standard deviation of the noise; the paper's ablation has 0 to 2.5."""
    placement: Literal["stage", "block", "input"] | tuple[str, ...] = "stage"
    """Noise after each stage, each residual block, on the images before the network, or after the named modules."""
    share: float = field(default=1.0, metadata=NEW)
    """Of a batch's rows, those that diffuse."""
    diffuse_after: float = field(default=0.0, metadata=NEW)
    """Share of the training, its first part, in which nothing diffuses yet."""
    views: Views = field(default="original+augmented", metadata=NEW)
    """Whose cross-entropy is the task, all diffused."""
    agreeing: Literal[2, 3] = field(default=2, metadata=NEW)
    """Views that agree."""
    mixture: bool = True
    """False is an older name of method.views='original' without agreement."""
    augmentor: Augmentor = AugMix()
    """What makes the augmentations."""
    samples: int = 0
    """Noisy passes E at test; 0 is the plain network."""
    average: Average = "probabilities"
    """What those passes average."""

    def __post_init__(self) -> None:
        self.check_agreement()
        check_range(0, math.inf, scale=self.scale, samples=self.samples)
        check_range(0, 1, share=self.share, diffuse_after=self.diffuse_after)
        if not self.mixture and (self.jsd or self.views != type(self).views):
            raise UserError("method.mixture=false is method.views='original' without method.jsd: set that instead")

    @property
    def label(self) -> str:
        views = " w/o aug" if not self.augments else "+JSD" * bool(self.jsd) + self.other_views
        return f"FixDiff σ={self.scale:g}{views}"

    @property
    def chosen(self) -> Views:
        return self.views if self.mixture else "original"

    @property
    def augments(self) -> bool:
        return self.chosen != "original" or bool(self.jsd)

    @property
    def overlaps(self) -> tuple[str, ...] | None:
        return ("gaussian_noise",) if "input" in (self.placement, *self.placement) else None

    @property
    def learns_plain(self) -> bool:
        return False

    def prepare(self, model: nn.Module, example: Tensor) -> nn.Module:
        return add_noise(model, placed(model, self.placement), lambda name: Constant(self.scale))

    def objectives(self, model: nn.Module, batch: Batch) -> Iterator[Objective]:
        views = self.drawn(batch, self.augmentor)
        share = self.share if batch.progress >= self.diffuse_after else 0.0
        with diffusion(model, generator=batch.generator, share=share):
            goal = self.objective(model, views, batch)
        yield goal
