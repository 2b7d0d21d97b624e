"""ERM: cross-entropy on the training images, the baseline of every comparison."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import final

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.optim import Optimizer

from .._network import logits_of
from ..data.base import Batch
from ..diffusion import predict
from .base import BuildOptimizer, Method, Objective, accuracy, check_range


@final
@dataclass(frozen=True, kw_only=True)
class ERM(Method):
    """Empirical risk minimisation."""

    label = "ERM"

    label_smoothing: float = 0.0
    """Of the cross-entropy."""

    def __post_init__(self) -> None:
        check_range("label_smoothing", self.label_smoothing, 0, 1)

    def prepare(self, model: nn.Module, example: Tensor) -> nn.Module:
        return model

    def optimizers(self, model: nn.Module, build: BuildOptimizer) -> dict[str, Optimizer]:
        return {"task": build(model.parameters())}

    def objectives(self, model: nn.Module, batch: Batch) -> Iterator[Objective]:
        logits = logits_of(model(batch.view()))
        task = F.cross_entropy(logits, batch.labels, label_smoothing=self.label_smoothing)
        yield Objective(task, parts={"task": task}, metrics={"accuracy": accuracy(logits, batch.labels)})

    def predict(self, model: nn.Module, images: Tensor, generator: torch.Generator | None) -> Tensor:
        return predict(model, images, samples=0)
