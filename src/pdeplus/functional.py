"""Pure tensor mathematics: the diffusion step, the coverage losses and the consistency of several views."""

from collections.abc import Callable
from functools import partial
from typing import Literal

import torch
from torch import Tensor

from .errors import UserError, check_choice

Prior = Literal["gaussian", "laplace", "student_t"]
"""The family of the noise; `scale` is always the family's own scale parameter."""
Per = Literal["sample", "position", "channel"]
"""What has a random number of its own in a directional diffusion."""
DEGREES_OF_FREEDOM = 4
"""Of the Student-t prior: heavy tails, yet a finite variance (2)."""
LEAST_PROBABILITY = 1e-7
"""Below it the mean of several predictions counts as this, as published for AugMix."""


def diffuse(
    h: Tensor,
    scale: Tensor | float,
    generator: torch.Generator | None = None,
    prior: Prior = "gaussian",
) -> Tensor:
    """One Euler-Maruyama diffusion step: h + scale · ε with ε of unit scale.

    With the Gaussian prior the result has mean `h` and standard deviation `scale`, element by element.

    Args:
        h: features of any shape.
        scale: the same shape, or anything that broadcasts to it.
        generator: source of the noise, on the device of `h`; torch's own where none is given.
        prior: family of the noise.
    """
    noise = unit_noise(h, generator, prior)
    return torch.addcmul(h, scale, noise) if isinstance(scale, Tensor) else h + scale * noise


def diffuse_along(
    h: Tensor,
    twin: Tensor,
    reach: float,
    generator: torch.Generator | None = None,
    per: Per = "sample",
) -> Tensor:
    """One diffusion step towards an augmented view, the twin (ours): h + reach · ε · (twin - h), ε ~ N(0, 1).

    With one ε per sample the result has mean `h` and the covariance reach² v vᵀ of rank one, v = twin - h: the twin
    itself lies 1 / reach standard deviations away.

    Args:
        h: features, B×C, B×N×C or B×C×H×W.
        twin: those of the similar samples, same shape.
        reach: standard deviation along v, in units of its length.
        generator: source of the noise, on the device of `h`; torch's own where none is given.
        per: one ε for each sample, for each of its positions or for each of its channels.
    """
    check_choice("per", per, Per)
    if twin.shape != h.shape:
        raise UserError(f"features of shape {tuple(h.shape)} have twins of shape {tuple(twin.shape)}; both must agree")
    channels = 1 if h.ndim == 4 else h.ndim - 1
    kept = {"sample": {0}, "channel": {0, channels}, "position": set(range(h.ndim)) - {channels}}[per]
    shape = [n if dimension in kept else 1 for dimension, n in enumerate(h.shape)]
    noise = torch.randn(shape, generator=generator, device=h.device, dtype=torch.float32)
    return torch.lerp(h, twin, noise.mul_(reach).to(h.dtype))


def unit_noise(like: Tensor, generator: torch.Generator | None = None, prior: Prior = "gaussian") -> Tensor:
    """Noise of unit scale with the shape and the memory layout of `like`."""
    check_choice("prior", prior, Prior)
    return _NOISE[prior](like, generator)


def coverage_nll(twin: Tensor, mean: Tensor, scale: Tensor, prior: Prior = "gaussian") -> Tensor:
    """Negative log-likelihood of the view's features (`twin`) under the diffused sample, a mean over elements.

    It is least where `scale` is the true scale of twin - mean: its root mean square under the Gaussian
    prior, its mean absolute value under the Laplace prior. Constants are left out: the Gaussian value is
    log σ + (twin - mean)² / 2σ².

    Args:
        twin: plain features of the semantically similar sample.
        mean: features of the original before the noise, same shape.
        scale: its scale, same shape, positive.
        prior: family of the noise.
    """
    check_choice("prior", prior, Prior)
    return _MEAN_ENERGY[prior]((twin - mean) / scale) + scale.log().mean()


def jensen_shannon(logits: Tensor) -> Tensor:
    """Jensen-Shannon divergence of K predictions, a mean over the batch: (1/K) Σ_k KL(p_k ‖ mean of all p).

    It lies between 0, where all predictions agree, and log K, where no two share a class (within the 1e-7 at which
    the mean is cut); its gradient is finite wherever the logits are.

    Args:
        logits: K×B×classes, finite.
    """
    log_p = logits.log_softmax(-1)
    p = log_p.exp()
    log_mean = p.mean(0).clamp(LEAST_PROBABILITY, 1).log()
    return (p * (log_p - log_mean)).sum(-1).mean()


def _normal(like: Tensor, generator: torch.Generator | None) -> Tensor:
    return _in_layout_of(like, lambda empty: empty.normal_(generator=generator))


def _laplace(like: Tensor, generator: torch.Generator | None) -> Tensor:
    """The difference of two unit exponentials is a unit Laplace variable."""
    first = _in_layout_of(like, lambda empty: empty.exponential_(generator=generator))
    return first.sub_(_in_layout_of(like, lambda empty: empty.exponential_(generator=generator)))


def _student_t(like: Tensor, generator: torch.Generator | None) -> Tensor:
    """A normal over the root of χ²/ν; χ² with four degrees is twice a sum of two exponentials."""
    chi2 = _in_layout_of(like, lambda empty: empty.exponential_(generator=generator))
    chi2 = chi2.add_(_in_layout_of(like, lambda empty: empty.exponential_(generator=generator))).mul_(2)
    return _normal(like, generator).div_(chi2.div_(DEGREES_OF_FREEDOM).sqrt_())


def _in_layout_of(like: Tensor, fill: Callable[[Tensor], Tensor]) -> Tensor:
    """Fill a tensor that shares shape, type and memory layout with `like`.

    Numbers are drawn in 32 bits or more, and channels-last ones as N×H×W×C, which is contiguous: the generator's fast
    path. On a CPU it draws eight times as many a second there as in bf16.
    """
    drawn = partial(torch.empty, dtype=torch.promote_types(like.dtype, torch.float32), device=like.device)
    if like.ndim == 4 and not like.is_contiguous() and like.is_contiguous(memory_format=torch.channels_last):
        n, c, h, w = like.shape
        return fill(drawn(n, h, w, c)).to(like.dtype).permute(0, 3, 1, 2)
    return fill(drawn(like.shape)).to(like.dtype)


_NOISE: dict[str, Callable[[Tensor, torch.Generator | None], Tensor]] = {
    "gaussian": _normal,
    "laplace": _laplace,
    "student_t": _student_t,
}
_MEAN_ENERGY: dict[str, Callable[[Tensor], Tensor]] = {
    "gaussian": lambda z: 0.5 * z.square().mean(),
    "laplace": lambda z: z.abs().mean(),
    "student_t": lambda z: 0.5 * (DEGREES_OF_FREEDOM + 1) * torch.log1p(z.square() / DEGREES_OF_FREEDOM).mean(),
}
