"""PDE+ and AugMix as a loss for any training loop: the objective of the method itself, as one number.

`PDEPlusLoss` and `AugMixLoss` hand a batch to the method of that name and return what it says to minimise.
"""

from abc import ABC
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Literal, cast, final

import torch
from torch import Tensor, distributed, nn
from torch.nn import functional as F

from .._lib.registry import check_value
from .._lib.seeds import generator_for
from ..augment.augmix import AugMix
from ..augment.base import Augmentor, OnNormalised
from ..augment.identity import Identity
from ..core.network import logits_of
from ..core.surgery import add_blocks_of
from ..data.base import Batch
from ..errors import UserError
from . import IN_STAGES
from .augmix import AugMixTraining
from .base import Method, Views
from .pde_plus import PDEPlus, theta_and_phi

Given = Augmentor | Callable[[Tensor, torch.Generator | None], Tensor] | Mapping[str, Any] | str
"""What makes similar samples: an augmentation, its name, a table of its name and options, or a function."""


class _Loss(nn.Module, ABC):
    """A method's objective, one number for a batch; in eval mode the cross-entropy of the plain network.

    It holds the network: `DistributedDataParallel(criterion)`, or accelerate's `prepare`, wraps both at once.
    """

    def __init__(
        self,
        net: nn.Module,
        method: Method,
        *,
        generator: torch.Generator | None,
        label_smoothing: float,
        class_weights: Tensor | Sequence[float] | None,
    ) -> None:
        super().__init__()
        if not 0 <= label_smoothing <= 1:
            raise UserError(f"label_smoothing={label_smoothing} must lie between 0 and 1")
        self.net, self.method, self.generator, self.label_smoothing = net, method, generator, label_smoothing
        weights = None if class_weights is None else torch.as_tensor(class_weights, dtype=torch.float32)
        self.register_buffer("class_weights", weights, persistent=False)
        self.parts: dict[str, Tensor] = {}
        """The terms of the last loss by name, without gradient; PDE+'s agreement is there before its weight."""
        self.metrics: dict[str, Tensor] = {}
        """What the method measured of the last batch: accuracy on its views, the mean σ of every block."""

    def forward(self, images: Tensor, labels: Tensor, net: nn.Module | None = None, progress: float = 1.0) -> Tensor:
        """The loss of a batch, a mean over its images.

        Args:
            images: float B×C×H×W, as the network takes them.
            labels: class numbers, int64 B.
            net: what wraps the network where a library hands it out wrapped (the Trainer's `model`); else its own.
            progress: share of the training that is over, from 0 to 1; PDE+ begins to diffuse at its `diffuse_after`.
        """
        net, batch = self.net if net is None else net, replace(self._batch(images, labels), progress=progress)
        if not net.training:
            weights = batch.class_weights
            loss = F.cross_entropy(
                logits_of(net(images)).float(), labels, weights, label_smoothing=self.label_smoothing
            )
            self.parts, self.metrics = {"task": loss.detach()}, {}
            return loss
        (goal,) = self.method.objectives(net, batch)
        self.parts = {name: part.detach() for name, part in goal.parts.items()}
        self.metrics = dict(goal.metrics)
        return goal.loss

    def _batch(self, images: Tensor, labels: Tensor) -> Batch:
        """What methods take. Where no generator is given, torch's seeds the stream; each process has its own."""
        kind, shape = getattr(labels, "dtype", type(labels).__name__), getattr(labels, "shape", [len(labels)])
        if kind != torch.int64 or shape != images.shape[:1]:
            given = f"{str(kind).removeprefix('torch.')} of {'×'.join(map(str, shape))}"
            raise UserError(f"labels must be class numbers, int64 of {len(images)}, not {given}")
        stream = self.generator
        if stream is None:
            rank = distributed.get_rank() if distributed.is_available() and distributed.is_initialized() else 0
            drawn = int(torch.randint(2**62, (), generator=None))
            stream = generator_for(drawn, "loss", rank, device=images.device)
        weights = cast(Tensor | None, self.class_weights)
        weights = None if weights is None else weights.to(images.device)
        return Batch(images, labels, Identity(), stream, self.label_smoothing, weights)


