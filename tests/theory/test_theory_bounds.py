"""Theorem 1 and its corollary as numbers: sharp where they claim to be, and measured."""

import math

import pytest
import torch
from scipy import stats

from pdeplus.errors import UserError
from pdeplus.theory.problems import benes, constant
from pdeplus.theory.smoothness import (
    Sample,
    bounded_drift_slope,
    difference_bound,
    escape,
    fit_exponents,
    measure_smoothness,
    samples_needed,
    sampling_term,
    smoothness_constant,
    smoothness_term,
    spreading_factor,
)
from pdeplus.theory.transport import box, solve


def linear_drift_sign(x: float, expansion: float, sigma: float) -> float:
    """u(x, 0) for F = Lx and o = sign: x(1) is normal with mean e^L x and variance σ²(e^{2L} - 1)/2L."""
    variance = sigma**2 * (math.expm1(2 * expansion) / (2 * expansion) if expansion else 1)
    return 2 * float(stats.norm.cdf(math.exp(expansion) * x / math.sqrt(variance))) - 1


@pytest.mark.parametrize("expansion", [-2.0, 0.0, 0.5, 3.0])
@pytest.mark.parametrize("sigma", [0.05, 1.0])
@pytest.mark.parametrize("distance", [0.01, 0.3, 2.0])
def test_the_bound_is_attained_by_a_linear_drift(expansion, sigma, distance):
    difference = linear_drift_sign(distance / 2, expansion, sigma) - linear_drift_sign(-distance / 2, expansion, sigma)
    bound = difference_bound(distance, sigma, expansion=expansion)
    assert difference == pytest.approx(bound, rel=1e-9)
    assert bound <= smoothness_constant(expansion=expansion) * distance / sigma


def test_without_drift_it_is_the_total_variation_of_two_normals():
    distance, sigma = 0.7, 0.4
    x = torch.linspace(-6, 6, 200_001, dtype=torch.float64)
    densities = [torch.exp(-((x - m) ** 2) / (2 * sigma**2)) / (sigma * math.sqrt(2 * math.pi)) for m in (0, distance)]
    variation = torch.trapezoid((densities[0] - densities[1]).abs(), x).item() / 2
    assert difference_bound(distance, sigma, oscillation=1.0) == pytest.approx(variation, rel=1e-6)


def test_the_spreading_factor_at_its_ends():
    assert spreading_factor(0.0) == 1
    assert spreading_factor(1e-9) == pytest.approx(1)
    assert spreading_factor(50.0) == pytest.approx(10)
    assert spreading_factor(-5.0) == pytest.approx(math.sqrt(10 / (math.exp(10) - 1)))


@pytest.mark.parametrize("sigma", [1.0, 0.3, 0.1, 0.03])
def test_a_bounded_drift_escapes_every_power_of_distance_over_sigma(sigma):
    """Beneš: |F| ≤ 1 for every σ, yet at ‖δ‖ = σ² the difference stays at 2 tanh ½ while (‖δ‖/σ)^α = σ^α falls."""
    found = escape(sigma)
    assert found.difference > 2 * math.tanh(0.5) - 1e-6
    assert found.needed_at_one >= 0.92 / sigma
    assert found.needed_at_half >= 0.92 / math.sqrt(sigma)
    expansion = 1 / sigma**2  # its Lipschitz constant, with which the bound holds
    assert found.difference <= difference_bound(sigma**2, sigma, expansion=expansion)
    assert found.difference <= bounded_drift_slope(sigma, speed=1.0) * sigma**2


@pytest.mark.parametrize(("speed", "sigma"), [(1.0, 0.1), (2.0, 0.3), (0.5, 1.0)])
def test_the_slope_under_a_bounded_drift(speed, sigma):
    x = torch.linspace(-1, 1, 200_001, dtype=torch.float64)[:, None]
    solution = benes(speed=speed, scale=sigma).solution
    assert solution is not None
    steepest = (solution(x, 0.0).diff() / 1e-5).max().item()
    bound = bounded_drift_slope(sigma, speed=speed)
    assert bound / 9 < steepest < bound


