"""What Mixup, NFM and NoisyMix share: mixing and noise at one place of a network, and the loss of a mixture."""

import math
from collections.abc import Callable, Sequence
from typing import Literal, NamedTuple

import torch
from torch import Tensor, nn

from ..augment.base import beta, integers
from ..core.network import INPUT
from ..core.placement import stages_of
from ..errors import UserError
from ..functional import unit_noise


class Mix(NamedTuple):
    """One batch's draw: at `place` features h become λ h + (1 - λ) h[partners]."""

    place: str
    partners: Tensor
    """A permutation of the batch."""
    share: Tensor
    """λ, one number."""


class Units(NamedTuple):
    """How a published recipe normalises images before its noise meets them: (x - mean) / std."""

    mean: float
    std: float


def mixing_places(model: nn.Module, placement: Literal["stage"] | Sequence[str]) -> list[str]:
    """The input, and the first three stages or the named modules; the last stage of a network with four is none."""
    return [INPUT, *(stages_of(model)[:3] if placement == "stage" else placement)]


def draw_mix(places: Sequence[str], labels: Tensor, alpha: float, generator: torch.Generator) -> Mix:
    """One of the places, each as likely; a permutation; λ ~ Beta(alpha, alpha)."""
    place = places[int(integers(1, 0, len(places), labels, generator))] if len(places) > 1 else places[0]
    partners = torch.randperm(len(labels), generator=generator, device=labels.device)
    return Mix(place, partners, beta(1, alpha, labels, generator).squeeze(0))


def mixed(h: Tensor, mix: Mix) -> Tensor:
    """λ h + (1 - λ) h[partners]; where `h` holds several views of the batch, within each of them."""
    size = len(mix.partners)
    firsts = torch.arange(0, len(h), size, device=h.device)
    rows = (firsts[:, None] + mix.partners).flatten()
    return torch.lerp(h[rows], h, mix.share.to(h.dtype))


def noisy(
    h: Tensor, additive: float, multiplicative: float, generator: torch.Generator, sparsity: float = 0.0
) -> Tensor:
    """(1 + m·B·U) ⊙ h + a·B′·N with U ~ U(-1, 1), N ~ N(0, 1), B and B′ ~ Beta(2, 5): its mean is h.

    a is the additive level, m the multiplicative. U and N are drawn for each element of `h`, which has any shape, and
    are 0 instead with the chance `sparsity`; B and B′ are drawn once for all of them.
    """
    first, second = beta_2_5(2, h, generator).to(h.dtype)
    uniform = torch.empty_like(h).uniform_(-1, 1, generator=generator)
    normal = unit_noise(h, generator)
    if sparsity:
        uniform, normal = (
            noise * torch.empty_like(h).bernoulli_(1 - sparsity, generator=generator) for noise in (uniform, normal)
        )
    return h * (1 + multiplicative * first * uniform) + additive * second * normal


def noisy_at(
    place: str,
    h: Tensor,
    units: Units,
    additive: float,
    multiplicative: float,
    generator: torch.Generator,
    sparsity: float = 0.0,
) -> Tensor:
    """`noisy` features; or, at the input, images with the noise of (x - mean) / std, in pixels.

    There the multiplicative noise scales x - mean, and the additive level is std · a. Images are not cut to [0, 1].
    """
    if place != INPUT:
        return noisy(h, additive, multiplicative, generator, sparsity)
    return noisy(h - units.mean, units.std * additive, multiplicative, generator, sparsity) + units.mean


def beta_2_5(n: int, like: Tensor, generator: torch.Generator) -> Tensor:
    """`n` numbers from Beta(2, 5): the second smallest of six uniform numbers has that distribution."""
    return torch.rand(n, 6, generator=generator, device=like.device).sort(-1).values[:, 1]


def over_mixed_labels(measure: Callable[[Tensor], Tensor], labels: Tensor, mix: Mix | None) -> Tensor:
    """λ · measure(labels) + (1 - λ) · measure(labels[partners]), or measure(labels) where nothing is mixed."""
    if mix is None:
        return measure(labels)
    return mix.share * measure(labels) + (1 - mix.share) * measure(labels[mix.partners])


def check_alpha(alpha: float) -> None:
    """Refuse an α for which Beta(α, α) is no distribution."""
    if not 0 < alpha < math.inf:
        raise UserError(f"method.alpha={alpha} must be above 0 and finite; near 0 hardly anything is mixed")


def corruptions_in_noise(additive: float, multiplicative: float) -> tuple[str, ...]:
    """The test corruptions that the noise coincides with where it meets images."""
    return ("gaussian_noise",) * bool(additive) + ("speckle_noise",) * bool(multiplicative)
