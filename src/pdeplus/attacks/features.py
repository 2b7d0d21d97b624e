"""What attacks within training need: the network's mode, its places, and gradients at them."""

from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Literal

import torch
from torch import Tensor, nn

from ..core.network import INPUT, Change, changing, evaluating, logits_of
from ..models.base import stage_names
from .steps import cross_entropy

AttackMode = Literal["train", "eval"]
"""The network's mode while it is attacked: the one it trains in, or eval."""
STEM = "conv1"
"""What the networks call the convolution before their first stage, where there is one."""


def in_attack_mode(net: nn.Module, mode: AttackMode) -> AbstractContextManager[None]:
    """Eval mode within, if wanted; every module is afterwards in the mode it was in."""
    return evaluating(net) if mode == "eval" else nullcontext()


def stem_and_stages(net: nn.Module) -> list[str]:
    """Module names of the stem, if the network has one of its own, and of the stages, in their order."""
    stem = [STEM] if any(name == STEM for name, _ in net.named_children()) else []
    return [*stem, *stage_names(net)]


def loss_gradients(net: nn.Module, places: Sequence[str], x: Tensor, labels: Tensor) -> dict[str, Tensor]:
    """Gradient of the summed cross-entropy with respect to the features at each place; INPUT is x itself.

    One forward and one backward pass. Parameters keep the gradients they had, and the network its hooks.

    Args:
        net: any network.
        places: module names, or INPUT.
        x: float images B×C×H×W.
        labels: B.
    """
    zeros = dict[str, Tensor]()

    def watching(place: str) -> Change:
        def change(h: Tensor) -> Tensor:
            exact = torch.promote_types(h.dtype, torch.float32)  # directions keep full precision
            zeros[place] = torch.zeros_like(h, dtype=exact).requires_grad_()
            return h + zeros[place].to(h.dtype)

        return change

    with torch.enable_grad(), changing(net, {place: watching(place) for place in places}):
        loss = cross_entropy(logits_of(net(x)), labels).sum()
        gradients = torch.autograd.grad(loss, [zeros[place] for place in places])
    return dict(zip(places, gradients, strict=True))


def adding(delta: Tensor, place: str) -> Change:
    """The features with `delta` added in their own precision; images are cut to [0, 1] again."""
    if place == INPUT:
        return lambda x: (x + delta.to(x.dtype)).clamp(0, 1)
    return lambda h: h + delta.to(h.dtype)
