"""A small image-to-image network: residual blocks at full resolution, as in networks that sharpen images.

The network is a function of its weights, a dictionary of tensors, so that a distorted copy disturbs no one else.
"""

import math
from collections.abc import Callable, Mapping
from pathlib import Path

import torch
from torch import Tensor
from torch.nn import functional as F

from .._checkpoint import encode_weights, read_weights, write_file
from .._errors import UserError
from .._seeds import generator_for

Weights = Mapping[str, Tensor]
Distort = Callable[[Tensor], Tensor]


def reconstruct(weights: Weights, x: Tensor, distort: Distort | None = None) -> Tensor:
    """B×C×H×W → the same, about `x` after training; `distort` changes the features after each residual block."""
    features = first = _convolve(weights, "encode", x)
    for i in range(_blocks(weights)):
        inner = F.relu(_convolve(weights, f"block{i}.first", features))
        features = features + _convolve(weights, f"block{i}.second", inner)
        features = distort(features) if distort else features
    return _convolve(weights, "decode", features + first)


def channels_of(weights: Weights) -> int:
    """The number of image channels that the network takes."""
    return weights["encode.weight"].shape[1]


def initial_weights(channels: int, width: int, blocks: int, generator: torch.Generator) -> dict[str, Tensor]:
    """Normal numbers of variance 1 / inputs; a residual block starts small."""
    shapes = {"encode": (width, channels), "decode": (channels, width)}
    shapes |= {f"block{i}.{part}": (width, width) for i in range(blocks) for part in ("first", "second")}
    weights: dict[str, Tensor] = {}
    for name, (outputs, inputs) in shapes.items():
        scale = (0.1 if name.endswith("second") else 1.0) / math.sqrt(9 * inputs)
        weights[f"{name}.weight"] = scale * torch.randn(outputs, inputs, 3, 3, generator=generator)
        weights[f"{name}.bias"] = torch.zeros(outputs)
    return weights


def train(
    images: Tensor,
    *,
    steps: int = 1000,
    batch: int = 32,
    width: int = 24,
    blocks: int = 4,
    lr: float = 2e-3,
    seed: int = 0,
) -> dict[str, Tensor]:
    """Weights that reconstruct `images` (N×C×H×W: floats in [0, 1] or bytes); the same seed gives the same.

    Mean squared error, Adam, the learning rate falling to zero along a cosine.
    """
    if images.dim() != 4 or not len(images) or steps < 1:
        raise UserError(f"images of shape {tuple(images.shape)} and steps={steps}: need N×C×H×W with N and steps ≥ 1")
    generator = generator_for(seed, "image network")
    weights = initial_weights(images.shape[1], width, blocks, generator)
    weights = {name: w.to(images.device).requires_grad_() for name, w in weights.items()}
    optimizer = torch.optim.Adam(weights.values(), lr=lr)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, steps)
    for _ in range(steps):
        chosen = torch.randint(0, len(images), (batch,), generator=generator).to(images.device)
        x = images[chosen].float() / (1 if images.is_floating_point() else 255)
        optimizer.zero_grad()
        F.mse_loss(reconstruct(weights, x), x).backward()
        optimizer.step()
        schedule.step()
    return {name: w.detach().cpu() for name, w in weights.items()}


def save(weights: Weights, path: Path) -> None:
    """Write the weights as safetensors."""
    write_file(path, encode_weights(dict(weights)))


def load(path: Path) -> dict[str, Tensor]:
    """Read what `save` wrote."""
    weights = read_weights(path)
    if "encode.weight" not in weights:
        raise UserError(f"weights={str(path)!r} holds no image-to-image network; DeepAugment.trained_on makes one")
    return weights


def _convolve(weights: Weights, name: str, x: Tensor) -> Tensor:
    return F.conv2d(x, weights[f"{name}.weight"], weights[f"{name}.bias"], padding=1)


def _blocks(weights: Weights) -> int:
    return sum(name.endswith("first.weight") for name in weights)
