"""ADD blocks in any torch model: `add_diffusion` hangs one behind each named module by a forward hook."""

import copy
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, final

from torch import Tensor, nn

from ..errors import UserError, check_choice
from ..functional import Prior
from .add_block import ADDBlock, Block, Head, body_for
from .context import NO_BLOCKS
from .network import find_modules, output_shapes

CHILD = "add_blocks"
"""Name under which a changed network holds its ADD blocks."""


@final
class ADDBlocks(nn.ModuleList):
    """The ADD blocks of one network. Called as a layer (a Sequential calls its children) it is the identity."""

    def forward(self, h: Tensor) -> Tensor:
        return h


@dataclass(frozen=True, eq=False)
class AfterModule:
    """The forward hook that hands a module's output to its block; `deepcopy` keeps the two together."""

    block: ADDBlock

    def __call__(self, module: nn.Module, args: Any, output: Tensor) -> Tensor:
        return self.block(output)


def add_diffusion(
    model: nn.Module,
    after: Sequence[str],
    example: Tensor | Mapping[str, Any],
    *,
    block: Block = "light",
    head: Head = "softplus",
    floor: float = 1e-3,
    initial_scale: float | None = 0.05,
    prior: Prior = "gaussian",
) -> nn.Module:
    """Put an ADD block behind each named module of a copy of `model`.

    The copy has the model's class, attributes and parameter names; outside a `diffusion` context its
    output equals the model's bit for bit. `model` itself is left as it was.

    Args:
        model: any module.
        after: names as in `model.named_modules()`; each one's output must be a tensor: B×C×H×W or B×N×C
            or B×C.
        example: an input (or a mapping of keyword inputs) for one forward pass that finds the shapes.
        block: a light depthwise body, or the paper's two 3×3 convolutions (B×C×H×W features only).
        head: softplus with a floor, or the authors' ReLU, under which σ can be zero.
        floor: least σ of the softplus head.
        initial_scale: σ of every element before the first update; None keeps the normalisation's start
            (σ near 0.8 for softplus, as large as the features).
        prior: family of the noise.
    """
    for name, value, choices in (("block", block, Block), ("head", head, Head), ("prior", prior, Prior)):
        check_choice(name, value, choices)
    net = copy.deepcopy(model)
    if hasattr(net, CHILD):
        raise UserError(f"the model has {CHILD!r} already; name all modules in one call of add_diffusion")
    shapes = output_shapes(net, after, example)
    first = next(iter(net.parameters()), None)
    blocks = ADDBlocks()
    for name, host in find_modules(net, after).items():
        body = body_for(name, shapes[name], block)
        add = ADDBlock(body, name=name, head=head, floor=floor, initial_scale=initial_scale, prior=prior)
        if first is not None:
            add.to(device=first.device, dtype=first.dtype)
        blocks.append(add.train(net.training))
        host.register_forward_hook(AfterModule(add))
    net.add_module(CHILD, blocks.train(net.training))
    return net


def add_blocks_of(net: nn.Module) -> list[ADDBlock]:
    """The ADD blocks of a network, in their order; refuses a network that has none."""
    blocks = [module for module in net.modules() if isinstance(module, ADDBlock)]
    if not blocks:
        raise UserError(NO_BLOCKS)
    return blocks
