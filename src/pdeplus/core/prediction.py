"""Prediction with noise, the paper's Algorithm 2: an average over diffused passes."""

from typing import Literal

import torch
from torch import Tensor, nn

from ..errors import UserError, check_choice
from ..functional import Prior, unit_noise
from .context import diffusion, no_diffusion
from .network import evaluating, logits_of
from .surgery import add_blocks_of

Average = Literal["probabilities", "logits"]
"""What noisy passes average."""
ROWS_AT_ONCE = 128
"""Images × samples in a noisy pass: more fall out of a processor's cache and gain nothing."""


@torch.no_grad()
def predict(
    net: nn.Module,
    x: Tensor,
    samples: int = 10,
    *,
    generator: torch.Generator | None = None,
    average: Average = "probabilities",
) -> Tensor:
    """Class probabilities, B×classes: an average over `samples` noisy passes (Algorithm 2).

    samples=0 is the plain network: no noise, no cost. The network is evaluated in eval mode and left in
    the mode it was in; equal generators give equal results.
    """
    if samples < 0:
        raise UserError(f"samples={samples} must be 0 (no noise) or more")
    check_choice("average", average, Average)
    if samples == 0:
        with evaluating(net), no_diffusion(net):
            return logits_of(net(x)).softmax(-1)
    return averaged(sample_logits(net, x, samples, generator=generator), average)


def averaged(logits: Tensor, average: Average) -> Tensor:
    """Class probabilities, B×classes, from the logits of several passes, samples×B×classes."""
    return logits.softmax(-1).mean(0) if average == "probabilities" else logits.mean(0).softmax(-1)


@torch.no_grad()
def sample_logits(net: nn.Module, x: Tensor, samples: int, *, generator: torch.Generator | None = None) -> Tensor:
    """The logits of each of `samples` ≥ 1 noisy passes, samples×B×classes.

    What comes before the first ADD block is the same in every pass and is computed once, as is its σ.
    """
    with evaluating(net):
        rows = max(ROWS_AT_ONCE // samples, 1)
        return torch.cat([_passes(net, part, samples, generator) for part in torch.split(x, rows)], 1)


def _passes(net: nn.Module, x: Tensor, samples: int, generator: torch.Generator | None) -> Tensor:
    """All passes as one long batch from the first ADD block on; one by one where the network cannot take that.

    Every block meets the noise that it would draw if the passes ran one after the other.
    """
    if samples == 1:
        with diffusion(net, generator=generator):
            return logits_of(net(x))[None]
    with diffusion(net, active=False) as trace:
        net(x[:1])  # one image's plain pass tells the shapes
    priors: dict[str, Prior] = {block.name: block.prior for block in add_blocks_of(net)}
    called = [(torch.cat([mean] * len(x)), name) for mean, name in zip(trace.means, trace.names, strict=True)]
    noise = [[unit_noise(h, generator, priors[name]) for h, name in called] for _ in range(samples)]
    try:
        with diffusion(net, passes=noise):
            logits = logits_of(net(x))
        return logits.view(samples, len(x), logits.shape[-1])
    except RuntimeError:  # a later layer joins these features with earlier ones, or the memory is too small
        pass
    every = list[Tensor]()
    for one in noise:
        with diffusion(net, passes=[one]):
            every.append(logits_of(net(x)))
    return torch.stack(every)
