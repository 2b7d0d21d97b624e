"""Metrics against values worked out by hand and against theory."""

import math

import numpy as np
import pytest
import torch
from scipy import stats

from pdeplus.errors import UserError
from pdeplus.evaluation.metrics import (
    BINS,
    LEAST,
    apply_temperature,
    average_accuracy,
    ece,
    estimate,
    fit_temperature,
    mce,
    measures,
    paired_bootstrap,
    pool,
    reliability,
    rmce,
    score,
)
from pdeplus.evaluation.records import pack_hits


def sampled(n: int, temperature: float) -> tuple[torch.Tensor, torch.Tensor]:
    """Logits, and labels that follow softmax(logits / T)."""
    z = 3 * torch.randn(n, 10, dtype=torch.float64)
    return z, torch.multinomial((z / temperature).softmax(-1), 1).squeeze(1)


def test_scores_by_hand():
    p = torch.tensor([[0.7, 0.2, 0.1], [0.1, 0.6, 0.3], [0.25, 0.25, 0.5], [0, 0, 1]], dtype=torch.float64)
    s = score(p, torch.tensor([0, 2, 0, 0]))
    assert (s["n"], s["correct"], s["hits"]) == (4, 1, pack_hits(np.array([True, False, False, False])))
    assert s["nll"] == pytest.approx(-(math.log(0.7) + math.log(0.3) + math.log(0.25) + math.log(LEAST)) / 4)
    assert s["brier"] == pytest.approx((0.14 + 0.86 + 0.875 + 2) / 4)
    assert s["ece"] == pytest.approx((0.3 + 0.6 + 0.5 + 1) / 4)
    assert {i: b for i, b in enumerate(s["bins"]) if b.n} == {
        10: (1, 1, 0.7),
        8: (1, 0, 0.6),
        7: (1, 0, 0.5),
        14: (1, 0, 1),
    }


def test_certain_and_right_costs_nothing():
    s = score(torch.eye(3), torch.arange(3))
    assert (s["correct"], s["nll"], s["brier"], s["ece"]) == (3, 0, 0, 0)


def test_ignorance_costs_what_theory_says():
    s = score(torch.full((10, 10), 0.1, dtype=torch.float64), torch.arange(10))
    assert s["nll"] == pytest.approx(math.log(10))
    assert s["brier"] == pytest.approx(0.9)
    assert s["ece"] == pytest.approx(0, abs=1e-12)  # a tenth sure, a tenth right


def test_gaps_within_a_bin_cancel_and_across_bins_do_not():
    right = torch.tensor([True, False])
    assert ece(reliability(torch.tensor([0.61, 0.65]).double(), right)) == pytest.approx(abs(1 - 1.26) / 2)
    assert ece(reliability(torch.tensor([0.59, 0.61]).double(), right)) == pytest.approx((0.41 + 0.61) / 2)


def test_a_confidence_on_an_edge_belongs_to_the_bin_below():
    edges = torch.arange(1, BINS + 1, dtype=torch.float64) / BINS
    for k, edge in enumerate(edges):
        place = [b.n for b in reliability(edge[None], torch.tensor([True]))].index(1)
        assert place == k
    beyond = reliability(edges[:-1] + 1e-9, torch.zeros(BINS - 1).bool())
    assert [b.n for b in beyond] == [0] + [1] * (BINS - 1)
    ends = reliability(torch.tensor([0.0, 1 + 1e-7]).double(), torch.ones(2).bool())
    assert (ends[0].n, ends[-1].n) == (1, 1)


def test_pooled_bins_are_those_of_the_union():
    z, y = sampled(1000, 1.0)
    p = z.softmax(-1)
    parts = [score(p[i : i + 100], y[i : i + 100]) for i in range(0, 1000, 100)]
    pooled, union = pool(s["bins"] for s in parts), score(p, y)
    assert [b[:2] for b in pooled] == [b[:2] for b in union["bins"]]
    assert [b.confidence for b in pooled] == pytest.approx([b.confidence for b in union["bins"]])
    assert ece(pooled) == pytest.approx(union["ece"])
    assert np.mean([s["ece"] for s in parts]) > 1.5 * union["ece"]  # why parts are pooled, not averaged


