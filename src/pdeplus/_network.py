"""Small helpers for any network."""

from collections.abc import Generator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from ._errors import UserError


@contextmanager
def evaluating(net: nn.Module) -> Generator[None]:
    """Eval mode within; afterwards each module is in the mode it was in."""
    training = [module for module in net.modules() if module.training]
    for module in training:
        module.training = False
    try:
        yield
    finally:
        for module in training:
            module.training = True


def logits_of(output: Any) -> Tensor:
    """The logits of a network's output: the tensor itself, or its `.logits` (Hugging Face)."""
    logits = getattr(output, "logits", output)
    if not isinstance(logits, Tensor):
        raise UserError(f"the network returns {type(output).__name__}; a tensor or .logits is needed")
    return logits


def memory_layout(net: nn.Module, channels_last: bool, device: torch.device) -> torch.memory_format:
    """Channels-last if wanted, but on a CPU never for 1×1 convolutions of fewer than 8 channels.

    The weight gradient of such a convolution (4 to 8 channels, torch 2.13, AVX2) can wait for ever.
    """
    narrow = any(isinstance(m, nn.Conv2d) and m.kernel_size == (1, 1) and m.in_channels < 8 for m in net.modules())
    usable = channels_last and not (narrow and device.type == "cpu")
    return torch.channels_last if usable else torch.contiguous_format