@final
class PDEPlusLoss(_Loss):
    """PDE+'s fused objective: cross-entropy of diffused views, and the coverage loss of φ.

    g_φ sees detached features: φ gets the gradient of both terms, and the rest of the network that of the task alone.
    The noise's covariance (isotropic, directional or both), its prior and its head are those that `add_diffusion` gave
    the network.

    Args:
        net: made by `add_diffusion`. Where its images diffuse (`after=["input"]`), the next four are by default as in
            `method.name=pde_plus`; where features do, as in `pde_plus_stages`.
        augmentor: what makes similar samples of images in [0, 1].
        jsd: weight of the agreement of the predictions of two views; 0 for none, as in the paper.
        views: whose cross-entropy is the task.
        share: of a batch's rows, those that diffuse.
        diffuse_after: share of the training in which nothing diffuses yet, by the `progress` of each call.
        agreeing: views that agree.
        coverage_weight: of the coverage loss.
        coverage_images: φ learns from at most so many images of a batch.
        twins: whose features are covered: of a plain pass, or of the diffused pass, which saves the plain pass.
        mean: with `std`, what the loader normalises images with: they are put back for the augmentation.
        std: see `mean`.
        label_smoothing: of the cross-entropy.
        class_weights: of the cross-entropy, one for each class.
        generator: of augmentation and noise, on the images' device; None draws a seed from torch's own each time.
    """

    def __init__(
        self,
        net: nn.Module,
        *,
        augmentor: Given = "augmix",
        jsd: float | None = None,
        views: Views | None = None,
        share: float | None = None,
        diffuse_after: float | None = None,
        agreeing: Literal[2, 3] = 2,
        coverage_weight: float = 1.0,
        coverage_images: int = 256,
        twins: Literal["plain", "diffused"] = "plain",
        mean: Sequence[float] | None = None,
        std: Sequence[float] | None = None,
        label_smoothing: float = 0.0,
        class_weights: Tensor | Sequence[float] | None = None,
        generator: torch.Generator | None = None,
    ) -> None:
        block = add_blocks_of(net)[0]
        if block.head == "none":
            raise UserError("the network's noise has a fixed scale, not a learnt one; use add_diffusion")
        places = tuple(one.name for one in add_blocks_of(net))
        chosen: dict[str, Any] = {} if places == ("input",) else dict(IN_STAGES)
        given = {"jsd": jsd, "views": views, "share": share, "diffuse_after": diffuse_after}
        chosen |= {"placement": places} | {key: value for key, value in given.items() if value is not None}
        method = PDEPlus(
            **chosen,
            covariance=block.covariance,
            head=block.head,
            prior=block.prior,
            augmentor=_augmentor(augmentor, mean, std),
            agreeing=agreeing,
            coverage_weight=coverage_weight,
            coverage_images=coverage_images,
            twins=twins,
        )
        super().__init__(net, method, generator=generator, label_smoothing=label_smoothing, class_weights=class_weights)

    def parameter_groups(self, lr: float, diffusion_lr: float | None = None) -> list[dict[str, Any]]:
        """Groups for one optimiser, or for one each: the network's parameters and, without weight decay, φ.

        None is the method's own rate for φ, 0.005 where images diffuse and 0.001 where features do. With directional
        diffusion there is no φ, and one group. φ learns by Adam or AdamW; under SGD it hardly moves.
        """
        theta, phi = theta_and_phi(self.net)
        groups: list[dict[str, Any]] = [{"params": theta, "lr": lr}]
        assert isinstance(self.method, PDEPlus)
        diffusion_lr = self.method.diffusion_lr if diffusion_lr is None else diffusion_lr
        return groups + ([{"params": phi, "lr": diffusion_lr, "weight_decay": 0.0}] if phi else [])

    def start_scales(self, images: Tensor, labels: Tensor) -> dict[str, float]:
        """Start each block's σ at the distance of the twins in this batch, which a pretrained network needs.

        Call it once, before the network is wrapped for several processes. Returns that distance for each block.
        """
        assert isinstance(self.method, PDEPlus)
        return replace(self.method, scale_from="twins").begin(self.net, self._batch(images, labels))


@final
class AugMixLoss(_Loss):
    """AugMix's objective: cross-entropy of the image, and the agreement of it and two augmentations.

    Args:
        net: any classifier.
        augmentor: what makes the views, of images in [0, 1].
        jsd: weight of the agreement; 0 for none: the cross-entropy of one augmentation, a third of the cost.
        mean: with `std`, what the loader normalises images with: they are put back for the augmentation.
        std: see `mean`.
        label_smoothing: of the cross-entropy.
        class_weights: of the cross-entropy, one for each class.
        generator: of the augmentation, on the images' device; None draws a seed from torch's own each time.
    """

    def __init__(
        self,
        net: nn.Module,
        *,
        augmentor: Given = "augmix",
        jsd: float = 12.0,
        mean: Sequence[float] | None = None,
        std: Sequence[float] | None = None,
        label_smoothing: float = 0.0,
        class_weights: Tensor | Sequence[float] | None = None,
        generator: torch.Generator | None = None,
    ) -> None:
        method = AugMixTraining(augmentor=_augmentor(augmentor, mean, std), jsd=jsd)
        super().__init__(net, method, generator=generator, label_smoothing=label_smoothing, class_weights=class_weights)

    def parameter_groups(self, lr: float) -> list[dict[str, Any]]:
        """One group: all that learns."""
        return [{"params": [p for p in self.net.parameters() if p.requires_grad], "lr": lr}]


def _augmentor(given: Given, mean: Sequence[float] | None, std: Sequence[float] | None) -> Augmentor:
    """An augmentation that takes images as the loader gives them; it only stands for one of the registry's."""
    named: Any = check_value("augmentor", given, Augmentor, AugMix()) if isinstance(given, str | Mapping) else given
    if not callable(named):
        raise UserError(f"augmentor={given!r} must be an augmentation, its name, or a function (images, generator)")
    augment = cast(Callable[[Tensor, torch.Generator | None], Tensor], named)
    return cast(Augmentor, OnNormalised(augment=augment, mean=mean, std=std))
