"""What tests of one training step share: a seeded stream, small batches, small networks, the one objective."""

import torch
from torch import Tensor, nn

from pdeplus.augment.base import Augmentor
from pdeplus.augment.crop_flip import CropFlip
from pdeplus.augment.identity import Identity
from pdeplus.data.base import Batch
from pdeplus.methods.base import Method, Objective
from pdeplus.models.resnet18 import build

CROP_AND_FLIP = CropFlip(padding=1)


def seeded(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def batch_of(images: Tensor, classes: int = 5, *, transform: Augmentor | None = None, seed: int = 0) -> Batch:
    """A batch with the labels 0, 1, … in turn; not transformed unless told."""
    return Batch(images, torch.arange(len(images)) % classes, transform or Identity(), seeded(seed))


def random_batch(size: int = 6, side: int = 16, *, transform: Augmentor = CROP_AND_FLIP, seed: int = 0) -> Batch:
    """The same random images with every seed, which is that of the batch's own stream."""
    return batch_of(torch.rand(size, 3, side, side, generator=seeded(1)), transform=transform, seed=seed)


def linear_batch() -> Batch:
    """Three images of 1×2×2 with values in the middle and on both borders of [0, 1], three classes."""
    images = torch.tensor([[0.5, 0.3, 0.7, 0.4], [0.0, 1.0, 0.5, 0.6], [1.0, 0.0, 0.0, 1.0]])
    return batch_of(images.view(3, 1, 2, 2), 3)


def only_objective(method: Method, net: nn.Module, batch: Batch) -> Objective:
    (goal,) = method.objectives(net, batch)
    return goal


def small_resnet(width: int = 4) -> nn.Module:
    """A narrow ResNet-18 for five classes, its weights always the same."""
    torch.manual_seed(0)
    return build(classes=5, channels=3, width=width)


class Scaled(Augmentor):
    """Each call scales the images by the next of its factors."""

    overlaps = ()

    def __init__(self, *factors: float) -> None:
        self.factors = iter(factors)

    def __call__(self, x: Tensor, generator: torch.Generator | None = None) -> Tensor:
        return next(self.factors) * x


class Watched(nn.Module):
    """A linear network behind a stage that is the identity; keeps what the linear layer was given."""

    stages = ("stage",)

    def __init__(self, inputs: int = 3 * 8 * 8, classes: int = 5) -> None:
        super().__init__()
        self.stage, self.linear, self.seen = nn.Identity(), nn.Linear(inputs, classes), list[Tensor]()

    def forward(self, x: Tensor) -> Tensor:
        h = self.stage(x)
        self.seen.append(h)
        return self.linear(h.flatten(1))
