"""Mixup (Zhang et al., 2018): cross-entropy on mixtures of two images, with the labels mixed alike.

Idea: a network that is linear between training images does not change abruptly where it has seen no data.
Formula: λ CE(f(z), y) + (1 - λ) CE(f(z), y[π]) with z = λ x + (1 - λ) x[π], a random permutation π of the batch and one
λ ~ Beta(α, α) for the batch.
Source: Zhang et al., mixup: beyond empirical risk minimization, ICLR 2018.
Defaults: alpha 1, as published for CIFAR-10 (there with a weight decay of 1e-4 and 200 epochs).
Cost: one forward and one backward pass, as ERM.
Published: CIFAR-10 accuracy clean / corrupted: 95.80 / 80.40 (PDE+ paper, quoted there among its ResNet-18 results);
the authors' code reaches 95.8 to 96.1 clean with PreAct-ResNet-18.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import final

from torch import nn

from ..core.network import INPUT
from ..data.base import Batch
from ._mixing import check_alpha, draw_mix, mixed
from .base import Method, Objective, objective_on, views_of


@final
@dataclass(frozen=True, kw_only=True)
class Mixup(Method):
    """Training on mixtures of images. The default is the published recipe."""

    alpha: float = 1.0
    """α of λ ~ Beta(α, α): 1 draws λ uniformly, less draws it nearer to 0 and 1."""

    def __post_init__(self) -> None:
        check_alpha(self.alpha)

    def objectives(self, model: nn.Module, batch: Batch) -> Iterator[Objective]:
        (view,) = views_of(batch)
        mix = draw_mix([INPUT], batch.labels, self.alpha, batch.generator)
        yield objective_on(model, [mixed(view, mix)], batch, mix=mix)
