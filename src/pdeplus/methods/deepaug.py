"""DeepAug (Hendrycks et al., 2021): cross-entropy on clean images and on images from a distorted network.

Idea: an image-to-image network whose weights and features are disturbed at random makes changes that no list of
operations has, and keeps what the image shows.
Formula: CE(d(x)) on a share of the batch, CE(x) on the rest, where d is the image network with a distortion drawn
afresh for each group of images; x after crop and flip.
Source: Hendrycks et al., The many faces of robustness, ICCV 2021. There the distorted images are stored and added to
the data set, once for each of two image networks, which is a share of 2/3.
Defaults: share 0.5, one distorted copy beside each image; groups of 8; an image network made of random features and a
fitted last layer, which gives images back but was never trained; `weights` takes a trained one.
Cost: one forward and one backward pass, as ERM; and a forward pass of the image network on the share.
Published: CIFAR-10 accuracy clean / corrupted: PreAct-ResNet-18 94.10 / 85.33 (Kireev et al., 2022; quoted in the PDE+
paper).
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import final

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from ..augment.deep_augment import DeepAugment
from ..data.base import Batch
from ..prediction import predict
from ._made_network import made_network_file
from ._views import objective_on, partly_augmented_view
from .base import BuildOptimizer, Method, Objective, check_range


@final
@dataclass(frozen=True, kw_only=True)
class DeepAug(Method):
    """Training on DeepAugment's images among clean ones."""

    weights: str = ""
    """File of a trained image-to-image network, as `DeepAugment.trained_on(images, file)` makes; "" for a made one."""
    share: float = 0.5
    """Share of a batch's images that are distorted; the published data set has 2/3."""
    group: int = 8
    """Images that share one distortion."""
    label_smoothing: float = 0.0
    """Of the cross-entropy."""

    def __post_init__(self) -> None:
        check_range("share", self.share, 0, 1)
        check_range("group", self.group, 1, 2**31)
        check_range("label_smoothing", self.label_smoothing, 0, 1)

    @property
    def label(self) -> str:  # type: ignore[reportIncompatibleVariableOverride]
        return "DeepAug" if self.weights else "DeepAug (made network)"

    @property
    def overlaps(self) -> tuple[str, ...]:
        """Test corruptions that the training images go through too."""
        return DeepAugment().overlaps

    def augmentor(self, channels: int) -> DeepAugment:
        """What is done to the share of the images."""
        return DeepAugment(weights=self.weights or made_network_file(channels), group=self.group)

    def prepare(self, model: nn.Module, example: Tensor) -> nn.Module:
        self.augmentor(example.shape[1])(example)  # a wrong file is answered now, and the first step takes no longer
        return model

    def optimizers(self, model: nn.Module, build: BuildOptimizer) -> dict[str, Optimizer]:
        return {"task": build(model.parameters())}

    def objectives(self, model: nn.Module, batch: Batch) -> Iterator[Objective]:
        view = partly_augmented_view(batch, self.augmentor(batch.images.shape[1]), self.share)
        yield objective_on(model, [view], batch.labels, label_smoothing=self.label_smoothing)

    def predict(self, model: nn.Module, images: Tensor, generator: torch.Generator | None) -> Tensor:
        return predict(model, images, samples=0)
