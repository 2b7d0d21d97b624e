"""Mixup (Zhang et al., 2018): convex combinations of images, and of their labels' losses."""

from typing import NamedTuple

import torch
from torch import Tensor

from .._errors import UserError
from ._random import beta


class Mixed(NamedTuple):
    """Mixed images: the loss is λ · loss(targets) + (1 - λ) · loss(partners)."""

    images: Tensor
    partners: Tensor
    """The targets of the images that were mixed in."""
    share: Tensor
    """λ, the share of an image's own content: one number, or one per image."""


def mixup(
    x: Tensor, targets: Tensor, alpha: float, generator: torch.Generator | None = None, *, per_sample: bool = False
) -> Mixed:
    """λ x + (1 - λ) x[permutation] with λ ~ Beta(alpha, alpha).

    Args:
        x: float B×C×H×W.
        targets: B×… labels, of any type.
        alpha: positive; 1 draws λ uniformly, less draws it nearer to 0 and 1.
        generator: source of all randomness, on the device of `x`.
        per_sample: draw λ for each image instead of once for the batch (the published recipe).
    """
    if not alpha > 0:
        raise UserError(f"alpha={alpha} must be greater than 0")
    permutation = torch.randperm(len(x), generator=generator, device=x.device)
    share = beta(len(x) if per_sample else 1, alpha, x, generator).to(x.dtype)
    images = torch.lerp(x[permutation], x, share.view(-1, 1, 1, 1))
    return Mixed(images, targets[permutation], share if per_sample else share.squeeze(0))
