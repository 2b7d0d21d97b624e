"""PDE+ combined (this library): PDE+ with several guidance views that must agree.

Idea: the paper lets any semantically similar samples guide the diffusion. Views of two kinds, AugMix and PRIME, cover
more directions than one, and making the diffused predictions of an image and of its views agree (Jensen-Shannon, as in
AugMix and PRIME) uses both views in the task as well.
Formula: task CE([x; a_1]) + jsd · JS(p(x), p(a_1), p(a_2)), everything diffused in one pass; coverage of a_1 and of a_2
by N(h, σ), the mean of the two losses, φ only. With epsilon > 0 the features of a_1 are perturbed once more towards a
higher loss before they are covered, at the input and behind every stage, as RLAT does.
Source: Yuan et al. (2024) for the frame, Hendrycks et al. (2020) for consistency, Modas et al. (2022) for PRIME, Kireev
et al. (2022) for layer-wise perturbations; the combination is ours.
Defaults: AugMix and PRIME views, jsd = 12, epsilon = 0; σ starts at 0.05, Adam 0.001 on φ.
Cost: two gradient-free passes and a diffused pass of three images for each image; with epsilon, one more forward and
backward pass.
Published: none; the aim is RLAT+AugMix with consistency (94.75 / 89.60 on CIFAR-10, PreAct-ResNet-18) and PRIME (77.60
/ 68.28 on CIFAR-100, ResNet-18).
"""

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Literal, final

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from .._lib.registry import NEW
from ..augment.augmix import AugMix
from ..augment.base import Augmentor
from ..augment.prime import Prime
from ..core.add_block import Block
from ..core.context import Trace, diffusion, no_diffusion
from ..core.network import changing, logits_of
from ..core.prediction import Average
from ..data.base import Batch
from ..functional import jensen_shannon
from .base import BuildOptimizer, Objective, Views, WithViews, check_range, draw_views, objective_of
from .pde_plus import PDEPlus, mean_scales, plain_features
from .rlat import RLAT, adding


@final
@dataclass(frozen=True, kw_only=True)
class PDEPlusCombined(WithViews):
    """PDE+ guided by two kinds of views whose predictions must agree."""

    augmentor: Augmentor = AugMix()
    """What makes the first view."""
    second: Augmentor = Prime()
    """What makes the second view."""
    jsd: float = 12.0
    """Weight of the agreement of the diffused predictions; 0 for none."""
    views: Views = field(default="original+augmented", metadata=NEW)
    """Whose cross-entropy is the task; the first of the three views covers the two others, and all are diffused."""
    epsilon: float = 0.0
    """Length of RLAT's change of the first view before it is covered; 0 for none."""
    placement: Literal["stage", "block"] | tuple[str, ...] = "stage"
    """ADD blocks after each stage, each residual block, or the named modules."""
    block: Block = "light"
    """A light ADD block, or the paper's."""
    initial_scale: float = 0.05
    """σ at the start."""
    diffusion_lr: float = 0.001
    """Learning rate of Adam on φ."""
    samples: int = 0
    """Noisy passes E at test; 0 is the plain network."""
    average: Average = "probabilities"
    """What those passes average."""

    def __post_init__(self) -> None:
        check_range(0, math.inf, epsilon=self.epsilon)
        self.check_agreement()
        if self.jsd:
            self.check_differing()
        assert self._frame  # checks the options that both share

    @property
    def label(self) -> str:
        return "PDE+ combined" + self.other_views

    def prepare(self, model: nn.Module, example: Tensor) -> nn.Module:
        return self._frame.prepare(model, example)

    def optimizers(self, model: nn.Module, build: BuildOptimizer) -> dict[str, Optimizer]:
        return self._frame.optimizers(model, build)

    def objectives(self, model: nn.Module, batch: Batch) -> Iterator[Objective]:
        """Plain features of the second view and the third, one diffused pass of all three, one backward."""
        views = draw_views(batch, self.views, 3, self.augmentor, self.second)
        with torch.no_grad():
            twins = [self._features_to_cover(model, views[1], batch.labels), plain_features(model, views[2])]
        with diffusion(model, generator=batch.generator, local=True, learn_from=len(batch.labels)) as trace:
            logits = logits_of(model(torch.cat(views))).float().view(3, len(batch.labels), -1)
        goal = objective_of(logits, batch, supervised=self.in_task)
        consistency = jensen_shannon(logits[: self.agreeing])
        coverage = torch.stack([self._frame.coverage(twin, trace) for twin in twins]).mean()
        yield Objective(
            goal.loss + self.jsd * consistency + coverage,
            parts={**goal.parts, "consistency": consistency, "coverage": coverage},
            update=("task", "diffusion"),
            metrics={**goal.metrics, **mean_scales(trace)},
        )

    @property
    def _frame(self) -> PDEPlus:
        return PDEPlus(
            placement=self.placement,
            block=self.block,
            initial_scale=self.initial_scale,
            scale_per="element",
            diffusion_lr=self.diffusion_lr,
            samples=self.samples,
            average=self.average,
        )

    def _features_to_cover(self, model: nn.Module, images: Tensor, labels: Tensor) -> Trace:
        """Plain features; with epsilon RLAT's δ_l is added at every place, each block's own included."""
        if not self.epsilon:
            return plain_features(model, images)
        with no_diffusion(model):
            deltas = RLAT(epsilon=self.epsilon, attack_mode="eval").perturbations(model, images, labels)
        with changing(model, {place: adding(delta, place) for place, delta in deltas.items()}):
            trace = plain_features(model, images)
        last = {name: _stage_that_ends_with(name, deltas, trace.names) for name in trace.names}
        means = [h + deltas.get(last[name], 0) for name, h in zip(trace.names, trace.means, strict=True)]
        return Trace(trace.names, means)


def _stage_that_ends_with(name: str, places: Iterable[str], blocks: Sequence[str]) -> str:
    """The place whose change a block's features have not met yet: its own, or its stage's if it is the stage's last."""
    for place in places:
        within = [block for block in blocks if block == place or block.startswith(f"{place}.")]
        if place and within and within[-1] == name:
            return place
    return name
