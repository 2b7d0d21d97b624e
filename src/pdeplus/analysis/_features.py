"""What a network makes of images: its outputs without noise, and the scope that each ADD block gives them."""

from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor, nn

from .._errors import check_choice
from .._network import evaluating, logits_of
from .._subjects import Outputs
from ..diffusion import add_blocks_of, diffusion, no_diffusion


class Scope(NamedTuple):
    """N(μ_l, σ_l) of one ADD block."""

    block: str
    mean: Tensor
    scale: Tensor


def plain(model: nn.Module, of: Outputs) -> Callable[[Tensor], Tensor]:
    """The function from images to B×classes that the network is without noise, in eval mode."""
    check_choice("of", of, Outputs)

    def run(x: Tensor) -> Tensor:
        with evaluating(model), no_diffusion(model):
            logits = logits_of(model(x))
        return logits.softmax(-1) if of == "probabilities" else logits

    return run


def features(model: nn.Module, x: Tensor) -> list[Tensor]:
    """h_l of each ADD block in a pass without noise."""
    with evaluating(model), diffusion(model, active=False) as trace:
        model(x)
    return trace.means


def scopes(model: nn.Module, x: Tensor) -> list[Scope]:
    """Of each ADD block in a pass without noise: h_l for the mean, and σ_l = g_φl(h_l)."""
    blocks = {block.name: block for block in add_blocks_of(model)}
    with evaluating(model):
        with diffusion(model, active=False) as trace:
            model(x)
        return [Scope(name, h, blocks[name].scale(h)) for name, h in zip(trace.names, trace.means, strict=True)]


def noisy_scopes(model: nn.Module, x: Tensor, generator: torch.Generator | None) -> list[Scope]:
    """Of each ADD block in a diffused pass, whose noise the later blocks see."""
    with evaluating(model), diffusion(model, generator=generator) as trace:
        model(x)
    return [Scope(*one) for one in zip(trace.names, trace.means, trace.scales, strict=True)]
