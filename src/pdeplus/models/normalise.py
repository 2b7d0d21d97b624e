"""Input normalisation that a network carries: it takes images in [0, 1] and computes with (x − mean) / std.

Mean and standard deviation are buffers of the network itself, which a forward pre-hook reads: names of modules and
parameters stay as they were, and copies, compiled networks and exported files normalise too.
"""

import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from ..errors import UserError

MEAN, STD = "input_mean", "input_std"
"""Names of the two buffers, each of shape channels×1×1."""


def normalise(
    network: nn.Module, channels: int, mean: Sequence[float] | None = None, std: Sequence[float] | None = None
) -> nn.Module:
    """Let `network` normalise its input, in place: mean and std hold one number for each channel of the images."""
    if mean is None or std is None:
        there, missing = ("std", "mean") if mean is None else ("mean", "std")
        raise UserError(f"model.{there} is set and model.{missing} is not; set both or neither")
    for name, values in (("mean", mean), ("std", std)):
        if len(values) != channels:
            raise UserError(f"model.{name}={list(values)} must hold one number for each channel: {channels}")
        if not all(map(math.isfinite, values)):
            raise UserError(f"model.{name}={list(values)} must hold finite numbers")
    if min(std) <= 0:
        raise UserError(f"model.std={list(std)} must be above 0")
    if hasattr(network, MEAN) or hasattr(network, STD):
        raise UserError(f"{type(network).__name__} has {MEAN!r} or {STD!r} already; it cannot be normalised again")
    for name, values in ((MEAN, mean), (STD, std)):
        network.register_buffer(name, torch.tensor(values, dtype=torch.float32).view(-1, 1, 1))
    network.register_forward_pre_hook(_normalise_input)
    return network


def normalised(network: nn.Module, x: Tensor) -> Tensor:
    """Images as the network's first layer sees them: normalised where it normalises its input."""
    return (x - network.get_buffer(MEAN)) / network.get_buffer(STD) if hasattr(network, MEAN) else x


def _normalise_input(network: nn.Module, args: tuple[Any, ...]) -> tuple[Any, ...]:
    return normalised(network, args[0]), *args[1:]
