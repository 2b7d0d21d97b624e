"""A copy of a network that predicts faster: BatchNorm folded into convolutions, channels-last memory."""

import copy
import warnings
from typing import Any, final

import torch
from torch import Tensor, nn
from torch.fx import Node, Tracer
from torch.nn.utils.fusion import fuse_conv_bn_eval

from ._compile import compile_network
from ._network import evaluating, logits_of, memory_layout
from .diffusion import ADDBlock, diffusion

TOLERANCE = 1e-4
"""Of logits, relative to the largest: a copy that differs by more is not used."""


@torch.no_grad()
def fast_copy(net: nn.Module, example: Tensor, *, compile: bool = False) -> nn.Module:
    """A copy in eval mode with the same predictions up to rounding; ADD blocks still work.

    What cannot be followed or does not come out equal on `example` (float B×C×H×W) is left as it was.
    """
    try:
        kept = copy.deepcopy(net).eval()
    except Exception:  # a user's network may hold what cannot be copied
        if compile:
            warnings.warn("torch.compile is left out: the network cannot be copied", stacklevel=2)
        return _InEvalMode(net)
    fast = _folded_copy(kept, example)
    if compile:
        compile_network(fast)
    return fast


def _folded_copy(kept: nn.Module, example: Tensor) -> nn.Module:
    """Folded and in channels-last memory, or `kept` itself."""
    folded = copy.deepcopy(kept)
    blocks = [module for module in folded.modules() if isinstance(module, ADDBlock)]
    try:
        for part in (folded, *(block.body for block in blocks)):
            fold_batch_norm(part)
        folded.to(memory_format=memory_layout(folded, True, example.device))  # type: ignore[reportCallIssue]
        if _agree(kept, folded, example):
            return folded
    except Exception:  # a user's network may refuse to be traced, or to be run on memory laid out otherwise
        pass
    return kept


@final
class _InEvalMode(nn.Module):
    """Calls a network in eval mode and leaves it in the mode it was in."""

    def __init__(self, net: nn.Module) -> None:
        super().__init__()
        self.net = net

    def forward(self, x: Tensor) -> Any:
        with evaluating(self.net):
            return self.net(x)


def fold_batch_norm(net: nn.Module) -> None:
    """Put each BatchNorm that alone follows a convolution into that convolution's weights, in place, in eval mode."""
    modules: dict[str, nn.Module] = dict(net.named_modules())  # type: ignore[reportUnknownArgumentType]
    called = [node for node in Tracer().trace(net).nodes if node.op == "call_module"]
    times = {str(node.target): sum(other.target == node.target for other in called) for node in called}
    for node in called:
        source = node.args[0] if len(node.args) == 1 else None
        if not isinstance(source, Node) or source.op != "call_module" or len(source.users) != 1:
            continue
        conv, norm = modules[str(source.target)], modules[str(node.target)]
        if times[str(source.target)] == times[str(node.target)] == 1 and _can_fold(conv, norm):
            net.set_submodule(str(source.target), fuse_conv_bn_eval(conv, norm))  # type: ignore[reportArgumentType]
            net.set_submodule(str(node.target), nn.Identity())


def _can_fold(conv: nn.Module, norm: nn.Module) -> bool:
    if not isinstance(conv, nn.Conv2d) or not isinstance(norm, nn.BatchNorm2d) or norm.running_mean is None:
        return False
    hooks = ("_forward_hooks", "_forward_pre_hooks")  # an ADD block may hang there
    return not any(getattr(module, kind) for module in (conv, norm) for kind in hooks)


def _agree(a: nn.Module, b: nn.Module, x: Tensor) -> bool:
    """Whether two networks give the same logits and, where they have ADD blocks, the same features there and σ."""
    results = [_results(net, x) for net in (a, b)]
    pairs = zip(*results, strict=True)
    return all(bool((q - p).abs().max() <= TOLERANCE * p.abs().max().clamp(min=1)) for p, q in pairs)


def _results(net: nn.Module, x: Tensor) -> list[Tensor]:
    blocks = {module.name: module for module in net.modules() if isinstance(module, ADDBlock)}
    if not blocks:
        return [logits_of(net(x)).float()]
    with diffusion(net, active=False) as trace:
        logits = logits_of(net(x)).float()
    scales = [blocks[name].scale(h).float() for name, h in zip(trace.names, trace.means, strict=True)]
    return [logits, *(h.float() for h in trace.means), *scales]
