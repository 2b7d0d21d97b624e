"""PGD (Kireev et al., 2022, after Madry et al., 2018): adversarial training with very small changes of the images.

Idea: a network that is robust to the worst change of a small size is also robust to many larger changes that are not
the worst. Against common corruptions the size must be far smaller than for robustness to attacks.
Formula: CE(x + δ) alone, where δ maximises CE(x + δ) by gradient ascent within ‖δ‖ ≤ ε and x + δ in [0, 1]; from δ = 0
one step is ε·sign(∇_x CE) in the norm ℓ∞ and 5ε·∇_x CE / ‖∇_x CE‖₂ in ℓ2, for each image by itself. In ℓ2 x + δ is
first cut to [0, 1], then δ is scaled down to length ε if it is longer: what pixels at the limit cannot use is left to
the others.
Source: Kireev, Andriushchenko and Flammarion, On the effectiveness of adversarial training against common corruptions,
UAI 2022; Madry et al., Towards deep learning models resistant to adversarial attacks, ICLR 2018.
Defaults: one step, no random start, ε = 1/255 (ℓ∞) or 0.1 (ℓ2, a step of 0.5), attacked in train mode, as published.
Cost: for each step of the attack, one more forward and backward pass, the latter without gradients of the weights: with
one step 1.7 times ERM's.
Published: on CIFAR-10-C with PreAct-ResNet-18 82.67 (ℓ∞) and 83.40 (ℓ2) (Kireev et al., 2022); clean / corrupted with
ResNet-18 93.52 / 82.17 and 93.91 / 83.07 (Yuan et al., 2024).
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal, final

import torch
from torch import Tensor, nn

from ..attacks.gradient_attacks import AttackMode, in_attack_mode
from ..attacks.steps import Norm, pgd
from ..core.network import logits_of
from ..data.base import Batch
from ..errors import check_choice
from .base import Method, Objective, check_range, objective_on, views_of

PUBLISHED_EPSILON = {"linf": 1 / 255, "l2": 0.1}
LONG_STEP = 5
"""The one published step in ℓ2 is 0.5 long, five times epsilon."""


@final
@dataclass(frozen=True, kw_only=True)
class PGD(Method):
    """Cross-entropy on attacked images only. The attack leaves no gradient and no mode behind."""

    norm: Norm = "linf"
    """Norm of the change of one image: its largest element, or its Euclidean length."""
    epsilon: float | Literal["published"] = "published"
    """Largest change, where images span [0, 1]; published is 1/255 (linf) or 0.1 (l2)."""
    steps: int = 1
    """Steps of the attack."""
    step_size: float | Literal["by steps"] = "by steps"
    """Length of a step in the norm; by steps: for one step epsilon (linf) or, as published, five times it (l2), for
    more steps 2.5·epsilon/steps."""
    random_start: bool = False
    """Begin at a random change within epsilon instead of at none."""
    attack_mode: AttackMode = "train"
    """Mode of the network while attacked: train, whose passes count in BatchNorm's running statistics, or eval."""

    def __post_init__(self) -> None:
        check_choice("method.norm", self.norm, Norm)
        check_choice("method.attack_mode", self.attack_mode, AttackMode)
        check_range(0, 1 if self.norm == "linf" else math.inf, epsilon=self.size)
        check_range(1, math.inf, steps=self.steps)
        check_range(0, math.inf, step_size=0 if self.step_size == "by steps" else self.step_size)

    @property
    def label(self) -> str:
        usual = self.epsilon == "published" and self.steps == 1
        return f"PGD_{self.norm}" + ("" if usual else f" ε={self.size:.3g}, {self.steps} steps")

    @property
    def overlaps(self) -> tuple[str, ...]:
        """No corruption follows the network's own gradient."""
        return ()

    @property
    def size(self) -> float:
        """ε as a number."""
        return PUBLISHED_EPSILON[self.norm] if self.epsilon == "published" else self.epsilon

    @property
    def _length(self) -> float | None:
        """Of a step; None for the attack's own choice."""
        if self.step_size != "by steps":
            return self.step_size
        return LONG_STEP * self.size if self.norm == "l2" and self.steps == 1 else None

    def objectives(self, model: nn.Module, batch: Batch) -> Iterator[Objective]:
        x = self.attacked(model, views_of(batch)[0], batch.labels, batch.generator)
        yield objective_on(model, [x], batch)

    def attacked(self, model: nn.Module, x: Tensor, labels: Tensor, generator: torch.Generator | None) -> Tensor:
        """x + δ, in [0, 1] and without a gradient."""
        with in_attack_mode(model, self.attack_mode):
            return pgd(
                lambda images: logits_of(model(images)),
                x,
                labels,
                norm=self.norm,
                epsilon=self.size,
                steps=self.steps,
                step_size=self._length,
                random_start=self.random_start,
                cut_first=self.norm == "l2",
                generator=generator,
            )
