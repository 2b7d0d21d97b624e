"""EnResNet (Wang et al., 2019): noise after every residual block, and several such networks trained as one.

Idea: by the Feynman-Kac formula an average over noisy residual networks solves a transport equation with diffusion,
whose solution is smooth; a few jointly trained networks with noise stand for that average.
Formula: every residual block's output h becomes h + c · std(h) · N(0, I), with one standard deviation over the whole
tensor; the logits are the mean over M networks, and their CE trains all of them. With `adversarial` CE is taken at x +
δ, where δ ascends it by PGD within ‖δ‖∞ ≤ 0.031. The noise stays on at test time, where, because of std(h), a
prediction depends a little on its batch.
Source: Wang et al., ResNets ensemble via the Feynman-Kac formalism to improve natural and robust accuracies, NeurIPS
2019.
Defaults: c = 0.1, M = 5 as published, training on clean images. With `adversarial`, PGD of 10 steps of 0.007 from a
random start, against the noisy ensemble in train mode. One noisy pass at test time, as published. members = 2 is a
cheap substitute.
Cost: M forward and backward passes; (1 + steps) times that with PGD; at test M passes for each sample.
Published: CIFAR-10 accuracy clean / corrupted: ResNet-18 83.33 / 74.34, CIFAR-100 67.11 / 49.28 (PDE+ paper; such a low
clean accuracy suggests PGD training); clean accuracy of its authors' best model 85.62 (Wang et al., 2019).
"""

import copy
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import final

import torch
from torch import Tensor, nn

from ..attacks.steps import pgd
from ..core.context import diffusion
from ..core.network import logits_of
from ..core.prediction import Average
from ..core.surgery import Relative, add_noise
from ..data.base import Batch
from ..errors import UserError
from ..models.base import placed
from .base import Method, Objective, check_range, objective_on, views_of

REDRAW = ("reset_parameters", "_reset_parameters")
"""What torch's layers call the function that draws their weights; attention uses the second."""


@final
class Ensemble(nn.Module):
    """The mean of its members' logits, B×classes: images go through each member once."""

    def __init__(self, members: Sequence[nn.Module]) -> None:
        super().__init__()
        if not members:
            raise UserError("an ensemble needs at least 1 network")
        self.members = nn.ModuleList(members)

    def forward(self, x: Tensor) -> Tensor:
        return torch.stack([member(x) for member in self.members]).mean(0)


def redrawn(model: nn.Module) -> nn.Module:
    """A copy of `model` whose layers have drawn their weights anew, from torch's own random state.

    Parameters of layers that cannot draw keep their values; a model of which none can is refused.
    """
    net = copy.deepcopy(model)
    for module in net.modules():
        draw = next((getattr(module, name) for name in REDRAW if hasattr(module, name)), None)
        if draw is not None:
            draw()
    pairs = zip(model.parameters(), net.parameters(), strict=True)
    if all(torch.equal(old, new) for old, new in pairs):
        raise UserError(f"{type(model).__name__} has no layer with reset_parameters(): its copies would be the same")
    return net


@final
@dataclass(frozen=True, kw_only=True)
class EnResNet(Method):
    """An ensemble of noisy residual networks. Its members start from different weights and learn from one loss."""

    members: int = 5
    """Networks in the ensemble, M."""
    noise: float = 0.1
    """Standard deviation of the noise as a share of the features' own, c."""
    adversarial: bool = False
    """Train on PGD's images instead of the originals."""
    epsilon: float = 0.031
    """Largest change of a pixel by PGD, where images span [0, 1]."""
    steps: int = 10
    """Steps of PGD."""
    step_size: float = 0.007
    """Length of a step of PGD."""
    samples: int = 1
    """Noisy passes of the whole ensemble at test; 0 is the ensemble without noise."""
    average: Average = "probabilities"
    """What those passes average; the members' logits are averaged in any case."""

    def __post_init__(self) -> None:
        if self.members < 1:
            raise UserError(f"method.members={self.members}: an ensemble needs networks; use 1 or more (published: 5)")
        check_range(0, math.inf, noise=self.noise, step_size=self.step_size, samples=self.samples)
        check_range(0, 1, epsilon=self.epsilon)
        check_range(1, math.inf, steps=self.steps)

    @property
    def label(self) -> str:
        return "EnResNet" if self.adversarial else "EnResNet natural"  # the paper's row is of the first kind

    @property
    def learns_plain(self) -> bool:
        return False

    def prepare(self, model: nn.Module, example: Tensor) -> nn.Module:
        ensemble = Ensemble([model, *(redrawn(model) for _ in range(self.members - 1))])
        places = [f"members.{i}.{name}" for i in range(self.members) for name in placed(model, "block")]
        return add_noise(ensemble, places, lambda name: Relative(self.noise))

    def objectives(self, model: nn.Module, batch: Batch) -> Iterator[Objective]:
        (view,) = views_of(batch)
        if self.adversarial:
            view = self.attacked(model, view, batch.labels, batch.generator)
        with diffusion(model, generator=batch.generator):
            goal = objective_on(model, [view], batch)
        yield goal

    def attacked(self, model: nn.Module, x: Tensor, labels: Tensor, generator: torch.Generator) -> Tensor:
        """PGD's images against the ensemble, which draws new noise in each step; in [0, 1], without a gradient."""

        def logits(images: Tensor) -> Tensor:
            with diffusion(model, generator=generator):  # one for each pass: it holds on to the features it saw
                return logits_of(model(images))

        return pgd(
            logits,
            x,
            labels,
            norm="linf",
            epsilon=self.epsilon,
            steps=self.steps,
            step_size=self.step_size,
            random_start=True,
            generator=generator,
        )