@pytest.mark.parametrize("temperature", [0.5, 1.0, 2.5])
def test_the_temperature_of_the_data_is_found(temperature):
    z, y = sampled(20_000, temperature)
    p = (z / temperature).softmax(-1)
    variance = ((p * z**2).sum(-1) - (p * z).sum(-1) ** 2).mean().item()  # Fisher information about 1/T
    error = temperature**2 / math.sqrt(len(y) * variance)
    assert fit_temperature(z, y) == pytest.approx(temperature, abs=4 * error)
    assert 4 * error < 0.05 * temperature


def test_a_constant_on_the_logits_changes_no_temperature():
    z, y = sampled(500, 2.0)
    found = fit_temperature(z, y)
    assert fit_temperature(z + 30 * torch.randn(500, 1), y) == pytest.approx(found, rel=1e-4)
    assert fit_temperature(z.log_softmax(-1), y) == pytest.approx(found, rel=1e-4)


def test_one_impossible_label_does_not_spoil_the_temperature():
    z, y = sampled(1000, 2.0)
    p = z.softmax(-1)
    p[0] = torch.eye(10)[(y[0] + 1) % 10]
    found = fit_temperature(p.log(), y)
    at = [measures(apply_temperature(p, found * factor), y)["nll"] for factor in (0.98, 1, 1.02)]
    assert at[1] < min(at[0], at[2])


@pytest.mark.parametrize("temperature", [0.3, 1.0, 4.0])
def test_scaling_divides_the_logits_and_keeps_the_decisions(temperature):
    z, _ = sampled(1000, 1.0)
    scaled = apply_temperature(z.softmax(-1), temperature)
    assert torch.allclose(scaled, (z / temperature).softmax(-1), atol=1e-12)
    assert torch.equal(scaled.argmax(-1), z.argmax(-1))


def test_scaling_a_zero_probability_stays_finite():
    assert torch.allclose(
        apply_temperature(torch.tensor([[1.0, 0.0]]), 2.0), torch.tensor([[1.0, 0.0]]).double(), atol=1e-15
    )
    assert apply_temperature(torch.tensor([[1.0, 0.0]]), 2.0)[0, 1] == pytest.approx(math.sqrt(LEAST))


OURS = {"fog": [0.1, 0.3], "snow": [0.2, 0.4]}
THEIRS = {"snow": [0.3, 0.3], "fog": [0.2, 0.6], "frost": [0.9, 0.9]}


def test_corruption_errors_by_hand():
    assert average_accuracy(OURS) == pytest.approx(0.75)
    assert mce(OURS, THEIRS) == pytest.approx((0.4 / 0.8 + 0.6 / 0.6) / 2)
    assert rmce(OURS, 0.05, THEIRS, 0.1) == pytest.approx((0.15 / 0.3 + 0.25 / 0.2) / 2)


def test_the_baseline_scores_exactly_one():
    assert mce(THEIRS, THEIRS) == 1
    assert rmce(THEIRS, 0.07, THEIRS, 0.07) == 1


def test_no_ratio_to_a_baseline_that_loses_nothing():
    assert math.isnan(mce(OURS, THEIRS | {"fog": [0.0, 0.0]}))
    assert math.isnan(rmce(OURS, 0.05, THEIRS, 0.3))
    assert math.isnan(rmce(OURS, 0.05, THEIRS, 0.35))


def test_a_corruption_the_baseline_lacks_is_named():
    for call in (lambda: mce(THEIRS, OURS), lambda: rmce(THEIRS, 0, OURS, 0)):
        with pytest.raises(UserError, match="frost"):
            call()


def test_the_interval_of_three_values_by_hand():
    e = estimate([1, 2, 3])
    half = 4.302652729911275 / math.sqrt(3)
    assert (e.mean, e.low, e.high) == pytest.approx((2, 2 - half, 2 + half))
    assert e.half_width == pytest.approx(half)
    assert e.values == (1, 2, 3)


def test_one_value_has_no_interval_and_none_is_refused():
    e = estimate([0.7])
    assert (e.mean, e.low, e.high, e.half_width) == (0.7, None, None, None)
    with pytest.raises(UserError, match="at least one"):
        estimate([])


def test_equal_values_have_an_interval_of_no_width():
    assert estimate([0.5, 0.5]).half_width == 0


