"""The grid solver against closed forms: its order, its bounds and what it refuses."""

import math
from dataclasses import replace

import pytest
import torch

from pdeplus.errors import UserError
from pdeplus.theory.checks import CELLS, cases, grid_order
from pdeplus.theory.problems import (
    Problem,
    benes,
    constant,
    directed,
    exact,
    geometric,
    ornstein_uhlenbeck,
    sheared,
    stretched,
)
from pdeplus.theory.transport import DIFFUSION_LIMIT, TRANSPORT_LIMIT, Grid, box, least_steps, solve

CASES = {case.title: case for case in cases()}


def line(points: int, half: float = 6.0) -> Grid:
    return box(1, half, points - 1)


def transported(terminal, velocity: float = 1.0, sigma: float = 0.0, bounds=(-1.0, 1.0)) -> Problem:
    return Problem(
        dimension=1,
        drift=lambda x, t: torch.full_like(x, velocity),
        scale=lambda x, t: x.new_full((len(x),), sigma),
        terminal=terminal,
        bounds=bounds,
    )


@pytest.mark.parametrize(
    "problem",
    [
        constant(drift=(0.7, -0.3)),
        ornstein_uhlenbeck(dimension=2, rate=-0.5, turn=1.3),
        geometric(dimension=2, rate=0.3),
        stretched(),
        benes(speed=1.2, scale=0.7),
    ],
    ids=["constant", "turning", "geometric", "stretched", "benes"],
)
def test_closed_forms_solve_the_equation(problem):
    """∂u/∂t + F·∇u + ½G²Δu = 0 by automatic differentiation, at points and times at random."""
    x = torch.randn(20, problem.dimension, dtype=torch.float64).requires_grad_()
    t, h = 0.37, 1e-5
    u = problem.solution(x, t)
    (slope,) = torch.autograd.grad(u.sum(), x, create_graph=True)
    laplacian = sum(torch.autograd.grad(slope[:, i].sum(), x, retain_graph=True)[0][:, i] for i in range(x.shape[1]))
    in_time = (problem.solution(x, t + h) - problem.solution(x, t - h)) / (2 * h)
    left = in_time + (problem.drift(x, t) * slope).sum(-1) + problem.scale(x, t) ** 2 / 2 * laplacian
    assert left.abs().max() < 1e-6
    assert slope.abs().max() > 0.1  # and it is not a constant
    assert torch.allclose(problem.solution(x, 1.0), problem.terminal(x))


@pytest.mark.parametrize("title", [title for title in CASES if "|x|" not in title])
def test_the_grid_is_of_third_order(title):
    order = grid_order(CASES[title])
    assert order.slope == pytest.approx(3, abs=0.2)
    assert order.errors[-1] < 3e-4
    assert len(order.errors) == len(CELLS[CASES[title].problem.dimension])


@pytest.mark.parametrize("dimension", [1, 2])
def test_a_parabola_is_exact_away_from_the_walls(dimension):
    """Differences of third order are exact for |x|², whatever G does in space; only time steps err."""
    problem = geometric(dimension=dimension, rate=0.0, scale=0.3)
    grid = box(dimension, 6.0, 60)
    near = grid.nodes.norm(dim=-1) <= 1
    found = solve(problem, grid).on_grid().reshape(-1)[near]
    assert torch.allclose(found, exact(problem, grid.nodes[near]), atol=1e-4)


def test_every_accepted_step_is_stable():
    """Von Neumann: sums of the symbols of both terms, within the limits, are not amplified by the Runge-Kutta step."""
    angle = torch.linspace(0, 2 * math.pi, 181, dtype=torch.float64)
    transport = torch.complex(-((1 - angle.cos()) ** 2) / 3, angle.sin() * (4 - angle.cos()) / 3) * TRANSPORT_LIMIT
    diffusion = -(15 - 16 * angle.cos() + (2 * angle).cos()) / 6 * DIFFUSION_LIMIT
    symbols = torch.cat([transport, torch.complex(diffusion, torch.zeros_like(diffusion))])
    for share in torch.linspace(0, 1, 21):
        z = share * symbols[:, None] + (1 - share) * symbols
        assert (1 + z + z**2 / 2 + z**3 / 6).abs().max() <= 1 + 1e-9


