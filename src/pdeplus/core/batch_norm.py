"""Which statistics BatchNorm uses when clean, augmented and diffused passes share one network.

shared: every pass updates and uses the same. split: diffused passes have statistics of their own.
recalibrate: before every evaluation the statistics are measured anew on plain clean images.
"""

from collections.abc import Generator, Iterable
from contextlib import contextmanager
from typing import final

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.modules.batchnorm import _BatchNorm  # type: ignore[reportPrivateUsage]

from ..errors import UserError
from .add_block import ADDBlock
from .context import FollowsDiffusion, context_of, no_diffusion
from .network import evaluating


@final
class SplitBatchNorm(FollowsDiffusion):
    """A BatchNorm with two sets of running statistics and one set of weights.

    Outside a diffused pass it computes what the BatchNorm that it replaces would, under the same names.
    """

    def __init__(self, norm: _BatchNorm) -> None:
        super().__init__()
        if norm.running_mean is None or norm.running_var is None:
            raise UserError("train.batch_norm=split needs BatchNorm layers that track running statistics")
        self.weight, self.bias, self.eps = norm.weight, norm.bias, norm.eps
        self.momentum = 0.1 if norm.momentum is None else norm.momentum
        self.running_mean: Tensor
        self.running_var: Tensor
        self.diffused_mean: Tensor
        self.diffused_var: Tensor
        self.register_buffer("running_mean", norm.running_mean)
        self.register_buffer("running_var", norm.running_var)
        self.register_buffer("diffused_mean", norm.running_mean.clone())
        self.register_buffer("diffused_var", norm.running_var.clone())
        self.train(norm.training)
        self._forward_hooks.update(norm._forward_hooks)  # an ADD block may hang behind it

    def forward(self, h: Tensor) -> Tensor:
        context = context_of(self)
        mean, var = self.running_mean, self.running_var
        if context is not None and context.active:
            mean, var = self.diffused_mean, self.diffused_var
        return F.batch_norm(h, mean, var, self.weight, self.bias, self.training, self.momentum, self.eps)


def split_batch_norm(net: nn.Module) -> nn.Module:
    """Split every BatchNorm of `net`, in place, but those of ADD blocks, which see diffused passes only."""
    for child_name, child in net.named_children():
        if isinstance(child, _BatchNorm):
            setattr(net, child_name, SplitBatchNorm(child))
        elif not isinstance(child, ADDBlock):
            split_batch_norm(child)
    return net


@torch.no_grad()
def recalibrate(net: nn.Module, batches: Iterable[Tensor]) -> None:
    """Replace running statistics by the plain average over `batches`, diffusion off.

    Weights and the statistics of modules that the plain pass does not reach stay as they are.
    """
    within = {m for block in net.modules() if isinstance(block, ADDBlock) for m in block.modules()}
    norms = [m for m in net.modules() if isinstance(m, _BatchNorm) and m.track_running_stats and m not in within]
    momenta = [norm.momentum for norm in norms]
    with evaluating(net), no_diffusion(net):
        for norm in norms:
            norm.reset_running_stats()
            norm.momentum = None  # a cumulative average
            norm.training = True
        try:
            for images in batches:
                net(images)
        finally:
            for norm, momentum in zip(norms, momenta, strict=True):
                norm.momentum = momentum
                norm.training = False


@contextmanager
def unchanged_buffers(net: nn.Module) -> Generator[None]:
    """Within it passes in training mode may measure statistics; afterwards all buffers are as they were before."""
    before = {name: buffer.clone() for name, buffer in net.named_buffers()}
    try:
        yield
    finally:
        with torch.no_grad():
            for name, buffer in net.named_buffers():
                buffer.copy_(before[name])


def keep_frozen_statistics(net: nn.Module) -> None:
    """Put those BatchNorm layers into eval mode whose parameters are all frozen: they normalise as they did before."""
    for norm in net.modules():
        if isinstance(norm, _BatchNorm | SplitBatchNorm):
            parameters = list(norm.parameters())
            if parameters and not any(p.requires_grad for p in parameters):
                norm.eval()


def check_batch_size(net: nn.Module, batch_size: int) -> None:
    """Refuse to normalise over a batch of one."""
    if batch_size == 1 and any(isinstance(module, _BatchNorm | SplitBatchNorm) for module in net.modules()):
        raise UserError("train.batch_size=1: BatchNorm cannot normalise a batch of one; use 2 or more")
