"""DeepAugment (Hendrycks et al., 2021): images passed through a network with distorted weights and activations.

The network is image-to-image, a dictionary of weights, and learns to reconstruct; it is then distorted at random.
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import ClassVar, final

import torch
from torch import Tensor
from torch.nn import functional as F

from .._lib.files import encode_weights, read_weights, write_file
from .._lib.seeds import generator_for
from ..errors import UserError, check_least
from .base import Augmentor, integers, normal, signs, uniform

Weights = Mapping[str, Tensor]


@final
@dataclass(frozen=True, kw_only=True)
class DeepAugment(Augmentor):
    """Reconstruct each group of images with a network distorted at random in its own way, cut to [0, 1].

    The file of weights is read once and never changed.
    """

    applies: ClassVar[tuple[str, ...]] = ("distorted_network",)
    weights: str = ""
    """File with the weights of a trained image-to-image network; `DeepAugment.trained_on` makes one."""
    group: int = 8
    """Images that share one distortion."""

    def __post_init__(self) -> None:
        check_least("group", self.group, 1)

    @classmethod
    def trained_on(cls, images: Tensor, path: str | Path, *, steps: int = 1000, seed: int = 0) -> "DeepAugment":
        """Train the network on images (N×C×H×W: floats in [0, 1] or bytes), save it at `path` and use it."""
        save(train(images, steps=steps, seed=seed), Path(path))
        return cls(weights=str(path))

    @torch.no_grad()
    def __call__(self, x: Tensor, generator: torch.Generator | None = None) -> Tensor:
        weights = self._loaded(x)
        order = torch.randperm(len(x), generator=generator, device=x.device)
        outs = list[Tensor]()
        for part in torch.split(x.float().index_select(0, order), self.group):
            changed = distort_weights(weights, generator)
            outs.append(reconstruct(changed, part, lambda features: distort_features(features, generator)))
        done = torch.cat(outs).index_select(0, order.argsort()) if outs else x
        return done.clamp(0, 1).to(x.dtype)

    def _loaded(self, x: Tensor) -> Weights:
        if not self.weights:
            raise UserError(
                "weights='' names no trained network: DeepAugment.trained_on(images, 'deep.safetensors') makes one, "
                "then set weights='deep.safetensors'"
            )
        path = Path(self.weights)
        weights = load(path, path.stat().st_mtime_ns if path.exists() else 0)
        channels = weights["encode.weight"].shape[1]
        if channels != x.shape[1]:
            raise UserError(f"weights={self.weights!r} are for {channels} channels, images have {x.shape[1]}")
        return {name: w.to(x.device) for name, w in weights.items()}


def distort_weights(weights: Weights, generator: torch.Generator | None) -> dict[str, Tensor]:
    """A copy in which about half of the kernels are changed: zeros, flipped signs, rescaled channels, or noise."""
    like = next(iter(weights.values()))
    kind = int(integers(1, 0, 4, like, generator))
    changed = dict(weights)
    for name in sorted(weights):  # a file gives them back in any order, and the draws must not depend on it
        if name.endswith("weight") and float(uniform(1, 0, 1, like, generator)) < 0.5:
            changed[name] = _distort_kernel(weights[name], kind, generator)
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
        factor = 1 + 0.5 * strength * uniform(len(w), 0, 1, w, generator) * signs(len(w), w, generator)
        return w * factor.view(-1, 1, 1, 1)
    return w + 0.3 * strength * w.std() * normal(*w.shape, like=w, generator=generator)


def reconstruct(weights: Weights, x: Tensor, distort: Callable[[Tensor], Tensor] | None = None) -> Tensor:
    """B×C×H×W → the same, about `x` after training; `distort` changes the features after each residual block."""
    features = first = _convolve(weights, "encode", x)
    for i in range(sum(name.endswith("first.weight") for name in weights)):
        inner = F.relu(_convolve(weights, f"block{i}.first", features))
        features = features + _convolve(weights, f"block{i}.second", inner)
        features = distort(features) if distort else features
    return _convolve(weights, "decode", features + first)


def _convolve(weights: Weights, name: str, x: Tensor) -> Tensor:
    return F.conv2d(x, weights[f"{name}.weight"], weights[f"{name}.bias"], padding=1)


def initial_weights(channels: int, width: int, blocks: int, generator: torch.Generator) -> dict[str, Tensor]:
    """Normal numbers of variance 1 / inputs; a residual block starts small."""
    shapes = {"encode": (width, channels), "decode": (channels, width)}
    shapes |= {f"block{i}.{part}": (width, width) for i in range(blocks) for part in ("first", "second")}
    weights: dict[str, Tensor] = {}
    for name, (outputs, inputs) in shapes.items():
        std = (0.1 if name.endswith("second") else 1.0) / math.sqrt(9 * inputs)
        weights[f"{name}.weight"] = std * torch.randn(outputs, inputs, 3, 3, generator=generator)
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


@lru_cache(maxsize=4)
def load(path: Path, changed: int) -> Weights:
    """What `save` wrote, as the file was when last `changed`."""
    weights = read_weights(path)
    if "encode.weight" not in weights:
        raise UserError(f"weights={str(path)!r} holds no image-to-image network; DeepAugment.trained_on makes one")
    return weights
