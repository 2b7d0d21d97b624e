"""FixDiff (Yuan et al., 2024): PDE+ with one constant σ in place of the learnt one, the ablation of its idea.

Idea: what is left of PDE+ when the diffusion does not adapt: the same places, the same images, noise of one size.
Formula: after each stage h_l becomes h_l + σ · N(0, I), σ the same number everywhere; CE on [x; a(x)], both diffused,
or on x alone. Test: the mean over `samples` diffused passes (Algorithm 2 of PDE+).
Source: Yuan et al., PDE+: enhancing generalization via PDE with adaptive distributional diffusion, AAAI 2024, ablation.
Defaults: σ = 0.1 (the authors' script of May 2023; the ablation goes from 0 to 2.5), after each stage, originals and
AugMix of severity 3, width 3 and nine operations, no noise at test (0 samples), as PDE+.
Cost: a forward and backward pass of two images for each image, of one without `mixture`, AugMix once, and the drawing
of the noise; at test `samples` passes.
Published: no number that we know of; its code was never released.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Literal, final

import torch
from torch import Tensor, nn

from ..augment.augmix import AugMix
from ..augment.base import Augmentor
from ..core.context import diffusion
from ..core.prediction import Average
from ..core.surgery import Constant, add_noise
from ..data.base import Batch
from ..models.base import placed
from .base import Method, Objective, check_range, objective_on, views_of


@final
@dataclass(frozen=True, kw_only=True)
class FixedDiffusion(Method):
    """Diffusion of constant size. With scale 0 and without mixture a step is ERM's, bit for bit."""

    scale: float = 0.1
    """σ, the standard deviation of the noise; the paper's ablation has 0 to 2.5."""
    placement: Literal["stage", "block"] | tuple[str, ...] = "stage"
    """Noise after each stage, each residual block, or the named modules."""
    mixture: bool = True
    """Cross-entropy on originals and augmentations, as PDE+; false for originals only."""
    augmentor: Augmentor = AugMix()
    """What makes the augmentations."""
    samples: int = 0
    """Noisy passes E at test; 0 is the plain network."""
    average: Average = "probabilities"
    """What those passes average."""

    def __post_init__(self) -> None:
        check_range(0, math.inf, scale=self.scale, samples=self.samples)

    @property
    def label(self) -> str:
        return f"FixDiff σ={self.scale:g}" + " w/o aug" * (not self.mixture)

    @property
    def learns_plain(self) -> bool:
        return False

    def prepare(self, model: nn.Module, example: Tensor) -> nn.Module:
        return add_noise(model, placed(model, self.placement), lambda name: Constant(self.scale))

    def objectives(self, model: nn.Module, batch: Batch) -> Iterator[Objective]:
        views = views_of(batch, *[self.augmentor] * self.mixture)
        every_view = replace(batch, labels=batch.labels.repeat(len(views)))
        with diffusion(model, generator=batch.generator):
            goal = objective_on(model, [torch.cat(views)], every_view)
        yield goal