@pytest.mark.parametrize("sigma", [0.0, 0.3])
@pytest.mark.parametrize("seed", range(2))
def test_noise_at_the_end_stays_bounded_at_the_least_steps(sigma, seed):
    """Walls and all: random waves as field, of a few cells and more, and nothing cut."""
    stream = torch.Generator().manual_seed(seed)
    waves = torch.randn(2, 2, 4, generator=stream, dtype=torch.float64) * 4
    ending = torch.rand(31 * 31, generator=stream, dtype=torch.float64) * 2 - 1
    problem = Problem(
        dimension=2,
        drift=lambda x, t: (torch.einsum("nd,dkw->nkw", x, waves) + 3 * t).sin().sum(-1),
        scale=lambda x, t: x.new_full((len(x),), sigma),
        terminal=lambda x: ending,
        bounds=(-math.inf, math.inf),
    )
    grid = box(2, 1.0, 30)
    found = solve(problem, grid, least_steps(problem, grid))
    assert found.values.abs().max() < 2


def test_a_field_that_no_grid_resolves_is_cut_to_the_range_of_the_end():
    velocity = torch.randn(41 * 41, 2, dtype=torch.float64)
    ending = torch.rand(41 * 41, dtype=torch.float64)
    problem = Problem(
        dimension=2, drift=lambda x, t: velocity, scale=lambda x, t: 0 * x[:, 0], terminal=lambda x: ending
    )
    found = solve(problem, box(2, 1.0, 40)).values
    assert -0.1 <= found.min() < found.max() <= 1.1


def test_too_few_steps_are_refused_with_the_bound():
    problem, grid = constant(), line(101)
    least = least_steps(problem, grid)
    need = 1.0 / 0.12 / TRANSPORT_LIMIT + 0.08 / 0.12**2 / DIFFUSION_LIMIT
    assert least == math.ceil(need)
    assert solve(problem, grid, least).steps == least
    with pytest.raises(UserError, match=f"steps={least - 1} must be at least {least} "):
        solve(problem, grid, least - 1)


def test_a_field_that_grows_between_the_looks_is_caught():
    spike = Problem(
        dimension=1,
        drift=lambda x, t: torch.full_like(x, 1000.0 if 0.51 < t < 0.53 else 1.0),
        scale=lambda x, t: x.new_zeros(len(x)),
        terminal=lambda x: x[:, 0].sin(),
    )
    with pytest.raises(UserError, match=r"steps=\d+ must be at least \d+ for the fields at t=0.5"):
        solve(spike, line(101), 300)


@pytest.mark.parametrize(("name", "place"), [("drift", "t=1"), ("scale", "t=1"), ("terminal", "t=1")])
@pytest.mark.parametrize("bad", [math.nan, math.inf])
def test_a_field_that_is_not_finite_is_refused_by_name_and_place(name, place, bad):
    good = constant()

    def spoilt(x, *t):
        value = getattr(good, name)(x, *t).clone()
        value[x[:, 0].abs() < 1e-9] = bad
        return value

    fields = {key: getattr(good, key) for key in ("drift", "scale", "terminal")} | {name: spoilt}
    with pytest.raises(UserError, match=rf"{name} returned {bad} at x=\((-?0|.*e-\d+)\), t=\d"):
        solve(Problem(dimension=1, **fields), line(101))


