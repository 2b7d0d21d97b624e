"""Theorem TEGen and its corollary: how far apart u(x+δ, 0) and u(x, 0) are when measured, and bounds as numbers.

`difference_bound` is proven in docs/theory.md, not in the paper: for a drift that spreads no faster than e^{Lt}, two
diffused paths started δ apart can be led together at the cost of a change of measure, so that
|u(x+δ, 0) - u(x, 0)| ≤ osc(o) · (2Φ(κ‖δ‖/2σ) - 1) with κ² = 2L/(1 - e^{-2L}).
It is attained by F = Lx and o = sign, for every δ and σ.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple, final

import numpy as np
import torch
from torch import Tensor

from .._lib.long_work import counting_bar
from .._lib.seeds import generator_for
from ..errors import UserError
from .problems import Field, Problem, benes, decayed_time, everywhere, exact, listed
from .transport import box, solve

SIGMAS = (1.0, 0.5, 0.25, 0.1, 0.05)
DISTANCES = (0.1, 0.2, 0.5, 1.0, 2.0, 4.0)
"""‖δ‖ in parts of σ."""
NARROW = 0.5
"""Distances up to this part of σ are fitted: beyond, a difference of bounded values must level off."""
CELLS_PER_SIGMA = 8
WALL, LOOKED_AT = 5.0, 1.5
"""Half the box that is solved in, and half the interval of the points x."""
LEAST_CELLS = 160
WAVES = 3
"""Number of waves in a random field."""
Ending = Literal["step", "slope"]
"""Kinds of terminal value: sign(x), or tanh(2x), which is smooth already."""


class Sample(NamedTuple):
    """The largest |u(x+δ, 0) - u(x, 0)| over x for one field."""

    field: int
    ending: Ending
    sigma: float
    distance: float
    difference: float
    bound: float


class Fit(NamedTuple):
    """log difference = field's own constant + a log ‖δ‖ + b log σ, by least squares, with standard errors."""

    distance: float
    distance_error: float
    sigma: float
    sigma_error: float


class Escape(NamedTuple):
    """The Beneš drift, |F| ≤ 1, at ‖δ‖ = σ²: the difference, and the C that C(‖δ‖/σ)^α would need."""

    sigma: float
    difference: float
    needed_at_one: float
    needed_at_half: float


@final
@dataclass(frozen=True, kw_only=True)
class Smoothness:
    """All samples and what they come to.

    Args:
        samples: over fields, endings, σ and ‖δ‖.
        expansions: L of each field.
        step: exponents for sign(x) over all σ, ‖δ‖ ≤ σ/2.
        slope_small: the same for tanh(2x) over the three smallest σ.
        tightest: the largest difference ÷ bound.
        constant: the least C with difference ≤ C‖δ‖/σ.
        escapes: what the Beneš drift does as σ falls.
    """

    samples: tuple[Sample, ...]
    expansions: tuple[float, ...]
    step: Fit
    slope_small: Fit
    tightest: float
    constant: float
    escapes: tuple[Escape, ...]


def measure_smoothness(*, fields: int = 5, seed: int = 0, sigmas: Sequence[float] = SIGMAS) -> Smoothness:
    """Solve the equation for random fields at every σ and look at the largest differences.

    Each field is a sum of three moving waves, of which the largest slope L is known. u is solved on a grid of σ/8.
    """
    drawn = [_random_drift(seed, i) for i in range(fields)]
    samples = list[Sample]()
    with counting_bar("smoothness", len(drawn) * len(sigmas) * 2, "solution") as count:
        for i, (drift, expansion) in enumerate(drawn):
            for ending in ("step", "slope"):
                for sigma in sigmas:
                    samples += _samples(i, drift, expansion, ending, sigma)
                    count(1)
    smallest = sorted(sigmas)[:3]
    return Smoothness(
        samples=tuple(samples),
        expansions=tuple(expansion for _, expansion in drawn),
        step=fit_exponents([s for s in samples if s.ending == "step"]),
        slope_small=fit_exponents([s for s in samples if s.ending == "slope" and s.sigma in smallest]),
        tightest=max(s.difference / s.bound for s in samples),
        constant=max(s.difference * s.sigma / s.distance for s in samples),
        escapes=tuple(escape(sigma) for sigma in sigmas),
    )


