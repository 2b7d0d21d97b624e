"""Input normalisation that a network carries: it takes images in [0, 1] and computes with (x − mean) / std.

Mean and standard deviation are buffers of the network itself, which a forward pre-hook reads: names of modules and
parameters stay as they were, and copies, compiled networks and exported files normalise too.
"""

import inspect
import math
from collections.abc import Callable, Sequence
from typing import Any, get_type_hints

import torch
from torch import Tensor, nn

from ..errors import UserError

MEAN, STD = "input_mean", "input_std"
"""Names of the two buffers, each of shape channels×1×1."""
Build = Callable[..., nn.Module]


def normalise(network: nn.Module, mean: Sequence[float], std: Sequence[float]) -> nn.Module:
    """Let `network` normalise its input, in place: mean and std hold one number for each channel of the images."""
    if hasattr(network, MEAN) or hasattr(network, STD):
        raise UserError(f"{type(network).__name__} has {MEAN!r} or {STD!r} already; it cannot be normalised again")
    for name, values in ((MEAN, mean), (STD, std)):
        network.register_buffer(name, torch.tensor(values, dtype=torch.float32).view(-1, 1, 1))
    network.register_forward_pre_hook(_normalise_input)
    return network


def _normalise_input(network: nn.Module, args: tuple[Any, ...]) -> tuple[Any, ...]:
    mean, std = network.get_buffer(MEAN), network.get_buffer(STD)
    x: Tensor = args[0]
    return (x - mean) / std, *args[1:]


def with_normalisation(build: Build) -> Build:
    """The builder of a network, with the options `mean` and `std` besides its own: both lists of numbers, or neither.

    One that has an option of either name already is left as it is.
    """
    signature = inspect.signature(build)
    if {"mean", "std"} & set(signature.parameters):
        return build

    def build_normalised(
        *, mean: tuple[float, ...] | None = None, std: tuple[float, ...] | None = None, **options: Any
    ) -> nn.Module:
        network = build(**options)
        if mean is None and std is None:
            return network
        return normalise(network, *_checked(mean, std, channels=options["channels"]))

    added = [p for p in inspect.signature(build_normalised).parameters.values() if p.name != "options"]
    hints = get_type_hints(build.__init__ if inspect.isclass(build) else build)
    build_normalised.__signature__ = signature.replace(parameters=[*signature.parameters.values(), *added])  # type: ignore[reportFunctionMemberAccess]
    build_normalised.__annotations__ = hints | {p.name: p.annotation for p in added}
    build_normalised.__module__, build_normalised.__doc__ = build.__module__, build.__doc__
    return build_normalised


def _checked(
    mean: tuple[float, ...] | None, std: tuple[float, ...] | None, *, channels: int
) -> tuple[tuple[float, ...], tuple[float, ...]]:
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
    return mean, std
