"""Feynman-Kac by Euler-Maruyama: against closed forms, against the chain's own law, and its interval."""

import math

import pytest
import torch

from pdeplus.errors import UserError
from pdeplus.theory.checks import agreements, euler_expectation, euler_order, sampled_order
from pdeplus.theory.problems import Problem, constant, exact, ornstein_uhlenbeck
from pdeplus.theory.transport import ROWS_AT_ONCE, expectation

ORIGIN = torch.zeros(1, 1, dtype=torch.float64)


def test_grid_paths_and_closed_forms_agree():
    """99.9 % intervals at 56 points: more than two outside would be one chance in 36,000 if all were right."""
    found = agreements(paths=2000, steps=200, points=7, seed=1)
    assert len(found) == 8
    assert sum(len(one.x) - one.inside for one in found) <= 2
    for one in found:
        assert (one.grid - one.exact).abs().max() < 5e-4
        assert (one.high - one.low).max() < 0.5


def test_the_weak_order_is_one_without_sampling():
    order = euler_order()
    assert order.slope == pytest.approx(1, abs=0.02)
    halves = [a / b for a, b in zip(order.errors[:-1], order.errors[1:], strict=True)]
    assert halves == pytest.approx([2] * len(halves), rel=0.03)


def test_the_weak_order_is_one_with_sampling():
    assert sampled_order(paths=200_000).slope == pytest.approx(1, abs=0.25)


@pytest.mark.parametrize("steps", [1, 2, 5])
def test_paths_follow_the_law_of_the_chain(steps):
    """With few steps Euler-Maruyama is far from the equation, and its own expectation is known."""
    problem = ornstein_uhlenbeck(rate=1.0, scale=0.4, width=0.5)
    x = torch.tensor([[0.8]], dtype=torch.float64)
    found = expectation(problem, x, paths=100_000, steps=steps, seed=3)
    expected = euler_expectation(steps, rate=1.0, scale=0.4, width=0.5, start=0.8)
    assert abs(found.mean.item() - expected) < 4 * found.standard_error.item()
    assert abs(expected - exact(problem, x).item()) > 8 * found.standard_error.item()


def test_constant_coefficients_need_one_step():
    problem, x = constant(drift=(1.0, -0.5)), torch.tensor([[-0.9, 0.4], [0.0, 0.0]], dtype=torch.float64)
    found = expectation(problem, x, paths=100_000, steps=1, seed=0)
    assert ((found.mean - exact(problem, x)).abs() < 4 * found.standard_error).all()


def test_mean_and_error_over_chunks_are_those_of_all_paths():
    """o(x) = x on Brownian motion: mean 0, variance 1, over more paths than one chunk holds."""
    brownian = Problem(
        dimension=1,
        drift=lambda x, t: torch.zeros_like(x),
        scale=lambda x, t: torch.ones_like(x),
        terminal=lambda x: x[:, 0] + 1000,
    )
    paths = 3 * ROWS_AT_ONCE + 17
    found = expectation(brownian, ORIGIN, paths=paths, steps=1, seed=0)
    assert found.standard_error.item() == pytest.approx(1 / math.sqrt(paths), rel=0.02)
    assert abs(found.mean.item() - 1000) < 4 / math.sqrt(paths)
    assert (found.high - found.low).item() == pytest.approx(2 * 1.959964 * found.standard_error.item(), rel=1e-5)


def test_without_noise_there_is_no_interval():
    problem = constant(drift=(0.5,), scale=0.0)
    found = expectation(problem, ORIGIN, paths=10, steps=7, seed=0)
    assert found.standard_error.item() == pytest.approx(0, abs=1e-12)
    assert found.mean.item() == pytest.approx(math.exp(-(0.5**2) / (2 * 0.25)))


def test_intervals_cover_as_often_as_they_say():
    problem = constant()
    points = torch.full((400, 1), -0.7, dtype=torch.float64)
    found = expectation(problem, points, paths=500, steps=1, seed=0, confidence=0.9)
    true = exact(problem, points[:1]).item()
    covered = ((found.low <= true) & (found.high >= true)).double().mean().item()
    assert covered == pytest.approx(0.9, abs=4 * math.sqrt(0.09 / 400))


def test_the_same_seed_gives_the_same_and_points_do_not_share_noise():
    points = torch.zeros(3, 1, dtype=torch.float64)
    first, again = (expectation(constant(), points, paths=100, steps=2, seed=5) for _ in range(2))
    assert torch.equal(first.mean, again.mean)
    assert len(set(first.mean.tolist())) == 3
    assert not torch.equal(first.mean, expectation(constant(), points, paths=100, steps=2, seed=6).mean)


def test_a_field_that_fails_along_the_way_is_named():
    leaves = Problem(
        dimension=1,
        drift=lambda x, t: torch.where(x > 0.5, torch.full_like(x, math.nan), torch.ones_like(x)),
        scale=lambda x, t: torch.zeros_like(x),
        terminal=lambda x: x[:, 0],
    )
    with pytest.raises(UserError, match=r"drift returned nan at x=\(0.6\), t=0.6"):
        expectation(leaves, ORIGIN, paths=2, steps=10, seed=0)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"paths": 1}, "paths=1 must be at least 2"),
        ({"steps": 0}, "steps=0 must be at least 1"),
        ({"confidence": 1.0}, "confidence=1 must lie between 0 and 1"),
        ({"points": torch.zeros(3)}, "must be N×1"),
        ({"points": torch.full((1, 1), math.nan)}, "points must be finite"),
    ],
)
def test_bad_input_is_answered_in_one_line(change, message):
    arguments = {"points": ORIGIN, "paths": 10, "steps": 2, "seed": 0} | change
    with pytest.raises(UserError, match=message):
        expectation(constant(), **arguments)


def test_an_established_library_gives_the_same():
    torchsde = pytest.importorskip("torchsde", reason="torchsde is not installed")
    problem, paths, steps = ornstein_uhlenbeck(), 20_000, 20

    class Equation(torch.nn.Module):
        noise_type, sde_type = "diagonal", "ito"

        def f(self, t, y):
            return problem.drift(y, float(t))

        def g(self, t, y):
            return problem.scale(y, float(t))[:, None]

    start = torch.full((paths, 1), 0.3, dtype=torch.float64)
    ends = torch.tensor([0.0, 1.0], dtype=torch.float64)
    noise = torchsde.BrownianInterval(0.0, 1.0, size=(paths, 1), dtype=torch.float64, entropy=1, dt=1 / steps)
    values = problem.terminal(torchsde.sdeint(Equation(), start, ends, bm=noise, dt=1 / steps, method="euler")[-1])
    ours = expectation(problem, start[:1], paths=paths, steps=steps, seed=0)
    error = math.hypot(ours.standard_error.item(), values.std().item() / math.sqrt(paths))
    assert abs(ours.mean.item() - values.mean().item()) < 4 * error
