"""The figure "Solutions to 2D TE": what is learnt, what is solved, what is written."""

import io
import json
import math
import sys
from contextlib import chdir, redirect_stdout
from pathlib import Path

import pytest
import torch
from support.theory_run import made_surfaces

from pdeplus.cli import main
from pdeplus.errors import UserError
from pdeplus.theory.directional import along_arm, carried
from pdeplus.theory.figures import surfaces_figure
from pdeplus.theory.problems import Problem
from pdeplus.theory.run import run_theory
from pdeplus.theory.surfaces import (
    GROWTH,
    LAYERS,
    REACH,
    SCALES,
    Points,
    Surfaces,
    fit_points,
    fit_scale,
    flow,
    in_layers,
    output,
    roughness,
    similar_pairs,
    two_spirals,
    vote,
)
from pdeplus.theory.transport import Grid, solve


def stream(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


@pytest.fixture(scope="module")
def found() -> Surfaces:
    return made_surfaces()


def test_spirals_are_balanced_and_some_labels_are_wrong():
    points = two_spirals(4000, flipped=0.1, generator=stream())
    assert points.labels.double().mean().item() == 0.5
    wrong = (points.labels != points.given).double().mean().item()
    assert wrong == pytest.approx(0.1, abs=4 * math.sqrt(0.09 / 4000))
    turned = two_spirals(4000, flipped=0.0, generator=stream(1))
    centres = torch.stack([turned.x[turned.labels == label].mean(0) for label in (0, 1)])
    assert torch.allclose(centres[0], -centres[1], atol=0.1)  # one arm is the other, turned by half a circle


def test_similar_points_keep_the_vote_of_their_neighbours():
    points = two_spirals(200, flipped=0.1, generator=stream())
    original, twin = similar_pairs(points, stream(1))
    assert torch.equal(vote(points, original), vote(points, twin))
    assert len(original) < 20 * 200  # some were left out
    assert (twin - original).std().item() < REACH  # and those were the far ones


def test_a_learnt_scale_is_the_spread_of_similar_points():
    """Two clusters far apart, of which every jitter keeps the vote: the coverage is least at σ = the jitter's own."""
    x = torch.cat([torch.zeros(20, 2), torch.full((20, 2), 9.0)]).double() + 0.01 * torch.randn(40, 2).double()
    labels = torch.arange(40) // 20
    scale = fit_scale(Points(x, labels, labels), iterations=100, generator=stream(), count=lambda n, total=None: None)
    assert scale(x, 0.0).mean().item() == pytest.approx(REACH, rel=0.05)
    assert SCALES[0] < REACH < SCALES[1]


def test_a_learnt_scale_is_small_where_classes_are_close():
    """In the spirals the gap grows with the radius."""
    points = two_spirals(160, flipped=0.1, generator=stream())
    learnt = fit_scale(points, iterations=200, generator=stream(1), count=lambda n, total=None: None)
    x = two_spirals(2000, flipped=0.0, generator=stream(7)).x
    radius, scale = x.norm(dim=-1), learnt(x, 0.3)
    inner, outer = scale[radius < 0.45].mean().item(), scale[radius > 1.0].mean().item()
    assert inner < 0.9 * outer


def test_layers_are_straight_lines_between_their_values():
    field = in_layers(lambda x, t: x * t**2, 4)
    x = torch.ones(3, 2, dtype=torch.float64)
    assert torch.allclose(field(x, 0.5), torch.tensor(0.25).double())
    assert torch.allclose(field(x, 0.625), torch.tensor((0.25 + 0.5625) / 2).double())
    assert torch.allclose(field(x, 1.0), torch.tensor(1.0).double())
    assert torch.allclose(field(2 * x, 0.5), torch.tensor(0.5).double())  # other points, other values


def test_the_network_is_the_solution_without_diffusion(found):
    """Residual network against grid: they differ by the network's Euler steps."""
    assert found.network_gap < 0.05
    network = output(flow(found.fitted.velocity, found.fitted.train.x)[-1]) > 0.5
    solved = found.surfaces[0].solution.at(found.fitted.train.x) > 0.5
    assert (network == solved).double().mean() > 0.9


def test_four_surfaces_and_their_numbers(found):
    assert [one.name for one in found.surfaces] == ["none", "small", "large", "adaptive"]
    none, small, large, adaptive = found.surfaces
    assert none.roughness > small.roughness > adaptive.roughness > large.roughness
    assert none.held_out_accuracy > 0.75
    for one in found.surfaces:
        assert 0 <= one.solution.values.min() < one.solution.values.max() <= 1
        right = ((one.solution.at(found.fitted.train.x) > 0.5) == (found.fitted.train.given == 1)).double().mean()
        assert one.train_accuracy == pytest.approx(right.item())


def test_roughness_of_a_plane_is_its_slope():
    grid = Grid(low=(-3.5, -3.5), high=(3.5, 3.5), points=(71, 71))
    plane = Problem(
        dimension=2,
        drift=lambda x, t: torch.zeros_like(x),
        scale=lambda x, t: torch.zeros_like(x[:, 0]),
        terminal=lambda x: 3 * x[:, 0] - 4 * x[:, 1],
    )
    assert roughness(solve(plane, grid)) == pytest.approx(5)


def test_equal_seeds_give_equal_surfaces():
    first, again, other = (fit_points(seed=seed, points=40, iterations=20) for seed in (1, 1, 2))
    x = torch.randn(10, 2, dtype=torch.float64)
    assert torch.equal(first.velocity(x, 0.4), again.velocity(x, 0.4))
    assert torch.equal(first.scale(x, 0.4), again.scale(x, 0.4))
    assert not torch.equal(first.velocity(x, 0.4), other.velocity(x, 0.4))


def test_layers_carry_the_tangent_of_an_arm_by_their_derivative():
    """Of h ← h + Ah/L the derivative is (I + A/L), so after l layers the tangent at the start, times its l-th power."""
    matrix = torch.tensor([[0.2, -0.5], [0.4, 0.1]], dtype=torch.float64)
    step = torch.eye(2, dtype=torch.float64) + matrix / LAYERS
    x = 0.5 * torch.randn(10, 2, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    found = carried(lambda h, t: h @ matrix.T)(x, 0.5)
    power = torch.linalg.matrix_power(step, LAYERS // 2)
    assert torch.allclose(found, along_arm(torch.linalg.solve(power, x.T).T) @ power.T, atol=1e-4)
    assert torch.allclose(carried(lambda h, t: torch.ones_like(h))(x, 0.0), along_arm(x), atol=1e-8)


def test_the_tangent_of_an_arm_is_the_spirals():
    a, h = torch.linspace(0, 4, 9, dtype=torch.float64), 1e-6

    def arm(angle):
        return (0.3 * (GROWTH * angle).exp())[:, None] * torch.stack([angle.cos(), angle.sin()], -1)

    assert torch.allclose(along_arm(arm(a)), (arm(a + h) - arm(a - h)) / (2 * h), atol=1e-6)


def test_too_few_points_are_refused():
    with pytest.raises(UserError, match="points=5, iterations=10 must be at least 20 and 1"):
        fit_points(points=5, iterations=10)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Everything, by README's command."""
    home = tmp_path_factory.mktemp("theory")
    with chdir(home), redirect_stdout(io.StringIO()) as printed, pytest.raises(SystemExit) as left:
        main(["theory", "--quick", "--out", "theory"])
    assert (left.value.code, printed.getvalue()) == (0, "theory\n")
    return home / "theory"


def test_everything_is_written(folder):
    names = {"surfaces", "directions", "agreement", "orders", "smoothness", "corollary"}
    expected = {f"theory-{name}.{kind}" for name in names for kind in ("png", "svg")}
    assert {path.name for path in folder.iterdir()} == expected | {"theory.html", "summary.json", "summary.md"}
    assert all(path.stat().st_size > 500 for path in folder.iterdir())
    assert (folder / "theory.html").stat().st_size < 2_000_000


def test_the_summary_holds_the_numbers(folder):
    summary = json.loads((folder / "summary.json").read_text("utf-8"))
    assert summary["command"] == "pdeplus theory --quick --seed 0"
    assert set(summary["surfaces"]) == {"none", "small", "large", "adaptive"}
    assert summary["orders"]["grid, Ornstein-Uhlenbeck"]["slope"] == pytest.approx(3, abs=0.2)
    assert summary["theorem_1"]["largest_difference_over_bound"] < 1.001
    assert summary["corollary"][0]["samples_needed"] is None
    text = (folder / "summary.md").read_text("utf-8")
    assert "| none |" in text
    assert "± " in text


@pytest.mark.parametrize("module", ["matplotlib", "matplotlib.figure", "matplotlib.colors"])
def test_without_the_extra_the_figures_say_what_to_install(tmp_path, monkeypatch, module):
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(UserError, match=r"needs matplotlib: pip install 'pdeplus\[plots\]'$"):
        run_theory(tmp_path / "out") if module == "matplotlib" else surfaces_figure(made_surfaces())
    assert not list(tmp_path.iterdir())


def test_a_file_in_the_way_is_told(tmp_path):
    (tmp_path / "taken").write_text("")
    with pytest.raises(UserError, match="taken is a file; choose a folder"):
        run_theory(tmp_path / "taken", quick=True)