def _random_drift(seed: int, index: int) -> tuple[Field, float]:
    """F = Σ a sin(kx + φ + ωt) of three waves, and its largest ∂F/∂x, as 1000 × 50 points and times have it."""
    numbers = listed(torch.rand(WAVES, 4, generator=generator_for(seed, "waves", index), dtype=torch.float64))
    waves = [(0.2 + 0.6 * a, 0.5 + 1.5 * k, 2 * math.pi * phase, 4 * speed - 2) for a, k, phase, speed in numbers]

    def drift(x: Tensor, t: float) -> Tensor:
        return sum((a * (k * x + phase + speed * t).sin() for a, k, phase, speed in waves), torch.zeros_like(x))

    x, t = torch.linspace(-WALL, WALL, 1000).double()[:, None], torch.linspace(0, 1, 50).double()
    slopes = sum((a * k * (k * x + phase + speed * t).cos() for a, k, phase, speed in waves), torch.zeros(()))
    return drift, float(slopes.max())


def fit_exponents(samples: Sequence[Sample]) -> Fit:
    """Exponents of ‖δ‖ and σ in the difference over samples with ‖δ‖ ≤ σ/2, each field with its own constant."""
    used = [s for s in samples if s.distance <= NARROW * s.sigma * (1 + 1e-9)]
    names = sorted({s.field for s in used})
    own = np.array([[float(s.field == name) for name in names] for s in used])
    slopes = np.log([[s.distance, s.sigma] for s in used])
    design, target = np.hstack([slopes, own]), np.log([s.difference for s in used])
    found, *_ = np.linalg.lstsq(design, target, rcond=None)
    left = target - design @ found
    covariance = np.linalg.inv(design.T @ design) * float(left @ left) / (len(used) - design.shape[1])
    errors = np.sqrt(np.diag(covariance))
    return Fit(float(found[0]), float(errors[0]), float(found[1]), float(errors[1]))


def escape(sigma: float) -> Escape:
    """|u(σ²/2, 0) - u(-σ²/2, 0)| for the Beneš drift, in closed form, against (‖δ‖/σ)^α = σ^α."""
    ends = torch.tensor([[-(sigma**2) / 2], [sigma**2 / 2]], dtype=torch.float64)
    difference = float(exact(benes(speed=1.0, scale=sigma), ends).diff())
    return Escape(sigma, difference, difference / sigma, difference / math.sqrt(sigma))


def _samples(index: int, drift: Field, expansion: float, ending: Ending, sigma: float) -> list[Sample]:
    """The largest differences over x at each distance, with the bound for this field."""
    problem = Problem(
        dimension=1,
        drift=drift,
        scale=everywhere(sigma),
        terminal=lambda x: x[:, 0].sign() if ending == "step" else (2 * x[:, 0]).tanh(),
        bounds=(-1.0, 1.0),
    )
    cells = max(2 * math.ceil(WALL * CELLS_PER_SIGMA / sigma), LEAST_CELLS)
    solution = solve(problem, box(1, WALL, cells))
    x = torch.linspace(-LOOKED_AT, LOOKED_AT, 2001, dtype=torch.float64)[:, None]
    here = solution.at(x)
    found = list[Sample]()
    for distance in (part * sigma for part in DISTANCES if part * sigma <= 1):
        difference = float((solution.at(x + distance) - here).abs().max())
        bound = difference_bound(distance, sigma, expansion=expansion)
        found.append(Sample(index, ending, sigma, distance, difference, bound))
    return found


def spreading_factor(expansion: float) -> float:
    """κ = √(2L/(1 - e^{-2L})): 1 without drift, √(2L) for large L, near 0 for strong contraction."""
    return decayed_time(expansion, 1.0) ** -0.5


