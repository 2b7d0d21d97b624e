"""torchvision's networks: `torchvision:resnet18`, with the input that its weights were made for."""

from collections.abc import Mapping
from typing import Any

from torch import hub, nn

from .._lib.registry import unknown
from ..errors import UserError
from ._libraries import Build, Facts, library, not_fetched, replace_head, unknown_name, with_facts

COLOURS = 3
"""Channels that all of torchvision's networks take."""


def named(name: str) -> Build:
    """The builder of torchvision's network of this name; after a dot, which of its weights (default: its best)."""
    uri = f"torchvision:{name}"

    def build(*, classes: int, channels: int, facts: Facts, pretrained: bool = True) -> nn.Module:
        models, weights = library("torchvision.models", uri), _weights(name)
        if channels != COLOURS:
            raise UserError(f"{uri} takes images of {COLOURS} channels, and the data have {channels}")
        if not pretrained:
            return models.get_model(name.partition(".")[0], weights=None, num_classes=classes)
        try:
            network = models.get_model(name.partition(".")[0], weights=weights)
        except (OSError, RuntimeError) as error:
            way_out = f"fetch {weights.url} into {hub.get_dir()}/checkpoints, or add ?pretrained=false"
            raise not_fetched(uri, error, way_out) from error
        return replace_head(network, classes, uri)

    return with_facts(build, lambda options: _facts(name, options), lambda: tuple(_weights(name).meta["categories"]))


def _facts(name: str, options: Mapping[str, Any]) -> Facts:
    shown = _weights(name).transforms()
    size = int(shown.crop_size[0])
    return Facts(
        size=size,
        mean=tuple(shown.mean),
        std=tuple(shown.std),
        crop=size / int(shown.resize_size[0]),
        interpolation="bicubic" if shown.interpolation.value == "bicubic" else "bilinear",
    )


def _weights(name: str) -> Any:
    """The chosen weights, which say what their input is; unknown names are answered with the known ones."""
    models = library("torchvision.models", f"torchvision:{name}")
    stem, _, chosen = name.partition(".")
    known = models.list_models(module=models)
    if stem not in known:
        raise unknown_name("torchvision", stem, known)
    offered = models.get_model_weights(stem)
    if chosen and chosen not in offered.__members__:
        raise unknown(f"torchvision:{stem}: the weights {chosen!r}", chosen, list(offered.__members__))
    return offered[chosen] if chosen else offered.DEFAULT
