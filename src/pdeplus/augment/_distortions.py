"""DeepAugment's random distortions of a network's weights and of its features.

Each draws one kind and its strength; nothing is changed in place.
"""

from collections.abc import Mapping

import torch
from torch import Tensor

from ._random import integers, normal, signs, uniform


def distort_weights(weights: Mapping[str, Tensor], generator: torch.Generator | None) -> dict[str, Tensor]:
    """A copy in which about half of the kernels are changed: zeros, flipped signs, other scales, or noise."""
    like = next(iter(weights.values()))
    kind = int(integers(1, 0, 4, like, generator))
    changed = dict(weights)
    for name, w in weights.items():
        if name.endswith("weight") and float(uniform(1, 0, 1, like, generator)) < 0.5:
            changed[name] = _distort_kernel(w, kind, generator)
    return changed


def distort_features(x: Tensor, generator: torch.Generator | None) -> Tensor:
    """B×C×H×W, half of the time changed: dropped, permuted or rescaled channels, or shifted positions."""
    kind = int(integers(1, 0, 8, x, generator))
    channels = x.shape[1]
    if kind == 0:
        kept = uniform(channels, 0, 1, x, generator) > 0.1
        return x * kept.view(1, -1, 1, 1)
    if kind == 1:
        other = x[:, torch.randperm(channels, generator=generator, device=x.device)]
        return torch.lerp(x, other, float(uniform(1, 0, 0.5, x, generator)))
    if kind == 2:
        return x * uniform(channels, 0.5, 1.5, x, generator).view(1, -1, 1, 1)
    if kind == 3:
        down, right = (int(step) for step in integers(2, -1, 2, x, generator))
        return x.roll((down, right), (2, 3))
    return x


def _distort_kernel(w: Tensor, kind: int, generator: torch.Generator | None) -> Tensor:
    """Kind 0: some weights zero; 1: some signs flipped; 2: output channels rescaled; 3: noise."""
    strength = float(uniform(1, 0, 1, w, generator))
    chosen = (uniform(w.numel(), 0, 1, w, generator) < 0.1 * strength).view_as(w)
    if kind == 0:
        return w.masked_fill(chosen, 0)
    if kind == 1:
        return torch.where(chosen, -w, w)
    if kind == 2:
        scale = 1 + 0.5 * strength * uniform(len(w), 0, 1, w, generator) * signs(len(w), w, generator)
        return w * scale.view(-1, 1, 1, 1)
    return w + 0.3 * strength * w.std() * normal(*w.shape, like=w, generator=generator)
