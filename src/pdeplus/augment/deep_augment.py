"""DeepAugment (Hendrycks et al., 2021): images passed through a network with distorted weights and activations."""

from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import final

import torch
from torch import Tensor

from .._errors import UserError
from ._distortions import distort_features, distort_weights
from ._image_network import Weights, channels_of, load, reconstruct, save, train
from ._overlaps import corruptions_in
from .base import Augmentor


@final
@dataclass(frozen=True, kw_only=True)
class DeepAugment(Augmentor):
    """Reconstruct each group of images with a network distorted at random in its own way, cut to [0, 1].

    The file of weights is read once and never changed.
    """

    weights: str = ""
    """File with the weights of a trained image-to-image network; `DeepAugment.trained_on` makes one."""
    group: int = 8
    """Images that share one distortion."""

    def __post_init__(self) -> None:
        if self.group < 1:
            raise UserError(f"group={self.group} must be at least 1")

    @classmethod
    def trained_on(cls, images: Tensor, path: str | Path, *, steps: int = 1000, seed: int = 0) -> "DeepAugment":
        """Train the network on images (N×C×H×W: floats in [0, 1] or bytes), save it at `path` and use it."""
        save(train(images, steps=steps, seed=seed), Path(path))
        return cls(weights=str(path))

    @property
    def overlaps(self) -> tuple[str, ...]:
        return corruptions_in(("distorted_network",))

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
        weights = _load(path, path.stat().st_mtime_ns if path.exists() else 0)
        if channels_of(weights) != x.shape[1]:
            raise UserError(
                f"weights={self.weights!r} are for {channels_of(weights)} channels, images have {x.shape[1]}"
            )
        return {name: w.to(x.device) for name, w in weights.items()}


@lru_cache(maxsize=4)
def _load(path: Path, changed: int) -> Weights:
    """The file as it was when last `changed`."""
    return load(path)
