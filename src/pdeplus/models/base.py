"""What all networks share: options, sizes that none can have, and where ADD blocks go."""

from collections.abc import Sequence

from torch import nn

from ..errors import UserError
from .normalise import Build, with_normalisation

SMALLEST_IMAGE = 8


def complete(build: Build) -> Build:
    """A model file's `build` with the options that every network has."""
    return with_normalisation(build)


def stage_names(model: nn.Module) -> list[str]:
    """Module names of the model's `stages`, each a Sequential of blocks; refuses a model that names none."""
    stages: tuple[str, ...] = getattr(model, "stages", ())
    if not stages:
        raise UserError(
            f"{type(model).__name__} names no stages; give the module names, e.g. method.placement=['layer1','layer2']"
        )
    return list(stages)


def block_names(model: nn.Module) -> list[str]:
    """Module names of all blocks of all stages."""
    return [f"{stage}.{i}" for stage in stage_names(model) for i, _ in enumerate(model.get_submodule(stage).children())]


def placed(model: nn.Module, placement: str | Sequence[str]) -> list[str]:
    """Module names that a placement means: each "stage", each "block", or those it names."""
    if placement == "stage":
        return stage_names(model)
    return block_names(model) if placement == "block" else list(placement)


def check_sizes(*, classes: int, channels: int, width: int) -> None:
    """Refuse sizes no network can have."""
    for name, value, least in (("classes", classes, 2), ("channels", channels, 1), ("width", width, 1)):
        if value < least:
            raise UserError(f"model.{name}={value} must be at least {least}")


def check_image_size(size: int) -> None:
    """Refuse images that the networks' three halvings would reduce to nothing."""
    if size < SMALLEST_IMAGE:
        raise UserError(f"images of {size}×{size} are too small: the least is {SMALLEST_IMAGE}×{SMALLEST_IMAGE}")
