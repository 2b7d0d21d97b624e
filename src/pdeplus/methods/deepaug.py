"""DeepAug (Hendrycks et al., 2021): cross-entropy on clean images and on images from a distorted network.

Idea: an image-to-image network whose weights and features are perturbed at random changes images in ways that no list
of operations contains, and keeps what the image shows.
Formula: CE(d(x)) on a share of the batch, CE(x) on the rest, where d is the image network with a distortion drawn
afresh for each group of images; x after crop and flip.
Source: Hendrycks et al., The many faces of robustness, ICCV 2021. There the distorted images are stored and added to
the data set, once for each of two image networks, which is a share of 2/3.
Defaults: share 0.5, one distorted copy beside each image; groups of 8; an image network of random features with a
fitted last layer, which reproduces its input but was not trained otherwise; `weights` takes a trained one.
Cost: one forward and one backward pass, as ERM; and a forward pass of the image network on the share.
Published: CIFAR-10 accuracy clean / corrupted: PreAct-ResNet-18 94.10 / 85.33 (Kireev et al., 2022; quoted in the PDE+
paper).
"""

import atexit
import shutil
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from typing import cast, final

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from .._lib.seeds import generator_for
from ..augment.base import Augmentor, uniform
from ..augment.deep_augment import DeepAugment, Weights, initial_weights, reconstruct, save
from ..data.base import Batch
from .base import Objective, WithViews, check_range


@final
@dataclass(frozen=True, kw_only=True)
class DeepAug(WithViews):
    """Training on DeepAugment's images among clean ones."""

    weights: str = ""
    """File of an image-to-image network that `DeepAugment.trained_on(images, file)` wrote; "" for an untrained one."""
    share: float = 0.5
    """Share of a batch's images that are distorted; the published data set has 2/3."""
    group: int = 8
    """Images that share one distortion."""

    def __post_init__(self) -> None:
        super().__post_init__()
        check_range(0, 1, share=self.share)
        check_range(1, 2**31, group=self.group)

    @property
    def label(self) -> str:
        return "DeepAug" + " (made network)" * (not self.weights) + "+JSD" * bool(self.jsd) + self.other_views

    @property
    def overlaps(self) -> tuple[str, ...]:
        """Test corruptions that the training images go through too."""
        return DeepAugment().overlaps

    def augmentor(self, channels: int) -> DeepAugment:
        """What is done to the share of the images."""
        return DeepAugment(weights=self.weights or untrained_network_file(channels), group=self.group)

    def prepare(self, model: nn.Module, example: Tensor) -> nn.Module:
        self.augmentor(example.shape[1])(example)  # a wrong file is answered now, and the first step takes no longer
        return model

    def objectives(self, model: nn.Module, batch: Batch) -> Iterator[Objective]:
        augmentor = partial(partly_augmented, augmentor=self.augmentor(batch.images.shape[1]), share=self.share)
        yield self.objective(model, self.drawn(batch, augmentor), batch)


def partly_augmented(x: Tensor, generator: torch.Generator, *, augmentor: Augmentor, share: float) -> Tensor:
    """Images of which that share, drawn at random, is augmented.

    The share is right on average in batches of any size: what is left of a whole number is rounded at random.
    """
    count = int(share * len(x) + uniform(1, 0, 1, x, generator).item())
    chosen = torch.randperm(len(x), generator=generator, device=x.device)[:count]
    return x.index_copy(0, chosen, augmentor(x[chosen], generator))


WIDTH, BLOCKS, TAPS = 24, 4, 9
"""Of the untrained network: channels, residual blocks, and the weights of a 3×3 kernel."""
RIDGE = 1e-3
"""Ridge of its least-squares fit."""
PICTURES, SIDE = 16, 24
"""It is fitted to so many random pictures of so many pixels a side."""
COARSENESS = (2, 5, 12, 24)
"""Cells a side of the grids that a random picture is mixed from."""


@cache
def untrained_network_file(channels: int) -> str:
    """A file with the weights of `untrained_network`, kept as long as the process runs."""
    folder = Path(tempfile.mkdtemp(prefix="pdeplus-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    save(untrained_network(channels), folder / "untrained.safetensors")
    return str(folder / "untrained.safetensors")


def untrained_network(channels: int) -> Weights:
    """Weights that reconstruct pictures of any kind within about a hundredth; the same on every call.

    The layers but the last are random; the last is the least-squares fit that gives random pictures back.
    """
    generator = generator_for(0, "made network")  # the seed's purpose: another name would give other weights
    weights, pictures = initial_weights(channels, WIDTH, BLOCKS, generator), random_pictures(channels, generator)
    columns = WIDTH * TAPS
    unfold = {"decode.weight": torch.eye(columns).view(columns, WIDTH, 3, 3), "decode.bias": torch.zeros(columns)}
    both = (reconstruct(weights | unfold, pictures), pictures)
    patches, wanted = (x.movedim(1, -1).flatten(0, 2).double() for x in both)  # a row for each pixel
    inputs = F.pad(patches, (0, 1), value=1.0)  # a column for the bias
    square = inputs.T @ inputs + RIDGE * len(inputs) * torch.eye(columns + 1)
    solved = cast(Tensor, torch.linalg.solve(square, inputs.T @ wanted)).float()
    kernel, bias = solved[:-1], solved[-1]
    return weights | {"decode.weight": kernel.T.reshape(channels, WIDTH, 3, 3), "decode.bias": bias}


def random_pictures(channels: int, generator: torch.Generator) -> Tensor:
    """Random pictures in [0, 1], N×C×H×W, each its own mixture of coarse and fine structure."""
    shares = torch.rand(len(COARSENESS), PICTURES, 1, 1, 1, generator=generator)
    grids = (torch.rand(PICTURES, channels, cells, cells, generator=generator) for cells in COARSENESS)
    layers = torch.stack([F.interpolate(grid, size=(SIDE, SIDE), mode="bicubic") for grid in grids])
    mean = (layers * shares / shares.sum(0)).sum(0)
    return (0.5 + 2 * (mean - 0.5)).clamp(0, 1)  # a mean of several has lost contrast
