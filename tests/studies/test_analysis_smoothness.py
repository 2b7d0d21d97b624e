"""Local slopes and distances to the boundary against linear networks, where all have closed forms."""

import math

import numpy as np
import pytest
import torch
from scipy import stats
from torch import Tensor, nn

from pdeplus.core.surgery import Constant, add_noise
from pdeplus.errors import UserError
from pdeplus.studies.analysis.boundary import boundary_distances, boundary_figure, boundary_rows, rank_correlations
from pdeplus.studies.analysis.figures import as_spec
from pdeplus.studies.analysis.smoothness import (
    random_slopes,
    slopes,
    smoothness_figure,
    smoothness_rows,
    steepest_slopes,
)

SHAPE = (1, 2, 3)


def linear(weight: Tensor, bias: Tensor | None = None) -> nn.Module:
    """f(x) = W x + b of flattened images."""
    layer = nn.Linear(weight.shape[1], weight.shape[0])
    with torch.no_grad():
        layer.weight.copy_(weight)
        layer.bias.copy_(torch.zeros(len(weight)) if bias is None else bias)
    return nn.Sequential(nn.Flatten(), layer).eval()


def matrix(rows: int, seed: int = 0) -> Tensor:
    return torch.randn(rows, 6, generator=torch.Generator().manual_seed(seed))


def some(n: int, seed: int = 1) -> Tensor:
    return torch.rand(n, *SHAPE, generator=torch.Generator().manual_seed(seed))


def test_slopes_along_data_are_those_of_the_matrix():
    w, x, moved = matrix(4), some(5), some(5, seed=2)
    d = (moved - x).flatten(1)
    assert torch.allclose(slopes(linear(w), x, moved), (d @ w.T).norm(dim=1) / d.norm(dim=1), rtol=1e-4)


def test_random_slopes_are_uniform_over_directions():
    """The mean square of ‖W u‖ over the unit sphere is ‖W‖²_F / d, at every length."""
    w, x = matrix(4), some(20_000)
    for norm in (0.1, 10.0):
        found = random_slopes(linear(w), x, norm, torch.Generator().manual_seed(3))
        assert found.square().mean().item() == pytest.approx(w.square().sum().item() / 6, rel=0.02)
    turned, _ = torch.linalg.qr(matrix(6))
    assert torch.allclose(
        random_slopes(linear(3 * turned), x[:9], 1.0, torch.Generator()), torch.tensor(3.0), rtol=1e-4
    )


def test_the_steepest_slope_is_the_spectral_norm():
    w = matrix(4)
    found = steepest_slopes(linear(w), some(7), 60, torch.Generator().manual_seed(4))
    assert torch.allclose(found, torch.linalg.matrix_norm(w, 2), rtol=1e-4)
    early = steepest_slopes(linear(w), some(7), 1, torch.Generator().manual_seed(4))
    assert (early <= torch.linalg.matrix_norm(w, 2) * (1 + 1e-5)).all()


def test_the_steepest_slope_is_each_images_own():
    """Of f(x) = x² elementwise the Jacobian is diag(2x): its norm is 2 max |x|."""
    x = some(6)
    found = steepest_slopes(lambda x: x.flatten(1).square(), x, 200, torch.Generator().manual_seed(5))
    assert torch.allclose(found, 2 * x.flatten(1).amax(1), rtol=1e-2)
    assert steepest_slopes(lambda x: 0 * x.flatten(1), x, 3, torch.Generator()).tolist() == [0] * 6


def test_a_real_network_is_steepest_along_its_steepest_direction(net, x):
    rows = smoothness_rows(net, x, {"negative": 1 - x, "same": x}, norms=[1e-2], of="logits")
    by = {row["direction"]: row for row in rows}
    assert list(by) == ["to negative", "to same", "random, length 0.01", "steepest"]
    assert by["to same"] == {"direction": "to same", "n": 0, "mean": None, "median": None, "low": None, "high": None}
    assert by["random, length 0.01"]["high"] < by["steepest"]["low"]


def test_rows_hold_quantiles_of_probabilities_or_logits():
    w, x = matrix(2), some(100)
    moved = x + 0.1
    (logits, *_) = smoothness_rows(linear(w), x, {"lighter": moved}, of="logits")
    expected = w.sum(1).norm().item() / math.sqrt(6)
    assert [logits[key] for key in ("low", "median", "high")] == pytest.approx([expected] * 3, rel=1e-3)
    (probabilities, *_) = smoothness_rows(linear(w), x, {"lighter": moved})
    p = [linear(w)(one).softmax(-1).detach() for one in (x, moved)]
    each = (p[1] - p[0]).norm(dim=1) / (0.1 * math.sqrt(6))
    assert probabilities["median"] == pytest.approx(float(each.quantile(0.5)), rel=1e-3)
    assert probabilities["n"] == 100


def test_bad_input_is_answered_in_one_line():
    with pytest.raises(UserError, match="norms has 0"):
        smoothness_rows(linear(matrix(2)), some(2), {}, norms=[0])
    with pytest.raises(UserError, match="of='nothing'"):
        smoothness_rows(linear(matrix(2)), some(2), {}, of="nothing")  # type: ignore[arg-type]
    with pytest.raises(UserError, match="rivals=0"):
        boundary_distances(linear(matrix(2)), some(2), 0)


