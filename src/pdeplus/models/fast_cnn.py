"""A convolutional network that learns CIFAR-10 in minutes on a CPU, after Jordan's speed records (2024).

Whitened 2×2 patches, three groups of two convolutions, a global maximum, a linear head. The ingredients and what each
saves: 94 % on CIFAR-10 in 3.29 seconds on a single GPU, arXiv 2404.00498.
"""

from collections.abc import Sequence
from typing import cast, final

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from ..errors import UserError
from .base import FitsImages, check_sizes

PATCH = 2
"""Side of the patches that are whitened."""
LEAST_VARIANCE = 5e-4
"""Added to the variance of every direction of the patches, as a share of their mean variance."""
TEMPERATURE = 9.0
"""The logits are divided by it, so that they start small."""


@final
class Whitening(FitsImages, nn.Conv2d):
    """Filters that turn 2×2 patches of the training images into uncorrelated numbers of variance 1, and minus these.

    The filters do not learn by gradient, the bias where it is told to; it starts by taking the mean patch to 0. Before
    `fit_images` patches are handed on as they are.
    """

    def __init__(self, channels: int, learn_bias: bool = False) -> None:
        n = channels * PATCH**2
        super().__init__(channels, 2 * n, PATCH)
        self.requires_grad_(False)
        assert self.bias is not None
        self.bias.requires_grad_(learn_bias)
        self._set(torch.eye(n), torch.zeros(n))

    @torch.no_grad()
    def fit_images(self, images: Tensor) -> None:
        """Set the filters by all patches of some images, float N×C×H×W."""
        patches = F.unfold(images, PATCH).transpose(1, 2).flatten(0, 1).double()
        n, mean = patches.shape[1], patches.mean(0)
        if len(patches) <= n:
            raise UserError(f"fast_cnn whitens patches of {n} numbers and the training images have only {len(patches)}")
        covariance = (patches - mean).mT @ (patches - mean) / len(patches)
        variances, directions = cast(tuple[Tensor, Tensor], torch.linalg.eigh(covariance))
        if not variances.mean() > 1e-9:
            raise UserError("fast_cnn whitens the patches of the training images, which are all of one colour")
        deviations = variances.clamp(min=0).add(LEAST_VARIANCE * variances.mean()).sqrt()
        self._set((directions / deviations).mT, mean)

    @torch.no_grad()
    def _set(self, rows: Tensor, mean: Tensor) -> None:
        filters = torch.cat([rows, -rows])
        self.weight.copy_(filters.view_as(self.weight))
        assert self.bias is not None
        self.bias.copy_(-filters @ mean)


@final
class Halving(nn.Module):
    """The maximum of each 2×2 square; features of a single pixel stay as they are."""

    def forward(self, h: Tensor) -> Tensor:
        return F.max_pool2d(h, 2) if min(h.shape[-2:]) > 1 else h


@final
class Residual(nn.Sequential):
    """h + f(h): one Euler step of the transport equation's characteristics."""

    def forward(self, h: Tensor) -> Tensor:  # type: ignore[reportIncompatibleMethodOverride]
        return h + cast(Tensor, super().forward(h))


@final
class FastCNN(nn.Module):
    """Logits, B×classes, of images B×channels×S×S with S ≥ 8. Its whitening is set by training images."""

    stages = ("group1", "group2", "group3")

    def __init__(
        self,
        *,
        classes: int,
        channels: int,
        widths: Sequence[int],
        residual: bool = False,
        learn_bias: bool = False,
        depth: int = 2,
    ) -> None:
        super().__init__()
        if len(widths) != 3:
            raise UserError(f"model.widths={list(widths)} must hold three numbers, one for each group")
        check_sizes(classes=classes, channels=channels, widths=min(widths), depth=depth)
        first, second, third = widths
        self.whitening = Whitening(channels, learn_bias)
        self.activation = nn.GELU()
        self.group1 = _group(self.whitening.out_channels, first, depth, residual)
        self.group2 = _group(first, second, depth, residual)
        self.group3 = _group(second, third, depth, residual)
        self.head = nn.Linear(third, classes, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        h = self.activation(self.whitening(x))
        h = self.group3(self.group2(self.group1(h)))
        return self.head(h.amax((2, 3))) / TEMPERATURE


def build(
    *,
    classes: int,
    channels: int,
    width: int = 32,
    widths: tuple[int, ...] = (),
    residual: bool = False,
    learn_bias: bool | None = None,
    depth: int | None = None,
) -> FastCNN:
    """A fast CNN; its groups have `width`, 4 × `width` and 4 × `width` channels, or `widths`, and `depth` convolutions.

    `residual` adds the output of a group's first convolution to that of its last. `learn_bias` lets the whitening's
    bias learn, which makes a step 4 to 7 % longer. None, as older configs have it, is false, and a depth of 2.
    """
    check_sizes(classes=classes, channels=channels, width=width)
    groups = widths or (width, 4 * width, 4 * width)
    return FastCNN(
        classes=classes,
        channels=channels,
        widths=groups,
        residual=residual,
        learn_bias=bool(learn_bias),
        depth=2 if depth is None else depth,
    )


def _group(inputs: int, outputs: int, depth: int, residual: bool) -> nn.Sequential:
    rest = [layer for _ in range(depth - 1) for layer in _layers(outputs, outputs)]  # drawn first, as in older runs
    first = nn.Sequential(*_layers(inputs, outputs, Halving()))
    return nn.Sequential(first, (Residual if residual else nn.Sequential)(*rest))


def _layers(inputs: int, outputs: int, *after: nn.Module) -> list[nn.Module]:
    """Convolution, normalisation, activation. First filters start as the identity; norms learn their shifts alone."""
    conv, norm = nn.Conv2d(inputs, outputs, 3, padding=1, bias=False), nn.BatchNorm2d(outputs, momentum=0.4)
    nn.init.dirac_(conv.weight[:inputs])
    norm.weight.requires_grad_(False)
    return [conv, *after, norm, nn.GELU()]
