"""HybridAugment++ (Yucel et al., 2023): one image's coarse structure with another's details and amplitudes."""

from dataclasses import dataclass
from typing import ClassVar, Literal, cast, final

import torch
from torch import Tensor

from ..errors import UserError, check_choice
from ._operations import to_levels
from .augmix import check_severity, one_operation
from .base import Augmentor, uniform

Variants = Literal["single", "paired", "both"]
AXES = (1, 2, 3)
"""A spectrum is over channel, height and width."""
LEAST_AMPLITUDE = 1e-12
"""Below it a frequency counts as absent: it has no phase."""


def split(x: Tensor, sigma: float) -> tuple[Tensor, Tensor]:
    """Low and high frequencies, of sum `x`: the image under a 3×3 Gaussian of `sigma` pixels, and what that takes away.

    The image's edge repeats. Images are float B×C×H×W.
    """
    down, across = (_weights(n, sigma, x) for n in x.shape[-2:])
    low = down @ x @ across.mT
    return low, x - low


def _weights(n: int, sigma: float, like: Tensor) -> Tensor:
    """n×n: row i holds the three weights with which pixel i averages a line of n pixels."""
    beside = torch.tensor(-0.5 / sigma**2, dtype=like.dtype, device=like.device).exp()
    line = torch.eye(n, dtype=like.dtype, device=like.device)
    before, after = line.roll(1, 1), line.roll(-1, 1)
    before[0], after[-1] = line[0], line[-1]
    return (line + beside * (before + after)) / (1 + 2 * beside)


def with_amplitudes(x: Tensor, other: Tensor) -> Tensor:
    """Images with the phases of `x` and the amplitudes of `other`; both float B×C×H×W.

    With `x` itself as the other it is the identity. A frequency that `x` lacks has no phase, and goes on lacking.
    """
    spectrum = _spectrum(x)
    return _recombined(spectrum, spectrum.abs(), _spectrum(other).abs(), x)


def with_amplitudes_of(x: Tensor, partners: Tensor) -> Tensor:
    """`with_amplitudes(x, x[partners])`, which takes but one transform forwards."""
    spectrum = _spectrum(x)
    amplitudes = spectrum.abs()
    return _recombined(spectrum, amplitudes, amplitudes[partners], x)


def _spectrum(x: Tensor) -> Tensor:
    return cast(Tensor, torch.fft.rfftn(x, dim=AXES))


def _recombined(spectrum: Tensor, amplitudes: Tensor, wanted: Tensor, like: Tensor) -> Tensor:
    factor = wanted.div_(amplitudes.clamp_(min=LEAST_AMPLITUDE))
    return cast(Tensor, torch.fft.irfftn(spectrum.mul_(factor), s=like.shape[1:], dim=AXES))


def paired(
    x: Tensor, generator: torch.Generator | None, *, probability: float = 0.6, exchange: float = 0.6, sigma: float = 0.5
) -> Tensor:
    """With that probability, for the whole batch: each image's low part with the high part of another.

    With the probability `exchange` the low parts first take the amplitudes of others. The labels are the low parts'.
    """
    happens, swaps = uniform(2, 0, 1, x, generator) < torch.tensor([probability, exchange], device=x.device)
    if not happens:
        return x
    amplitudes, details = (torch.randperm(len(x), generator=generator, device=x.device) for _ in range(2))
    low, high = split(x.float(), sigma)
    if swaps and len(x):  # no library has the transform of no image
        low = with_amplitudes_of(low, amplitudes)
    return low.add_(high[details]).clamp_(0, 1).to(x.dtype)


def single(
    x: Tensor, generator: torch.Generator | None, *, probability: float = 0.5, severity: float = 3, sigma: float = 0.5
) -> Tensor:
    """One of AugMix's operations on each image; with that probability, image by image, a hybrid with another such view.

    The hybrid of the views u and v, in random order, is v's high part and u's low part with the amplitudes of v's.
    """
    once = one_operation(to_levels(x), severity, generator)
    out = once.float().div_(255)
    chosen = (uniform(len(x), 0, 1, x, generator) < probability).nonzero().squeeze(1)
    if not len(chosen):
        return out.to(x.dtype)
    u, v = out[chosen], one_operation(once[chosen], severity, generator).float().div_(255)
    order = (uniform(len(chosen), 0, 1, x, generator) < 0.5).view(-1, 1, 1, 1)
    u, v = torch.where(order, u, v), torch.where(order, v, u)
    (coarse, _), (other, details) = split(u, sigma), split(v, sigma)
    out[chosen] = with_amplitudes(coarse, other).add_(details).clamp_(0, 1)
    return out.to(x.dtype)


@final
@dataclass(frozen=True, kw_only=True)
class Hybrid(Augmentor):
    """HybridAugment++: views of one image put together, then images of the batch. The defaults are as published."""

    applies: ClassVar[tuple[str, ...]] = ("frequency_swap", "amplitude_exchange")
    variants: Variants = "both"
    """Hybrids of one image's views, of the batch's images, or of both, one after the other."""
    single: float = 0.5
    """Probability that an image becomes a hybrid of two of its views; it is one view of itself otherwise."""
    severity: float = 3
    """Strength of the views' operation, one of AugMix's nine, is drawn from U(0.1, severity)."""
    paired: float = 0.6
    """Probability that the images of a batch become hybrids of each other."""
    exchange: float = 0.6
    """Probability that amplitudes are exchanged in these; 0 is HybridAugment without ++."""
    sigma: float = 0.5
    """Standard deviation, in pixels, of the 3×3 Gaussian that splits low from high frequencies."""

    def __post_init__(self) -> None:
        check_choice("variants", self.variants, Variants)
        check_severity(self.severity)
        for name, value in (("single", self.single), ("paired", self.paired), ("exchange", self.exchange)):
            if not 0 <= value <= 1:
                raise UserError(f"{name}={value} must lie between 0 and 1")
        if not self.sigma > 0:
            raise UserError(f"sigma={self.sigma} must be above 0")

    @torch.no_grad()
    def __call__(self, x: Tensor, generator: torch.Generator | None = None) -> Tensor:
        return self.of_pairs(self.of_one(x, generator), generator)

    @torch.no_grad()
    def of_one(self, x: Tensor, generator: torch.Generator | None = None) -> Tensor:
        """Hybrids of one image's views, if the variants have them."""
        if self.variants == "paired":
            return x
        return single(x, generator, probability=self.single, severity=self.severity, sigma=self.sigma)

    @torch.no_grad()
    def of_pairs(self, x: Tensor, generator: torch.Generator | None = None) -> Tensor:
        """Hybrids of the batch's images, if the variants have them."""
        if self.variants == "single":
            return x
        return paired(x, generator, probability=self.paired, exchange=self.exchange, sigma=self.sigma)