def test_the_distance_to_a_plane_is_exact():
    """Two classes: |(w₁ - w₂)·x + b₁ - b₂| / ‖w₁ - w₂‖."""
    w, b, x = matrix(2), torch.tensor([0.3, -0.2]), some(50)
    margin = x.flatten(1) @ (w[0] - w[1]) + b[0] - b[1]
    found = boundary_distances(linear(w, b), x)
    assert torch.allclose(found, margin.abs() / (w[0] - w[1]).norm(), rtol=1e-4, atol=1e-6)


def test_the_distance_to_the_nearest_of_several_planes_is_exact():
    w, x = matrix(5), some(50)
    z = x.flatten(1) @ w.T
    top = z.argmax(1)
    gaps = z.gather(1, top[:, None]) - z
    each = gaps / (w[top][:, None] - w).norm(dim=-1)
    nearest = each.scatter(1, top[:, None], math.inf).amin(1)
    assert torch.allclose(boundary_distances(linear(w), x, 4), nearest, rtol=1e-4, atol=1e-6)
    assert (boundary_distances(linear(w), x, 1) >= nearest * (1 - 1e-4)).all()


def test_where_nothing_leads_to_another_class_the_distance_is_infinite_and_left_out():
    flat = linear(torch.zeros(3, 6), torch.tensor([1.0, 0.0, 0.5]))
    assert boundary_distances(flat, some(2)).tolist() == [math.inf] * 2
    noisy = add_noise(flat, ["0"], lambda name: Constant(0.5))
    assert boundary_rows(noisy, some(2), torch.tensor([0, 1])) == []


class Lightness(nn.Module):
    """σ is the image's mean pixel."""

    def forward(self, h: Tensor) -> Tensor:
        return h.mean(1, keepdim=True).expand_as(h)


def test_rows_join_distance_sigma_and_correctness():
    """The margin is √6 times the mean pixel less one half, σ the mean pixel: one rises with the other."""
    w = torch.stack([torch.full((6,), 1.0), torch.zeros(6)])
    x = torch.linspace(0.6, 1.0, 9).view(-1, 1, 1, 1).expand(9, *SHAPE)
    noisy = add_noise(linear(w, torch.tensor([-3.0, 0.0])), ["0"], lambda name: Lightness())
    rows = boundary_rows(noisy, x, torch.tensor([0] * 8 + [1]))
    assert [row["sigma"] for row in rows] == pytest.approx(torch.linspace(0.6, 1.0, 9).tolist())
    expected = [math.sqrt(6) * (row["sigma"] - 0.5) for row in rows]
    assert [row["distance"] for row in rows] == pytest.approx(expected, rel=1e-3)
    assert [row["correct"] for row in rows] == [True] * 8 + [False]
    (found,) = rank_correlations(rows)
    assert (found["block"], found["images"]) == ("0", 9)
    assert found["correlation"] == pytest.approx(1)
    assert 0.999 < found["low"] <= found["high"] <= 1


def pairs(x: np.ndarray, y: np.ndarray) -> list[dict]:
    return [{"block": "a", "distance": float(d), "sigma": float(s)} for d, s in zip(x, y, strict=True)]


def test_the_interval_covers_the_true_rank_correlation_as_often_as_it_says():
    """Of normal pairs with correlation r, Spearman's is 6/π arcsin(r/2)."""
    random, r, covered = np.random.default_rng(0), 0.6, 0
    truth = 6 / math.pi * math.asin(r / 2)
    for _ in range(400):
        x, e = random.normal(size=(2, 60))
        (row,) = rank_correlations(pairs(x, r * x + math.sqrt(1 - r**2) * e))
        covered += row["low"] <= truth <= row["high"]
    assert stats.binomtest(covered, 400, 0.95).pvalue > 0.001


def test_a_constant_sigma_or_few_images_have_no_correlation():
    for rows in (pairs(np.arange(9.0), np.ones(9)), pairs(np.arange(3.0), np.arange(3.0))):
        (row,) = rank_correlations(rows)
        assert row["correlation"] is row["low"] is row["high"] is None


def test_the_trend_of_the_figure_is_made_of_medians_of_equal_bins():
    x = np.arange(80.0)
    rows = [row | {"correct": i != 3} for i, row in enumerate(pairs(x, 2 * x))]
    drawn = as_spec(boundary_figure(rows, "t"))["data"]["values"]
    trend = [(row["x"], row["y"]) for row in drawn if row["kind"] == "trend"]
    assert trend == [(4.5 + 10 * k, 9 + 20 * k) for k in range(8)]
    assert sum(row["kind"] == "wrong" for row in drawn) == 1
    assert [row["text"] for row in drawn if row["kind"] == "note"] == ["ρ = 1.00 (1.00 to 1.00)"]


def test_figures_tell_runs_apart_and_stay_on_a_logarithmic_axis():
    row = {"direction": "steepest", "n": 3, "mean": 1.0, "median": 0.02, "low": 0.0, "high": 3.0}
    none = {"direction": "to same", "n": 0, "mean": None, "median": None, "low": None, "high": None}
    spec = as_spec(smoothness_figure([{"run": name, **one} for name in "ab" for one in (row, none)], "t"))
    drawn = spec["data"]["values"]
    assert [one["series"] for one in drawn] == ["a", "b"]
    assert all(one["low"] > 0 for one in drawn)
    assert spec["layer"][0]["encoding"]["y"]["axis"]["values"] == pytest.approx([0.01, 0.1, 1, 10])
    two = [one | {"run": run, "correct": True} for run in "ab" for one in pairs(np.arange(5.0), np.arange(5.0))]
    assert as_spec(boundary_figure(two, "t"))["facet"]["row"]["sort"] == ["a", "b"]
