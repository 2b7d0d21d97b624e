"""What all networks share: how they are built, sizes that none can have, and where ADD blocks go."""

import inspect
from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from torch import Tensor, nn

from .._lib.registry import check_options, find
from ..errors import UserError
from .normalise import normalise, normalised

SMALLEST_IMAGE = 8
INPUT_OPTIONS = {"mean": tuple[float, ...] | None, "std": tuple[float, ...] | None}
"""Options of every network besides its own: the normalisation of its input."""


def build_model(name: str, options: Mapping[str, Any], *, classes: int, channels: int) -> nn.Module:
    """The named network; with the options `mean` and `std` it normalises its input."""
    build, given = find("models", name), {"classes": classes, "channels": channels}
    checked = check_options(build, options, where="model", hidden=given, common=INPUT_OPTIONS)
    own = {key: checked.pop(key) for key in inspect.signature(build).parameters if key in checked}
    network = build(**own, **given)
    return normalise(network, channels, **checked) if checked else network


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


def stage_names(model: nn.Module) -> list[str]:
    """Module names of the model's `stages`, each a Sequential of blocks; refuses a model that names none."""
    stages: tuple[str, ...] = getattr(model, "stages", ())
    if not stages:
        raise UserError(
            f"{type(model).__name__} names no stages; give the module names, e.g. method.placement=['layer1','layer2']"
        )
    return list(stages)


def placed(model: nn.Module, placement: str | Sequence[str]) -> list[str]:
    """Module names that a placement means: each "stage", each "block" of all stages, or those it names."""
    if placement == "stage":
        return stage_names(model)
    if placement == "block":
        stages = {stage: model.get_submodule(stage) for stage in stage_names(model)}
        return [f"{stage}.{name}" for stage, blocks in stages.items() for name, _ in blocks.named_children()]
    return list(placement)


def stage(block: Callable[[int, int, int], nn.Module], inputs: int, outputs: int, stride: int, n: int) -> nn.Sequential:
    """`n` blocks in a row, of which the first changes the number of channels and the resolution."""
    return nn.Sequential(block(inputs, outputs, stride), *(block(outputs, outputs, 1) for _ in range(n - 1)))


def check_sizes(*, classes: int, channels: int, **widths: int) -> None:
    """Refuse sizes no network can have."""
    for name, value in {"classes": classes, "channels": channels, **widths}.items():
        least = 2 if name == "classes" else 1
        if value < least:
            raise UserError(f"model.{name}={value} must be at least {least}")


def check_image_size(size: int) -> None:
    """Refuse images that the networks' three halvings would reduce to nothing."""
    if size < SMALLEST_IMAGE:
        raise UserError(f"images of {size}×{size} are too small: the least is {SMALLEST_IMAGE}×{SMALLEST_IMAGE}")
