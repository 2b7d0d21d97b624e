"""Noise of a given size in any network: what RSE, EnResNet and fixed diffusion put where PDE+ puts its ADD blocks.

The layers are ADD blocks whose σ is not learnt, so that `diffusion`, `predict` and evaluation treat them alike.
"""

import copy
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal, final

from torch import Tensor, nn

from ..errors import UserError, check_choice
from .add_block import ADDBlock
from .context import FollowsDiffusion, context_of
from .network import find_modules
from .surgery import CHILD, ADDBlocks, AfterModule

Where = Literal["after", "before"]


def add_noise(
    model: nn.Module, places: Sequence[str], scale: Callable[[str], nn.Module], *, where: Where = "after"
) -> nn.Module:
    """Noise behind, or before, each named module of a copy of `model`.

    Outside a `diffusion` context the copy's output equals the model's bit for bit; the model is left as it was.

    Args:
        model: any module.
        places: names as in `model.named_modules()`.
        scale: gives for each name the module that makes σ of the features.
        where: on the output of the named modules, or on their input.
    """
    check_choice("where", where, Where)
    net = copy.deepcopy(model)
    if hasattr(net, CHILD):
        raise UserError(f"the model has {CHILD!r} already; name all modules in one call")
    blocks = ADDBlocks()
    for name, host in find_modules(net, places).items():
        block = ADDBlock(nn.Sequential(scale(name)), name=name, head="none", initial_scale=None)
        blocks.append(block)
        if where == "after":
            host.register_forward_hook(AfterModule(block))
        else:
            host.register_forward_pre_hook(BeforeModule(block))
    net.add_module(CHILD, blocks.train(net.training))
    return net


def convolutions(model: nn.Module) -> list[str]:
    """The names of a network's convolutions, in the order of its modules."""
    modules: dict[str, nn.Module] = dict(model.named_modules())  # type: ignore[reportUnknownArgumentType]
    return [name for name, module in modules.items() if isinstance(module, nn.Conv2d)]


@dataclass(frozen=True, eq=False)
class BeforeModule:
    """The hook that hands a module's input to its block; `deepcopy` keeps the two together."""

    block: ADDBlock

    def __call__(self, module: nn.Module, args: tuple[Any, ...]) -> tuple[Any, ...]:
        return self.block(args[0]), *args[1:]


@final
class Constant(nn.Module):
    """σ is the same number for every element."""

    def __init__(self, value: float) -> None:
        super().__init__()
        if not value >= 0:
            raise UserError(f"the noise's scale {value} must be 0 or more")
        self.value = value

    def forward(self, h: Tensor) -> Tensor:
        return h.new_full((), self.value).expand_as(h)


@final
class Relative(FollowsDiffusion):
    """σ is a share of the standard deviation of all features, images and places together.

    Where one batch holds several noisy passes, each pass has its own, as if it had run by itself.
    """

    def __init__(self, share: float) -> None:
        super().__init__()
        if not share >= 0:
            raise UserError(f"the noise's share {share} must be 0 or more")
        self.share = share

    def forward(self, h: Tensor) -> Tensor:
        context = context_of(self)
        if context is None or not context.passes:
            return (self.share * h.std(correction=0)).expand_as(h)
        rows = len(context.passes[0][len(context.trace.means) - 1])
        passes = h.view(-1, rows, *h.shape[1:])
        std = passes.std(tuple(range(1, passes.ndim)), correction=0)
        return (self.share * std).repeat_interleave(rows).view(-1, *[1] * (h.ndim - 1)).expand_as(h)
