"""A method of your own: cross-entropy with input noise. Train it from the root of the repository:

pdeplus train demo method.name=examples.write_a_method method.noise=0.2 --out runs/noisy
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import final

from torch import nn
from torch.nn import functional as F

from pdeplus.data.base import Batch
from pdeplus.functional import diffuse
from pdeplus.methods.base import Method, Objective, accuracy


@final
@dataclass(frozen=True, kw_only=True)
class InputNoise(Method):
    """Gaussian noise on every training image. A method only needs `objectives`; `Method` has defaults for the rest."""

    noise: float = 0.1
    """Standard deviation of the noise."""

    @property
    def label(self) -> str:
        return "input noise"  # in tables; by default the class's name

    @property
    def overlaps(self) -> tuple[str, ...]:
        return ("gaussian_noise",)  # a test corruption that the training images also undergo

    def objectives(self, model: nn.Module, batch: Batch) -> Iterator[Objective]:
        x = diffuse(batch.view(), self.noise, batch.generator).clamp(0, 1)
        logits = model(x)
        task = F.cross_entropy(logits, batch.labels, label_smoothing=batch.label_smoothing)
        yield Objective(task, parts={"task": task}, metrics={"accuracy": accuracy(logits, batch.labels)})