def test_intervals_cover_as_often_as_they_say():
    samples = np.random.default_rng(0).normal(7, 3, (2000, 4)).tolist()
    covered = sum(e.low <= 7 <= e.high for e in map(estimate, samples) if e.low is not None and e.high is not None)
    assert covered / 2000 == pytest.approx(0.95, abs=4 * math.sqrt(0.95 * 0.05 / 2000))


def answers(n: int, first: float, second: float, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Two networks' right answers on the same images."""
    random = np.random.default_rng(seed)
    return (random.random(n) < first).astype(float), (random.random(n) < second).astype(float)


def test_a_paired_difference_has_the_exact_mean_and_the_width_of_theory():
    a, b = answers(5000, 0.8, 0.7)
    difference = paired_bootstrap([a], [b])
    assert difference.mean == pytest.approx(a.mean() - b.mean(), abs=1e-12)
    half = stats.norm.ppf(0.975) * (a - b).std() / math.sqrt(5000)
    # two quantiles of 2000 draws: each sqrt(0.025 × 0.975 / 2000) / density off, 6 % of a standard deviation
    assert difference.high - difference.low == pytest.approx(2 * half, rel=4 * math.sqrt(2) * 0.06 / 3.92)
    assert (difference.low + difference.high) / 2 == pytest.approx(difference.mean, abs=0.1 * half)


def test_pairing_takes_out_what_both_share():
    shared = np.random.default_rng(0).random(2000) < 0.5
    b = shared.astype(float)
    a = b.copy()
    a[np.flatnonzero(~shared)[:40]] = 1
    difference = paired_bootstrap([a], [b])
    assert difference.mean == pytest.approx(0.02)
    assert 0.01 < difference.low < difference.high < 0.03  # unpaired, the interval would be 0.062 wide


def test_a_clear_difference_is_no_chance_and_never_surer_than_the_draws():
    a, b = answers(2000, 0.9, 0.6)
    assert paired_bootstrap([a], [b]).p == pytest.approx(2 / 2001)
    assert paired_bootstrap([b], [a], resamples=99).p == pytest.approx(2 / 100)


def test_p_is_uniform_where_there_is_no_difference():
    random = np.random.default_rng(0)
    pairs = random.normal(0, 1, (300, 2, 150))
    p = [paired_bootstrap([a], [b], resamples=300, seed=i).p for i, (a, b) in enumerate(pairs)]
    assert stats.kstest(p, "uniform").statistic < 1.95 / math.sqrt(300)  # one in a thousand


def test_the_same_answers_do_not_differ():
    a, _ = answers(100, 0.5, 0.5)
    assert paired_bootstrap([a], [a]) == (0, 0, 0, 1)


def test_sets_of_images_count_the_same_whatever_their_size():
    few, many = np.ones(10), np.zeros(1000)
    difference = paired_bootstrap([few, many], [np.zeros(10), many])
    assert difference[:3] == pytest.approx((0.5, 0.5, 0.5))
    a, b = answers(50, 0.9, 0.1)
    both = paired_bootstrap([a, many], [b, many])
    alone = paired_bootstrap([a], [b])
    assert both[:3] == pytest.approx([v / 2 for v in alone[:3]])


@pytest.mark.parametrize("other", [[np.ones(3)], [np.ones(3), np.ones(5)], [np.ones(4), np.ones(3)], []])
def test_different_images_cannot_be_paired(other):
    with pytest.raises(UserError, match="same images"):
        paired_bootstrap([np.ones(3), np.ones(4)], other)


def test_the_same_seed_draws_the_same():
    a, b = answers(300, 0.8, 0.7)
    assert paired_bootstrap([a], [b], seed=3) == paired_bootstrap([a], [b], seed=3)
    assert paired_bootstrap([a], [b], seed=3) != paired_bootstrap([a], [b], seed=4)


def test_equal_errors_that_are_not_exact_in_binary_have_no_ratio():
    """44 of 50 right everywhere: the mean of five such errors differs from one of them by rounding."""
    error = 1 - 44 / 50
    same = {"fog": [error] * 5, "snow": [error] * 5}
    assert math.isnan(rmce({"fog": [0.5] * 5, "snow": [0.5] * 5}, 0.1, same, error))