def test_measured_differences_keep_the_bound_and_its_exponents():
    found = measure_smoothness(fields=2, seed=3, sigmas=(0.5, 0.25, 0.125))
    assert found.tightest <= 1 + 1e-3  # the grid's error
    assert found.tightest > 0.9
    assert found.step.distance == pytest.approx(1, abs=0.03)
    assert found.step.sigma == pytest.approx(-1, abs=0.03)
    assert found.step.sigma_error < 0.02
    assert found.constant <= smoothness_constant(expansion=max(found.expansions))
    assert -0.9 < found.slope_small.sigma < 0.05  # with a smooth end the slope depends less on σ


def test_without_drift_the_energy_estimate_of_the_paper_would_leave_no_slope():
    """It bounds ∫|∇u|² by ‖F‖² times something, so by 0; the heat equation leaves √π A²/2s of a bump."""
    grid = box(1, 6.0, 240)
    u = solve(constant(drift=(0.0,), scale=0.5, width=0.5), grid).on_grid()
    energy = torch.gradient(u, spacing=grid.spacing)[0].square().sum().item() * grid.spacing[0]
    s = math.sqrt(0.5**2 + 0.5**2)
    assert energy == pytest.approx(math.sqrt(math.pi) * (0.5 / s) ** 2 / (2 * s), rel=0.01)
    assert energy > 0.6


def test_exponents_are_found_whatever_the_constants():
    samples = [
        Sample(field, "step", sigma, part * sigma, (1 + field) * (part * sigma) ** 0.7 * sigma**-1.2, 9.0)
        for field in range(3)
        for sigma in (0.1, 0.3, 1.0)
        for part in (0.1, 0.2, 0.5, 2.0)
    ]
    spoilt = [s._replace(difference=1.0) if s.distance > 0.6 * s.sigma else s for s in samples]
    fit = fit_exponents(spoilt)
    assert (fit.distance, fit.sigma) == pytest.approx((0.7, -1.2))
    assert max(fit.distance_error, fit.sigma_error) < 1e-9


def test_the_corollary_by_hand():
    assert smoothness_term(0.5, distance=2.0, constant=3.0, exponent=0.5, lipschitz=0.1) == pytest.approx(0.6)
    value = sampling_term(1000, cells=10, failure=0.05, largest_loss=2.0)
    assert value == pytest.approx(2 * math.sqrt((20 * 0.6931471805599453 + 2 * 2.995732273553991) / 1000))
    assert sampling_term(4000, cells=10, failure=0.05) == pytest.approx(value / 4)
    assert sampling_term(1, cells=1, failure=1.0) == pytest.approx(math.sqrt(2 * math.log(2)))


@pytest.mark.parametrize("smooth", [0.0, 0.3, 0.99])
@pytest.mark.parametrize("cells", [1, 10, 5000])
def test_the_samples_needed_are_just_enough(smooth, cells):
    n = samples_needed(smooth, cells=cells, failure=0.01)
    assert n is not None
    assert smooth + sampling_term(n, cells=cells, failure=0.01) < 1
    assert n == 1 or smooth + sampling_term(n - 1, cells=cells, failure=0.01) >= 1


def test_no_number_of_samples_mends_the_first_term():
    assert samples_needed(1.0, cells=10, failure=0.05) is None
    assert samples_needed(1.5, cells=10, failure=0.05, largest_loss=2.0) is not None


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: difference_bound(1.0, 0.0), "sigma=0 must be finite and above 0"),
        (lambda: difference_bound(-1.0, 1.0), "distance=-1 must be finite and not below 0"),
        (lambda: smoothness_term(1.0, distance=1.0, constant=math.nan), "constant=nan"),
        (lambda: smoothness_term(1.0, distance=1.0, constant=1.0, exponent=0.0), "exponent=0"),
        (lambda: sampling_term(0, cells=1, failure=0.5), "samples=0, cells=1 must be at least 1"),
        (lambda: sampling_term(1, cells=1, failure=0.0), "failure=0 must lie in"),
        (lambda: sampling_term(1, cells=1, failure=1.5), "failure=1.5 must lie in"),
    ],
)
def test_values_out_of_range_are_refused(call, message):
    with pytest.raises(UserError, match=message):
        call()
