"""Noisy passes of a network, run the slow way."""

import torch
from torch import Tensor, nn

import pdeplus as pp


@torch.no_grad()
def one_by_one(net: nn.Module, x: Tensor, samples: int, generator: torch.Generator) -> Tensor:
    """Samples×B×classes, each pass by itself in an open context."""
    logits = list[Tensor]()
    for _ in range(samples):
        with pp.diffusion(net, generator=generator):
            logits.append(net(x))
    return torch.stack(logits)
