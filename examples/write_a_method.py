"""A method of your own: cross-entropy with input noise. Train it from the folder above this file's:

pdeplus train demo method.name=examples.write_a_method method.noise=0.2 --out runs/noisy
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import final

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.optim import Optimizer

from pdeplus.core.prediction import predict
from pdeplus.data.base import Batch
from pdeplus.functional import diffuse
from pdeplus.methods.base import BuildOptimizer, Method, Objective, accuracy


@final
@dataclass(frozen=True, kw_only=True)
class InputNoise(Method):
    """Gaussian noise on every training image."""

    label = "input noise"  # in tables
    overlaps = ("gaussian_noise",)  # a test corruption that training images have been through

    noise: float = 0.1
    """Its standard deviation."""

    def prepare(self, model: nn.Module, example: Tensor) -> nn.Module:
        return model

    def optimizers(self, model: nn.Module, build: BuildOptimizer) -> dict[str, Optimizer]:
        return {"task": build(model.parameters())}

    def objectives(self, model: nn.Module, batch: Batch) -> Iterator[Objective]:
        x = diffuse(batch.view(), self.noise, batch.generator).clamp(0, 1)
        logits = model(x)
        task = F.cross_entropy(logits, batch.labels)
        yield Objective(task, parts={"task": task}, metrics={"accuracy": accuracy(logits, batch.labels)})

    def predict(self, model: nn.Module, images: Tensor, generator: torch.Generator | None) -> Tensor:
        return predict(model, images, samples=0)