def test_a_wrong_shape_is_told():
    bad = Problem(dimension=1, drift=lambda x, t: x[:, 0], scale=lambda x, t: x[:, 0], terminal=lambda x: x[:, 0])
    with pytest.raises(UserError, match=r"drift returned the shape \(101,\) for 101 points; it must be \(101, 1\)"):
        solve(bad, line(101))


def test_a_grid_too_coarse_for_the_diffusion_is_refused_and_the_number_it_names_suffices():
    """|F|h³ > 6G⁴: with F = 1 and G = 0.05 the spacing must be at most 0.0335."""
    step = transported(lambda x: x[:, 0].sign(), sigma=0.05)
    with pytest.raises(UserError, match="points=101 smooth more.*; 360 points suffice"):
        solve(step, line(101))
    slope = 2 / (0.05 * math.sqrt(2 * math.pi))  # of u where it crosses 0
    for points, least in ((360, 0.5), (1000, 0.85)):  # a jump is the worst case: its slope is all the diffusion's
        x = torch.linspace(-1.2, -0.8, 1001, dtype=torch.float64)[:, None]
        found = solve(step, line(points)).at(x).diff().max().item() / 0.0004
        assert least * slope < found < slope


def test_a_grid_too_coarse_in_places_warns():
    problem = geometric(rate=0.5, scale=0.3)  # G falls to 0 at x = 0, more slowly than F alone would allow
    with pytest.warns(UserWarning, match=r"points=101 smooth more than the diffusion asked for at [0-9.]+ % "):
        solve(problem, line(101))


def test_without_diffusion_a_step_stays_a_step():
    """Moved by 1 over 100 cells, a jump of 2 is spread over a few cells, and never beyond its values."""
    found = solve(transported(lambda x: (x[:, 0] - 0.5).sign()), line(601, half=3.0)).on_grid()
    assert found.abs().max() <= 1
    between = (found.abs() < 0.9).sum().item()
    assert between <= 12  # a difference of first order acts as a diffusion of σ = √(|F|h): 33 cells


def test_the_number_of_threads_is_as_before():
    before = torch.get_num_threads()
    seen = set[int]()

    def drift(x, t):
        seen.add(torch.get_num_threads())
        return torch.zeros_like(x)

    good = constant()
    torch.set_num_threads(2)
    try:
        solve(Problem(dimension=1, drift=drift, scale=good.scale, terminal=good.terminal), line(51))
        assert (seen, torch.get_num_threads()) == ({1}, 2)
    finally:
        torch.set_num_threads(before)


def test_times_are_kept_in_the_order_asked_for():
    problem, grid = constant(), line(201)
    found = solve(problem, grid, keep=(0.0, 1.0, 0.37))
    assert found.times == (0.0, 1.0, 0.37)
    for t in found.times:
        inner = grid.axes[0].abs() <= 2
        assert torch.allclose(found.on_grid(t)[inner], problem.solution(grid.nodes, t)[inner], atol=5e-4)
    with pytest.raises(UserError, match="t=0.5 was not kept"):
        found.on_grid(0.5)


