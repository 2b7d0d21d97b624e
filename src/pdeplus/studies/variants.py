"""Variants of methods: those with rows of their own in the paper's tables, its ablations, and the records since."""

from collections.abc import Mapping
from typing import Any

from .._lib import registry
from ..training.config import Part

VARIANTS: Mapping[str, tuple[str, Mapping[str, Any]]] = {
    "autoaug_imagenet": ("autoaug", {"policy": "imagenet"}),
    "augmix_jsd": ("augmix", {"jsd": 12.0}),
    "en_resnet_pgd": ("en_resnet", {"adversarial": True}),
    "gaussian_strong": ("gaussian", {"sigma": 0.1, "share": 0.5}),
    "pde_plus_one_augmentation": ("pde_plus", {"augmentor": "rotation"}),
    "pde_plus_without_mixture": ("pde_plus", {"mixture": False}),
    "pgd_l2": ("pgd", {"norm": "l2"}),
    "rlat_augmix": ("rlat", {"augmentor": "augmix"}),
    "rlat_augmix_jsd": ("rlat", {"augmentor": "augmix", "jsd": 12.0}),
    "rse_fixed": ("rse", {"first": 0.1, "samples": 3}),
}
"""Name, method and options of each."""


def named_methods() -> dict[str, Part]:
    """Every method with its defaults, by its name, and the variants that have a name of their own; sorted."""
    plain = {name: Part(name=name) for name in registry.names("methods")}
    named = {name: Part(name=method, options=dict(options)) for name, (method, options) in VARIANTS.items()}
    return dict(sorted((plain | named).items()))


def settings(name: str) -> list[str]:
    """A method or a variant as `key=value` overrides of a preset."""
    part = named_methods()[name]
    shown = [f"method.{key}={_toml(value)}" for key, value in part.options.items()]
    return [f"method.name={part.name}", *shown]


def _toml(value: object) -> str:
    return {True: "true", False: "false"}[value] if isinstance(value, bool) else str(value)
