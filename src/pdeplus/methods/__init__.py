"""Training methods, one file a name; each file has one final `Method`."""

from collections.abc import Mapping
from typing import Any

IN_STAGES: Mapping[str, Any] = {
    "views": "original+augmented",
    "jsd": 6.0,
    "placement": "stage",
    "share": 1.0,
    "diffuse_after": 0.0,
    "scale_from": "given",
    "scale_per": "element",
    "diffusion_lr": 0.001,
}
"""PDE+ nearer the paper: originals and augmentations, all diffused after every stage from the start; with agreement."""
VARIANTS: Mapping[str, tuple[str, Mapping[str, Any]]] = {
    "autoaug_imagenet": ("autoaug", {"policy": "imagenet"}),
    "augmix_jsd": ("augmix", {"jsd": 12.0}),
    "en_resnet_pgd": ("en_resnet", {"adversarial": True}),
    "gaussian_strong": ("gaussian", {"sigma": 0.1, "share": 0.5}),
    "pde_plus_directional": ("pde_plus", {**IN_STAGES, "covariance": "directional"}),
    "pde_plus_one_augmentation": ("pde_plus", {**IN_STAGES, "augmentor": "rotation"}),
    "pde_plus_stages": ("pde_plus", IN_STAGES),
    "pde_plus_without_mixture": ("pde_plus", {**IN_STAGES, "mixture": False}),
    "pgd_l2": ("pgd", {"norm": "l2"}),
    "rlat_augmix": ("rlat", {"augmentor": "augmix"}),
    "rlat_augmix_jsd": ("rlat", {"augmentor": "augmix", "jsd": 12.0}),
    "rse_fixed": ("rse", {"first": 0.1, "samples": 3}),
}
"""Names for a method with certain options, wherever a method is named: the method, and those options."""
