"""The bounds of Theorem TEGen and its corollary as numbers: pure functions with checked ranges.

`difference_bound` is proven in docs/theory.md, not in the paper: for a drift that spreads no faster than e^{Lt}, two
diffused paths started δ apart can be led together at the cost of a change of measure, so that
|u(x+δ, 0) - u(x, 0)| ≤ osc(o) · (2Φ(κ‖δ‖/2σ) - 1) with κ² = 2L/(1 - e^{-2L}).
It is attained by F = Lx and o = sign, for every δ and σ.
"""

import math

from ..errors import UserError
from .problems import decayed_time

LN2 = math.log(2)


def spreading_factor(expansion: float) -> float:
    """κ = √(2L/(1 - e^{-2L})): 1 without drift, √(2L) for large L, near 0 for strong contraction."""
    return decayed_time(expansion, 1.0) ** -0.5


def difference_bound(distance: float, sigma: float, *, expansion: float = 0.0, oscillation: float = 2.0) -> float:
    """The largest |u(x+δ, 0) - u(x, 0)| for a constant diffusion; attained by F = Lx and o = sign.

    Args:
        distance: ‖δ‖.
        sigma: σ > 0.
        expansion: L with ⟨F(x) - F(y), x - y⟩ ≤ L|x - y|²; a Lipschitz constant will do.
        oscillation: sup o - inf o, at most 2‖o‖∞.
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
    """The corollary's first term, C·L(‖δ'‖/σ)^α.

    Args:
        sigma: σ > 0.
        distance: ‖δ'‖, how far apart two points of one cell can lie.
        constant: C of the theorem.
        exponent: α > 0.
        lipschitz: L of the loss.
    """
    _check(distance=distance, constant=constant, lipschitz=lipschitz)
    _check_positive(sigma=sigma, exponent=exponent)
    return constant * lipschitz * (distance / sigma) ** exponent


def sampling_term(samples: int, *, cells: int, failure: float, largest_loss: float = 1.0) -> float:
    """The corollary's second term, M√((2K ln 2 + 2 ln(1/ε))/N).

    Args:
        samples: N ≥ 1.
        cells: K ≥ 1, into which the data space is cut.
        failure: ε, the probability that the bound does not hold, in (0, 1].
        largest_loss: M.
    """
    if samples < 1 or cells < 1:
        raise UserError(f"samples={samples}, cells={cells} must be at least 1")
    if not 0 < failure <= 1:
        raise UserError(f"failure={failure:g} must lie in (0, 1], such as 0.05")
    _check(largest_loss=largest_loss)
    return largest_loss * math.sqrt((2 * cells * LN2 + 2 * math.log(1 / failure)) / samples)


def is_vacuous(bound: float, *, largest_loss: float = 1.0) -> bool:
    """Whether a bound on the generalisation error says nothing: no error exceeds the largest loss."""
    return bound >= largest_loss


def samples_needed(smoothness: float, *, cells: int, failure: float, largest_loss: float = 1.0) -> int | None:
    """The least N for which the bound is below M; None where its first term alone is not.

    Args:
        smoothness: the first term, from `smoothness_term`.
        cells: K.
        failure: ε.
        largest_loss: M.
    """
    if is_vacuous(smoothness, largest_loss=largest_loss):
        return None
    one = sampling_term(1, cells=cells, failure=failure, largest_loss=largest_loss)
    return math.floor((one / (largest_loss - smoothness)) ** 2) + 1


def _check(**values: float) -> None:
    for name, value in values.items():
        if not 0 <= value < math.inf:
            raise UserError(f"{name}={value:g} must be finite and not below 0")


def _check_positive(**values: float) -> None:
    for name, value in values.items():
        if not 0 < value < math.inf:
            raise UserError(f"{name}={value:g} must be finite and above 0")