def test_values_between_grid_points_and_outside():
    problem = constant(drift=(0.5, 0.2))
    found = solve(problem, box(2, 4.0, 80))
    x = torch.rand(50, 2, dtype=torch.float64) * 2 - 1
    assert torch.allclose(found.at(x), exact(problem, x), atol=2e-3)
    with pytest.raises(UserError, match=r"the point \(5, 0\) lies outside"):
        found.at(torch.tensor([[5.0, 0.0]]))
    with pytest.raises(UserError, match="must be N×2"):
        found.at(torch.zeros(3))


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: solve(constant(), box(2, 1.0, 10)), "grid has 2 dimensions and the problem 1"),
        (lambda: solve(constant(), line(51), keep=()), "keep must name"),
        (lambda: solve(constant(), line(51), keep=(1.5,)), "keep has 1.5"),
        (lambda: Grid(low=(1.0,), high=(0.0,), points=(9,)), "low=1 must be below high=0"),
        (lambda: Grid(low=(0.0,), high=(1.0,), points=(4,)), "points=4 must be at least 5"),
        (lambda: Grid(low=(0.0,) * 3, high=(1.0,) * 3, points=(9,) * 3), "1 or 2 entries"),
        (lambda: ornstein_uhlenbeck(turn=1.0), "turn=1 needs dimension=2"),
        (lambda: constant(width=0.0), "width=0 must be above 0"),
    ],
)
def test_bad_input_is_answered_in_one_line(call, message):
    with pytest.raises(UserError, match=message) as caught:
        call()
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    "problem",
    [directed(), directed(columns=((0.5, 0.3), (-0.2, 0.4))), sheared(), sheared(rate=-0.2, shear=0.0, share=1.0)],
    ids=["one column", "two columns", "sheared", "swapped"],
)
def test_closed_forms_with_a_matrix_solve_the_equation(problem):
    """∂u/∂t + F·∇u + ½ tr(G Gᵀ ∇²u) = 0 by automatic differentiation."""
    x = torch.randn(20, 2, dtype=torch.float64, generator=torch.Generator().manual_seed(0)).requires_grad_()
    t, h = 0.37, 1e-5
    (slope,) = torch.autograd.grad(problem.solution(x, t).sum(), x, create_graph=True)
    rows = [torch.autograd.grad(slope[:, i].sum(), x, retain_graph=True)[0] for i in range(2)]
    g = problem.scale(x, t)
    curved = ((g @ g.mT) * torch.stack(rows, 1)).sum((1, 2)) / 2
    in_time = (problem.solution(x, t + h) - problem.solution(x, t - h)) / (2 * h)
    assert (in_time + (problem.drift(x, t) * slope).sum(-1) + curved).abs().max() < 1e-6
    assert curved.abs().max() > 0.05
    assert torch.allclose(problem.solution(x, 1.0), problem.terminal(x))


def test_a_matrix_that_is_a_number_times_the_identity_is_that_number():
    plain = constant(drift=(0.8, -0.4), scale=0.3)
    eye = torch.eye(2, dtype=torch.float64)
    matrix = replace(plain, scale=lambda x, t: (0.3 * eye).to(x).expand(len(x), 2, 2))
    grid = box(2, 4.0, 60)
    assert torch.allclose(solve(matrix, grid).on_grid(), solve(plain, grid).on_grid(), atol=1e-12)


def test_one_column_smooths_along_itself_and_nowhere_else():
    """Without drift and along x, every row of the grid is a problem on a line; across, nothing changes."""
    problem = directed(drift=(0.0, 0.0), columns=((0.5, 0.0),))
    found = solve(problem, box(2, 4.0, 80)).on_grid()
    line = solve(constant(drift=(0.0,), scale=0.5), box(1, 4.0, 80)).on_grid()
    across = torch.exp(-(torch.linspace(-4, 4, 81, dtype=torch.float64) ** 2) / 0.5)
    assert torch.allclose(found, line[:, None] * across, atol=2e-3)


@pytest.mark.parametrize("angle", [0.3, math.pi / 4, 2.0])
def test_steps_at_the_limit_stay_bounded_for_any_direction(angle):
    problem = replace(
        directed(drift=(0.0, 0.0), columns=((math.cos(angle), math.sin(angle)),)),
        terminal=lambda x: torch.sign(torch.sin(40 * x).prod(-1)),
        bounds=(-1e9, 1e9),
    )
    grid = box(2, 2.0, 40)
    assert solve(problem, grid, least_steps(problem, grid)).on_grid().abs().max() < 1.5


def test_a_matrix_of_the_wrong_shape_is_answered_in_one_line():
    problem = replace(directed(), scale=lambda x, t: torch.zeros(len(x), 3, 1))
    with pytest.raises(UserError, match=r"scale returned the shape .* it must be"):
        solve(problem, box(2, 2.0, 20))
