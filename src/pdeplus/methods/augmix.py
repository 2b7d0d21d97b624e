"""AugMix training (Hendrycks et al., 2020): cross-entropy on mixed augmentations, or agreement of three views.

Idea: a network that sees random mixtures of chains of simple operations, and says the same of an image and of two
such mixtures, says the same under corruptions it never saw.
Formula: without consistency CE(a(x)); with it CE(x) + jsd · JS(p(x), p(a_1(x)), p(a_2(x))), where
JS = (1/3) Σ KL(p_i ‖ mean of the three) and the mean is at least 1e-7. All views share one crop and flip.
Defaults: AugMix of severity 3 and width 3 with its nine operations, no consistency; published with jsd = 12.
Cost: one image through the network for each image, as ERM, or three with consistency; and AugMix itself, once or twice.
Published on CIFAR-10, accuracy clean / corrupted: PreAct-ResNet-18 without consistency 94.97 / 86.60 (Kireev et al.,
2022), ResNet-18 with it 95.2 / 88.6 (Modas et al., 2022).
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import final

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.optim import Optimizer

from .._network import logits_of
from ..augment.augmix import AugMix
from ..augment.base import Augmentor
from ..data.base import Batch
from ..diffusion import predict
from ..functional import jensen_shannon
from .base import BuildOptimizer, Method, Objective, accuracy, check_range


@final
@dataclass(frozen=True, kw_only=True)
class AugMixTraining(Method):
    """Training on AugMix's views. The defaults are the published "AugMix" without consistency."""

    label = "AugMix"

    augmentor: Augmentor = AugMix()
    """What makes the views."""
    jsd: float = 0.0
    """Weight of the consistency of the clean and two augmented views; 12 as published, 0 for one augmented view."""
    label_smoothing: float = 0.0
    """Of the cross-entropy."""

    def __post_init__(self) -> None:
        check_range("jsd", self.jsd, 0, math.inf)
        check_range("label_smoothing", self.label_smoothing, 0, 1)

    def prepare(self, model: nn.Module, example: Tensor) -> nn.Module:
        return model

    def optimizers(self, model: nn.Module, build: BuildOptimizer) -> dict[str, Optimizer]:
        return {"task": build(model.parameters())}

    def objectives(self, model: nn.Module, batch: Batch) -> Iterator[Objective]:
        views = self._views(batch)
        logits = logits_of(model(torch.cat(views))).reshape(len(views), len(batch.labels), -1)
        task = F.cross_entropy(logits[0], batch.labels, label_smoothing=self.label_smoothing)
        parts, loss = {"task": task}, task
        if self.jsd:
            parts["consistency"] = jensen_shannon(logits.float())
            loss = task + self.jsd * parts["consistency"]
        yield Objective(loss, parts=parts, metrics={"accuracy": accuracy(logits[0], batch.labels)})

    def predict(self, model: nn.Module, images: Tensor, generator: torch.Generator | None) -> Tensor:
        return predict(model, images, samples=0)

    def _views(self, batch: Batch) -> list[Tensor]:
        """One augmented view, or the clean view and two augmented ones."""
        with torch.autocast(batch.images.device.type, enabled=False):  # images keep full precision
            clean = batch.view()
            if not self.jsd:
                return [self.augmentor(clean, batch.generator)]
            return [clean, *(self.augmentor(clean, batch.generator) for _ in range(2))]
