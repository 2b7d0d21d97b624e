"""ERM (Vapnik, 1992): cross-entropy on the training images, the baseline of every comparison.

Idea: a network that is right on the training images is right on images like them; nothing is promised for others.
Formula: mean_i CE(f(x_i), y_i), each x_i after the data set's own crop and flip.
Source: Vapnik, Principles of risk minimization for learning theory, 1992; setting of Kireev et al., 2022.
Defaults: none; it has no options.
Cost: the unit of all others: one forward and one backward pass.
Published: CIFAR-10 accuracy clean / corrupted: ResNet-18 95.35 / 74.63 (PDE+ paper), PreAct-ResNet-18 – / 74.65 (Kireev
et al., 2022), WRN-28-10 94.78 / 73.46 (RobustBench).
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import final

from torch import nn

from ..data.base import Batch
from .base import Method, Objective, objective_on, views_of


@final
@dataclass(frozen=True, kw_only=True)
class ERM(Method):
    """Empirical risk minimisation."""

    def objectives(self, model: nn.Module, batch: Batch) -> Iterator[Objective]:
        yield objective_on(model, views_of(batch), batch)
