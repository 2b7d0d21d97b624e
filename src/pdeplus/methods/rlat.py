"""RLAT (Kireev et al., 2022): adversarial training with small changes of the images and of the network's features.

Idea: training against changes that are small in the perceptual distance LPIPS helps against corruptions, but finding
them is costly; if the changes of the images and of each layer's features are independent, one step is enough.
Formula: CE of the network with δ_l added to its input (then cut to [0, 1]) and to the outputs of its stem and stages, l
= 0, 1, …; δ_l = r_l · g_l / ‖g_l‖₂ for each image, g_l the gradient of the CE at δ = 0 with respect to the features
h_l; r_l = ε · (dim h_l / dim x) / (l + 1). With views: CE + jsd · JS of the clean and two augmented ones, all attacked.
Source: Kireev, Andriushchenko and Flammarion, On the effectiveness of adversarial training against common corruptions,
UAI 2022. No LPIPS network is used. The published radii have dim h_l / 3072, for images of 3×32×32; relative to the
image's own dim x, ε is the length of the image's change at every size. The script with AugMix is unpublished.
Defaults: ε = 0.08 without augmentation, attacked in train mode; with AugMix ε = 0.05 is published, without JS and with
it (of an unstated weight: take AugMix's own, jsd = 12).
Cost: one more forward and backward pass, the latter without gradients of the weights: 1.7 times ERM's; with jsd, on
three images for each image, 5 times.
Published: on CIFAR-10, clean / corrupted, with PreAct-ResNet-18 93.10 / 84.10, with AugMix 94.77 / 88.53, with AugMix
and JS 94.75 / 89.60 (Kireev et al., 2022); with ResNet-18 93.23 / 83.67, with AugMix 94.73 / 88.28 (Yuan et al., 2024).
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Literal, final

import torch
from torch import Tensor, nn

from ..attacks.gradient_attacks import AttackMode, in_attack_mode
from ..attacks.steps import cross_entropy, steepest
from ..augment.base import Augmentor
from ..augment.identity import Identity
from ..core.network import INPUT, Change, changing, logits_of, output_shapes
from ..core.placement import stages_of
from ..data.base import Batch
from ..errors import check_choice
from .base import Objective, WithViews, check_range


@final
@dataclass(frozen=True, kw_only=True)
class RLAT(WithViews):
    """Relaxed LPIPS adversarial training. The attack leaves no gradient, no hook and no mode behind."""

    epsilon: float | Literal["published"] = "published"
    """Length of the image's change, which the features' radii follow; published is 0.08, and 0.05 with views."""
    placement: Literal["stage"] | tuple[str, ...] = "stage"
    """Changed besides the input: the outputs of the stem and the stages, or of the named modules, in their order."""
    augmentor: Augmentor = Identity()
    """What makes the views that are attacked; augmix gives RLAT+AugMix."""
    jsd: float = 0.0
    """Weight of the agreement of the views' predictions; 12 as published for AugMix, 0 for none."""
    attack_mode: AttackMode = "train"
    """Mode of the network while attacked: train, whose pass counts in BatchNorm's running statistics, or eval."""

    def __post_init__(self) -> None:
        super().__post_init__()
        check_choice("method.attack_mode", self.attack_mode, AttackMode)
        check_range(0, math.inf, epsilon=self.size)

    @property
    def size(self) -> float:
        """ε as a number."""
        if self.epsilon != "published":
            return self.epsilon
        return 0.08 if isinstance(self.augmentor, Identity) else 0.05

    @property
    def label(self) -> str:
        views = [] if isinstance(self.augmentor, Identity) else [type(self.augmentor).__name__]
        return "+".join(["RLAT", *views, *(["JSD"] if self.jsd else [])]) + self.other_views

    @property
    def overlaps(self) -> tuple[str, ...]:
        """No corruption follows the network's own gradient."""
        return ()

    def prepare(self, model: nn.Module, example: Tensor) -> nn.Module:
        """The model itself; refuses one that lacks a place, does not call it or gives no tensor there."""
        output_shapes(model, self._places(model), example)
        return model

    def objectives(self, model: nn.Module, batch: Batch) -> Iterator[Objective]:
        views = self.drawn(batch, self.augmentor)
        deltas = self.perturbations(model, torch.cat(views), batch.labels.repeat(len(views)))
        with changing(model, {place: adding(delta, place) for place, delta in deltas.items()}):
            goal = self.objective(model, views, batch)
        yield goal

    def perturbations(self, model: nn.Module, x: Tensor, labels: Tensor) -> dict[str, Tensor]:
        """δ_l by place, the input first: along each image's gradient and of length r_l, or 0 where that is 0."""
        places = [INPUT, *self._places(model)]
        with in_attack_mode(model, self.attack_mode):
            gradients = loss_gradients(model, places, x, labels)
        radius = radii({place: g[0].numel() for place, g in gradients.items()}, self.size)
        return {place: radius[place] * steepest(g, "l2") for place, g in gradients.items()}

    def _places(self, model: nn.Module) -> Sequence[str]:
        """The named modules; or the stem, where the network has one of that name, and the stages, in their order."""
        if self.placement != "stage":
            return self.placement
        return [*(name for name, _ in model.named_children() if name == "conv1"), *stages_of(model)]


def radii(dims: Mapping[str, int], epsilon: float) -> dict[str, float]:
    """r_l = ε · (dim_l / dim_0) / (l + 1), where dims holds each place's elements for one image, the input's first."""
    first = next(iter(dims.values()))
    return {place: epsilon * dim / first / (i + 1) for i, (place, dim) in enumerate(dims.items())}


def loss_gradients(net: nn.Module, places: Sequence[str], x: Tensor, labels: Tensor) -> dict[str, Tensor]:
    """Gradient of the summed cross-entropy with respect to the features at each place; INPUT is x itself.

    One forward and one backward pass. Parameters keep the gradients they had, and the network its hooks.
    """
    zeros = dict[str, Tensor]()

    def watch(h: Tensor, place: str) -> Tensor:
        exact = torch.promote_types(h.dtype, torch.float32)  # directions keep full precision
        zeros[place] = torch.zeros_like(h, dtype=exact).requires_grad_()
        return h + zeros[place].to(h.dtype)

    with torch.enable_grad(), changing(net, {place: partial(watch, place=place) for place in places}):
        loss = cross_entropy(logits_of(net(x)), labels).sum()
        gradients = torch.autograd.grad(loss, [zeros[place] for place in places])
    return dict(zip(places, gradients, strict=True))


def adding(delta: Tensor, place: str) -> Change:
    """The features with `delta` added in their own precision; images are cut to [0, 1] again."""
    if place == INPUT:
        return lambda x: (x + delta.to(x.dtype)).clamp(0, 1)
    return lambda h: h + delta.to(h.dtype)
