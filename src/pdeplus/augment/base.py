"""What an augmentation file provides."""

from abc import ABC, abstractmethod
from typing import ClassVar

import torch
from torch import Tensor


class Augmentor(ABC):
    """An augmentation, configured once, then called on whole batches."""

    family: ClassVar[str] = "augment"

    @property
    @abstractmethod
    def overlaps(self) -> tuple[str, ...]:
        """Test corruptions that this augmentation also does to training images: the same in kind, at any strength."""

    @abstractmethod
    def __call__(self, x: Tensor, generator: torch.Generator | None = None) -> Tensor:
        """Images of the same labels: float B×C×H×W in [0, 1] → the same; `x` is left as it was."""
