"""RSE (Liu et al., 2018): noise before every convolution, in training and at test, and an average over passes.

Idea: a network with noise in it is an ensemble of infinitely many networks at the memory of one; it learns to predict
correctly under its own noise, which regularises its Lipschitz constant.
Formula: every convolution sees h + σ · N(0, I), with σ = 0.2 for the first, the one that sees the image, and σ = 0.1
for all others. Training: CE of one noisy pass. Test: the mean of softmax over `samples` noisy passes.
Source: Liu et al., Towards robust neural networks via random self-ensemble, ECCV 2018.
Defaults: first = 0.2 and inner = 0.1 as published; samples = 10 (the published attack script has 50). The variant of
the PDE+ authors, one noise of 0.1 and 3 samples: first = 0.1, inner = 0.1, samples = 3.
Cost: one noisy forward and backward pass, as ERM, and the drawing of the noise; at test `samples` passes.
Published: CIFAR-10 accuracy clean / corrupted: ResNet-18 95.59 / 77.86, CIFAR-100 77.98 / 53.73 (PDE+ paper, with the
variant of its authors).
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import final

from torch import Tensor, nn

from ..core.context import diffusion
from ..core.prediction import Average
from ..core.surgery import Constant, add_noise, convolutions
from ..data.base import Batch
from ..errors import UserError
from .base import Method, Objective, check_range, objective_on, views_of


@final
@dataclass(frozen=True, kw_only=True)
class RSE(Method):
    """Random self-ensemble. Every pass of a training step, and every sample at test, draws its own noise."""

    first: float = 0.2
    """Standard deviation of the noise before the first convolution, where images span [0, 1]."""
    inner: float = 0.1
    """Standard deviation of the noise before every other convolution."""
    samples: int = 10
    """Noisy passes at test; 0 is the network without noise, for which it was not trained."""
    average: Average = "probabilities"
    """What those passes average."""

    def __post_init__(self) -> None:
        check_range(0, math.inf, first=self.first, inner=self.inner, samples=self.samples)

    @property
    def label(self) -> str:
        published = self.first == self.inner == 0.1  # the paper's row
        return "RSE" if published else f"RSE {self.first:g}/{self.inner:g}"

    @property
    def learns_plain(self) -> bool:
        return False

    @property
    def overlaps(self) -> tuple[str, ...]:
        """The first convolution's noise is white noise on the images."""
        return ("gaussian_noise",) if self.first else ()

    def prepare(self, model: nn.Module, example: Tensor) -> nn.Module:
        places = convolutions(model)
        if not places:
            raise UserError(f"{type(model).__name__} has no convolution for RSE's noise; choose another model")
        return add_noise(
            model, places, lambda name: Constant(self.first if name == places[0] else self.inner), where="before"
        )

    def objectives(self, model: nn.Module, batch: Batch) -> Iterator[Objective]:
        views = views_of(batch)
        with diffusion(model, generator=batch.generator):
            goal = objective_on(model, views, batch)
        yield goal
