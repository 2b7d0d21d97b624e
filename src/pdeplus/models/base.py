"""What all networks share: how they are built, sizes that none can have, and where ADD blocks go."""

import copy
import hashlib
import inspect
from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from .._lib.memory import machine_memory
from .._lib.registry import check_options, find
from ..core.network import device_of
from ..core.placement import blocks_of, stages_of
from ..errors import UserError, check_least
from ._libraries import Facts, load_start
from .normalise import normalise, normalised

SMALLEST_IMAGE = 8
INPUT_OPTIONS = {"mean": tuple[float, ...] | None, "std": tuple[float, ...] | None, "weights": str | None}
"""Options of every network besides its own: the normalisation of its input, and a file of weights to start from."""
TRAINING_BYTES = 12
"""Of a parameter in training: itself, its gradient and its momentum."""
GIVEN = ("classes", "channels", "facts")
"""Arguments of a `build` that are no options: the data set, or the library that a network comes from, gives them."""


def facts_of(name: str, options: Mapping[str, Any]) -> Facts | None:
    """What the library behind a URI says of the network's input; None for networks of other names."""
    facts = getattr(find("models", name), "facts", None)
    return None if facts is None else facts(options)


def build_model(
    name: str,
    options: Mapping[str, Any],
    *,
    classes: int,
    channels: int,
    facts: Facts | None = None,
    start: bool = True,
) -> nn.Module:
    """The named network; with the options `mean` and `std`, or by the facts of its library, it normalises its input.

    Without `start` no weights are fetched or read: neither those of the option `weights` nor, as a network's own option
    `pretrained` is then false, those of a library. That is all that loading a trained network needs, with the `facts`
    that it was first built by.
    """
    build = find("models", name)
    checked = check_options(build, options, where="model", hidden=GIVEN, common=INPUT_OPTIONS)
    weights, parameters = checked.pop("weights", None), inspect.signature(build).parameters
    own = {key: checked.pop(key) for key in parameters if key in checked}
    given: dict[str, Any] = {"classes": classes, "channels": channels}
    if "pretrained" in parameters and (weights or not start):
        own["pretrained"] = False
    if "facts" in parameters:
        facts = facts or facts_of(name, options)
        assert facts is not None
        given["facts"] = facts
    if "." not in name and facts is None:
        check_memory(name, lambda: build(**own, **given))
    network = build(**own, **given)
    if start and weights:
        load_start(network, Path(weights).expanduser())
    if facts is not None:
        _name_stages(network, torch.zeros(1, channels, facts.size, facts.size))
        checked = dict(zip(("mean", "std"), facts.in_channels(channels), strict=True)) | checked
    return normalise(network, channels, **checked) if checked else network


def _name_stages(network: nn.Module, example: Tensor) -> None:
    """Let a network name its stages, in place, where one pass of an example tells them."""
    with suppress(UserError):
        found = stages_of(network, example)
        if not hasattr(network, "stages"):
            network.stages = tuple(found)  # type: ignore[reportArgumentType]


def given_model(model: nn.Module, shape: Sequence[int]) -> nn.Module:
    """A copy of a user's own network that names its stages, where one pass of a C×H×W image tells them."""
    network = copy.deepcopy(model)
    _name_stages(network, torch.zeros(1, *shape, device=device_of(model)))
    return network.cpu()


def mark_of(model: nn.Module) -> str:
    """A short hash that tells networks apart by the names, shapes and values of their weights."""
    digest = hashlib.sha256()
    for name, tensor in model.state_dict().items():
        digest.update(f"{name}{tuple(tensor.shape)}".encode())
        digest.update(tensor.detach().cpu().contiguous().view(-1).view(torch.uint8).numpy().tobytes())
    return digest.hexdigest()[:8]


class FitsImages(nn.Module):
    """A part of a network that is set by training images before the first step, and stored with the weights."""

    @abstractmethod
    def fit_images(self, images: Tensor) -> None:
        """Learn from some training images as the network's first layer sees them, float N×C×H×W."""


def fit_images(network: nn.Module, images: Callable[[], Tensor]) -> None:
    """Set those parts of a network that training images set; without any, the images are not asked for."""
    parts = [module for module in network.modules() if isinstance(module, FitsImages)]
    if parts:
        given = normalised(network, images())
        for part in parts:
            part.fit_images(given)


def placed(model: nn.Module, placement: str | Sequence[str]) -> list[str]:
    """Places that a placement means: each "stage", each "block" of all stages, the "input", or those it names."""
    if placement == "input":
        return ["input"]
    if placement == "stage":
        return stages_of(model)
    return blocks_of(model) if placement == "block" else list(placement)


def stage(block: Callable[[int, int, int], nn.Module], inputs: int, outputs: int, stride: int, n: int) -> nn.Sequential:
    """`n` blocks in a row, of which the first changes the number of channels and the resolution."""
    return nn.Sequential(block(inputs, outputs, stride), *(block(outputs, outputs, 1) for _ in range(n - 1)))


def check_sizes(*, classes: int, channels: int, **widths: int) -> None:
    """Refuse sizes no network can have."""
    for name, value in {"classes": classes, "channels": channels, **widths}.items():
        check_least(f"model.{name}", value, 2 if name == "classes" else 1)


def check_memory(name: str, build: Callable[[], nn.Module]) -> None:
    """Refuse a network whose training the machine's memory cannot hold; it is built without any, to be counted."""
    with torch.device("meta"):
        numbers = sum(p.numel() for p in build().parameters())
    least, there = numbers * TRAINING_BYTES / 1e9, machine_memory() / 1e9
    if least > there:
        told = f"{numbers / 1e6:,.0f} million parameters, whose training takes {least:,.0f} GB and more"
        raise UserError(
            f"the network {name} would have {told}; this machine has {there:.0f} GB: choose a smaller model.width"
        )


def check_image_size(size: int) -> None:
    """Refuse images that the networks' three halvings would reduce to nothing."""
    if size < SMALLEST_IMAGE:
        raise UserError(f"images of {size}×{size} are too small: the least is {SMALLEST_IMAGE}×{SMALLEST_IMAGE}")