def difference_bound(distance: float, sigma: float, *, expansion: float = 0.0, oscillation: float = 2.0) -> float:
    """The largest |u(x+δ, 0) - u(x, 0)| for a constant diffusion σ > 0 and ‖δ‖; attained by F = Lx and o = sign.

    The expansion L has ⟨F(x) - F(y), x - y⟩ ≤ L|x - y|² (a Lipschitz constant will do); the oscillation is
    sup o - inf o, at most 2‖o‖∞.
    """
    _check(distance=distance, oscillation=oscillation)
    _check_positive(sigma=sigma)
    return oscillation * math.erf(spreading_factor(expansion) * distance / (2 * math.sqrt(2) * sigma))


def smoothness_constant(*, expansion: float = 0.0, oscillation: float = 2.0) -> float:
    """The least C with |u(x+δ, 0) - u(x, 0)| ≤ C‖δ‖/σ for all such drifts: osc(o) κ/√(2π)."""
    _check(oscillation=oscillation)
    return oscillation * spreading_factor(expansion) / math.sqrt(2 * math.pi)


def bounded_drift_slope(sigma: float, *, speed: float, oscillation: float = 2.0) -> float:
    """A bound on |∇u(·, 0)| that knows of the drift only |F| ≤ B: ½osc(o) max(√(8/π)/σ, 8B/σ²).

    The power of 1/σ is 2, not 1: see `problems.benes`, which comes within a factor of 8 of it.
    """
    _check(speed=speed, oscillation=oscillation)
    _check_positive(sigma=sigma)
    return oscillation / 2 * max(math.sqrt(8 / math.pi) / sigma, 8 * speed / sigma**2)


def smoothness_term(
    sigma: float, *, distance: float, constant: float, exponent: float = 1.0, lipschitz: float = 1.0
) -> float:
    """The corollary's first term, C·L(‖δ'‖/σ)^α: C of the theorem, L of the loss, and the width ‖δ'‖ of a cell."""
    _check(distance=distance, constant=constant, lipschitz=lipschitz)
    _check_positive(sigma=sigma, exponent=exponent)
    return constant * lipschitz * (distance / sigma) ** exponent


def sampling_term(samples: int, *, cells: int, failure: float, largest_loss: float = 1.0) -> float:
    """The corollary's second term, M√((2K ln 2 + 2 ln(1/ε))/N), of N samples and K cells of the data space.

    M is the largest loss; ε, in (0, 1], is the probability of failure: that the bound does not hold.
    """
    if samples < 1 or cells < 1:
        raise UserError(f"samples={samples}, cells={cells} must be at least 1")
    if not 0 < failure <= 1:
        raise UserError(f"failure={failure:g} must lie in (0, 1], such as 0.05")
    _check(largest_loss=largest_loss)
    return largest_loss * math.sqrt((2 * cells * math.log(2) + 2 * math.log(1 / failure)) / samples)


def samples_needed(smoothness: float, *, cells: int, failure: float, largest_loss: float = 1.0) -> int | None:
    """The least N for which the bound is below M, which no error exceeds; None where its first term alone is not.

    `smoothness` is that first term, from `smoothness_term`; the others are as in `sampling_term`.
    """
    if smoothness >= largest_loss:
        return None
    one = sampling_term(1, cells=cells, failure=failure, largest_loss=largest_loss)
    return math.floor((one / (largest_loss - smoothness)) ** 2) + 1


def corollary_row(sigma: float) -> dict[str, float | int | None]:
    """The corollary in numbers: σ in parts of the cell's width, ten cells, ε = 0.05, output and loss in [0, 1]."""
    smooth = smoothness_term(sigma, distance=1.0, constant=smoothness_constant(oscillation=1.0))
    bound = smooth + sampling_term(10_000, cells=10, failure=0.05)
    needed = samples_needed(smooth, cells=10, failure=0.05)
    return {"sigma_over_distance": sigma, "bound_at_10000": bound, "samples_needed": needed}


def _check(**values: float) -> None:
    for name, value in values.items():
        if not 0 <= value < math.inf:
            raise UserError(f"{name}={value:g} must be finite and not below 0")


def _check_positive(**values: float) -> None:
    for name, value in values.items():
        if not 0 < value < math.inf:
            raise UserError(f"{name}={value:g} must be finite and above 0")
