"""Series, gaps, scores and comparisons of records made by hand."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from support.hand_records import ALL_CELLS, one_seed, record

from pdeplus.corruptions.suite import CBAR, CORRUPTIONS, SUITE
from pdeplus.evaluation.metrics import paired_bootstrap
from pdeplus.evaluation.records import CLEAN, Record, pack_hits
from pdeplus.evaluation.summary import (
    SCORES,
    Series,
    accuracies_by_test,
    compare,
    compare_seeds,
    find_baseline,
    scores,
    series_of,
    severity_accuracies,
)

SLOPE = {"noise": 0.1, "blur": 0.02, "weather": 0.04, "digital": 0.06}
"""Error for each step of severity, by family: 3 corruptions in the first, 4 in each other."""


def sloping(name: str, severity: int) -> float:
    return 0.05 if name == CLEAN else SLOPE[SUITE[name].family] * severity


def flat(noise: float, rest: float, clean: float = 0.2):
    return lambda name, severity: clean if name == CLEAN else noise if SUITE[name].family == "noise" else rest


def only(records: list[Record]) -> Series:
    (series,) = series_of(records)
    return series


def mean(values: dict[str, Any], name: str) -> float:
    return values[name].mean


def test_seeds_of_a_model_are_one_series():
    series = only([r for seed in (3, 1, 2) for r in one_seed(sloping, seed=seed, weights=str(seed))])
    assert list(series.seeds) == [3, 1, 2]
    assert all(len(cells) == 76 for cells in series.seeds.values())
    assert (series.label, series.data, series.any.config) == ("PDE+", "cifar10", "0123456789")


@pytest.mark.parametrize(
    "other",
    [
        {"model": "ERM"},
        {"data": "cifar100"},
        {"suite": "clean"},
        {"origin": "generated"},
        {"config": "999999999"},
        {"selection": "oracle"},
        {"samples": 10},
        {"average": "logits"},
    ],
    ids=str,
)
def test_what_is_not_comparable_is_never_mixed(other):
    first, second = series_of([record(), record(seed=1, **other)])
    assert (list(first.seeds), list(second.seeds)) == ([0], [1])


def test_records_of_all_series_may_alternate():
    a, b = one_seed(sloping), one_seed(sloping, model="ERM")
    series = series_of([r for pair in zip(a, b, strict=True) for r in pair])
    assert [(s.label, s.gaps) for s in series] == [("PDE+", {}), ("ERM", {})]


def test_a_label_of_two_configs_gets_their_hashes_and_others_do_not():
    records = [record(), record(config="abcdefgh"), record(model="ERM", config="erm")]
    assert [s.label for s in series_of(records)] == ["PDE+ #012345", "PDE+ #abcdef", "ERM"]


def test_configs_of_different_data_sets_are_no_ambiguity():
    records = [record(), record(data="cifar100", config="abcdefgh"), record(selection="oracle")]
    assert [s.label for s in series_of(records)] == ["PDE+", "PDE+", "PDE+"]


def test_weights_of_two_trainings_are_never_mixed():
    series = only([*one_seed(sloping), record(weights="new", correct=1), record(weights="new", severity=4)])
    assert [r.weights for r in series.seeds[0].values()] == ["new", "new"]
    assert len(series.gaps[0]) == 74


def test_scores_by_hand():
    found = scores(only(one_seed(sloping)), only(one_seed(flat(0.6, 0.3), model="ERM")))
    expected = {
        "clean": 0.95,
        "clean_ece": 0.005,
        "ms": 2.0,
        "corrupted": 1 - 0.156,  # (3 × 0.3 + 4 × (0.06 + 0.12 + 0.18)) / 15
        "error": 0.156,
        "mce": (3 * 0.3 / 0.6 + 4 * (0.06 + 0.12 + 0.18) / 0.3) / 15,
        "rmce": (3 * 0.25 / 0.4 + 4 * (0.01 + 0.07 + 0.13) / 0.1) / 15,
        "severe": 1 - 0.26,
        "severe_error": 0.26,
        "severe_mce": (3 * 0.5 / 0.6 + 4 * (0.1 + 0.2 + 0.3) / 0.3) / 15,
        "severe_rmce": (3 * 0.45 / 0.4 + 4 * (0.05 + 0.15 + 0.25) / 0.1) / 15,
        "noise": 0.7,
        "blur": 0.94,
        "weather": 0.88,
        "digital": 0.82,
        "without_overlaps": 1 - 0.156,
        "nll": 0.156,
        "brier": 0.25,
        "ece": 0.0156,
    }
    assert {name: value.mean for name, value in found.items()} == pytest.approx(expected)


def test_a_new_score_is_one_entry(monkeypatch):
    """It is left out where it is unknown, undefined, or needs a record that is missing."""
    monkeypatch.setitem(SCORES, "foggy", lambda seed: seed.tests["fog", 5].accuracy)
    monkeypatch.setitem(SCORES, "unknown", lambda seed: None)
    monkeypatch.setitem(SCORES, "undefined", lambda seed: float("nan"))
    found = scores(only(one_seed(sloping)))
    assert mean(found, "foggy") == pytest.approx(0.8)
    assert {"unknown", "undefined"}.isdisjoint(found)
    assert "foggy" not in scores(only([r for r in one_seed(sloping) if r.severity < 5]))


def test_scores_are_estimates_over_seeds():
    records = [r for seed in range(3) for r in one_seed(flat(0.1 * seed, 0.1 * seed), seed=seed)]
    found = scores(only(records))["corrupted"]
    assert found.values == pytest.approx((1.0, 0.9, 0.8))
    assert found.half_width == pytest.approx(4.302652729911275 * 0.1 / 3**0.5)


def test_scaled_scores_need_every_cell():
    scaled = {"scaled_nll": 0.5, "scaled_brier": 0.25, "scaled_ece": 0.125, "temperature": 1.5}
    records = one_seed(sloping, **scaled)
    found = scores(only(records))
    assert [mean(found, name) for name in list(scaled)[:3]] == [0.5, 0.25, 0.125]
    assert mean(found, "clean_scaled_ece") == 0.125
    lacking = scores(only([*records[:-1], one_seed(sloping)[-1]]))
    assert set(found) - set(lacking) == {"scaled_nll", "scaled_brier", "scaled_ece"}


def test_overlaps_are_left_out_of_their_score_alone():
    noises = tuple(name for name in CORRUPTIONS if SUITE[name].family == "noise")
    found = scores(only(one_seed(sloping, overlaps=(*noises, "speckle_noise"))))
    assert mean(found, "without_overlaps") == pytest.approx(1 - (0.06 + 0.12 + 0.18) / 3)
    assert mean(found, "corrupted") == pytest.approx(1 - 0.156)
    assert "without_overlaps" not in scores(only(one_seed(sloping, overlaps=CORRUPTIONS)))


def test_gaps_are_listed_and_no_mean_is_over_fewer_cells():
    complete = one_seed(sloping)
    series = only([r for r in complete if r.cell not in [("fog", 2), ("snow", 4)]])
    assert series.gaps == {0: [("snow", 4), ("fog", 2)]}
    found = scores(series, only(one_seed(flat(0.6, 0.3), model="ERM")))
    assert {"corrupted", "error", "mce", "rmce", "weather", "without_overlaps", "nll", "ece"}.isdisjoint(found)
    assert mean(found, "severe_mce") == pytest.approx(0.7)  # severity 5 is complete
    assert mean(found, "severe_rmce") == pytest.approx(1.425)
    assert mean(found, "noise") == pytest.approx(0.7)
    assert list(severity_accuracies(series)) == [0, 1, 3, 5]


def test_without_the_worst_severity_there_is_no_severe_score():
    found = scores(only([r for r in one_seed(sloping) if r.cell != ("jpeg_compression", 5)]))
    assert {"severe", "severe_error", "corrupted", "digital"}.isdisjoint(found)
    assert {"noise", "blur", "weather", "clean"} <= set(found)


def test_without_clean_images_there_is_no_relative_error():
    baseline = only(one_seed(flat(0.6, 0.3), model="ERM"))
    series = only(one_seed(sloping)[1:])
    assert series.gaps == {0: [(CLEAN, 0)]}
    found = scores(series, baseline)
    assert {"clean", "rmce", "severe_rmce"}.isdisjoint(found)
    assert mean(found, "mce") == pytest.approx(0.42)


def test_an_incomplete_seed_counts_where_it_suffices():
    records = [*one_seed(sloping), *one_seed(sloping, seed=1)[:-1]]
    found = scores(only(records))
    assert (len(found["clean"].values), len(found["noise"].values), len(found["corrupted"].values)) == (2, 2, 1)
    assert list(only(records).gaps) == [1]


def test_a_baseline_is_averaged_over_its_seeds_before_the_ratio():
    seeds = [one_seed(flat(e, e, clean=e / 4), model="ERM", seed=i) for i, e in enumerate((0.4, 0.6))]
    baseline = only(seeds[0] + seeds[1])
    series = only(one_seed(flat(0.25, 0.25, clean=0.1)))
    assert mean(scores(series, baseline), "mce") == pytest.approx(0.25 / 0.5)
    assert mean(scores(series, baseline), "rmce") == pytest.approx(0.15 / (0.5 - 0.125))
    assert scores(baseline, baseline)["mce"].values == pytest.approx((0.8, 1.2))


def test_incomplete_seeds_of_a_baseline_do_not_count():
    whole, torn = one_seed(flat(0.5, 0.5), model="ERM"), one_seed(flat(0.9, 0.9), model="ERM", seed=1)[:-1]
    assert mean(scores(only(one_seed(flat(0.25, 0.25))), only(whole + torn)), "mce") == pytest.approx(0.5)
    assert "mce" not in scores(only(one_seed(flat(0.25, 0.25))), only(torn))


def test_no_ratio_to_a_baseline_without_errors():
    found = scores(only(one_seed(sloping)), only(one_seed(flat(0.0, 0.3, clean=0.0), model="ERM")))
    assert {"mce", "rmce", "severe_mce", "severe_rmce"}.isdisjoint(found)
    assert "corrupted" in found


def test_accuracies_by_cell_and_by_severity():
    series = only(one_seed(sloping) + one_seed(flat(0.0, 0.0), seed=1)[:10])
    cells = accuracies_by_test(series)
    assert list(cells) == ALL_CELLS
    assert cells[ALL_CELLS[1]].values == pytest.approx((0.9, 1.0))
    assert cells[ALL_CELLS[-1]].values == pytest.approx((0.7,))
    by_severity = {severity: e.values for severity, e in severity_accuracies(series).items()}
    expected = {0: (0.95, 0.8)} | {s: (1 - 0.052 * s,) for s in range(1, 6)}
    assert by_severity == {severity: pytest.approx(values) for severity, values in expected.items()}


def domain(name: str, correct: int, n: int = 100, **changes: Any) -> Record:
    return record(suite="domains", data="pacs", corruption=name, severity=0, n=n, correct=correct, **changes)


def test_domains_count_the_same_and_the_worst_is_named():
    series = only([domain(CLEAN, 99), domain("sketch", 30, n=1000, nll=1.0), domain("art", 50, nll=2.0)])
    assert series.domains == ["art", "sketch"]
    found = scores(series)
    assert (mean(found, "clean"), mean(found, "domains"), mean(found, "worst_domain")) == (0.99, 0.265, 0.03)
    assert mean(found, "nll") == 1.5
    assert mean(found, "ms") == pytest.approx(1000 * 6 / 1200)
    assert "corrupted" not in found
    assert only(one_seed(sloping)).domains == []


def test_a_domain_that_another_seed_has_is_a_gap():
    seeds = [domain(CLEAN, 99), domain("art", 50), domain("sketch", 70), domain(CLEAN, 99, seed=1)]
    series = only([*seeds, domain("art", 10, seed=1)])
    assert series.gaps == {1: [("sketch", 0)]}
    assert scores(series)["domains"].values == (0.6,)


def test_the_baseline_is_of_the_same_images_and_rather_of_the_same_selection_without_noise():
    def erm(**changes: Any) -> Record:
        return record(model="ERM", config="e", **changes)

    others = [erm(data="cifar100"), erm(origin="generated"), erm(suite="clean")]
    good = [erm(selection="oracle"), erm(samples=10), erm()]
    ours, *rest = series_of([record(), *others, *good])
    assert find_baseline(ours, rest, "ERM") is rest[5]
    assert find_baseline(ours, rest[:5], "ERM") is rest[4]
    assert find_baseline(ours, rest[:4], "ERM") is rest[3]
    assert find_baseline(ours, rest[:3], "ERM") is None
    assert find_baseline(ours, rest, "AugMix") is None


def answered(rate: float, n: int = 40, **changes: Any) -> list[Record]:
    """All 76 cells with random answers; the seed is the run's."""
    random = np.random.default_rng([changes.get("seed", 0), round(100 * rate)])
    rights = random.random((76, n)) < rate
    pairs = zip(ALL_CELLS, rights, strict=True)
    common = {"n": n} | changes
    return [record(corruption=c, severity=s, correct=int(r.sum()), hits=pack_hits(r), **common) for (c, s), r in pairs]


def test_a_comparison_is_paired_by_image_over_seeds_and_corruptions():
    ours, theirs = answered(0.8) + answered(0.8, seed=1), answered(0.7, model="ERM")
    first, second = only(ours + answered(0.1, seed=2)[:-1]), only(theirs)  # the third seed is incomplete
    sides = [np.mean([r.right for r in side if r.corruption != CLEAN], axis=0) for side in (ours, theirs)]
    difference = compare(first, second)
    assert difference == pytest.approx(paired_bootstrap([sides[0]], [sides[1]]))
    gap = mean(scores(only(ours)), "corrupted") - mean(scores(second), "corrupted")
    assert difference is not None
    assert difference.mean == pytest.approx(gap)


def test_a_comparison_of_seeds_pairs_each_with_its_own():
    def corrupted(accuracy: float, seed: int, **more: Any) -> list[Record]:
        return one_seed(lambda name, level: 1 - accuracy if level else 0.0, seed=seed, **more)

    ours = [*corrupted(0.8, 0), *corrupted(0.9, 1), *corrupted(0.5, 3), *corrupted(0.1, 2)[:-1]]  # seed 2 is incomplete
    theirs = [*corrupted(0.7, 0, model="ERM"), *corrupted(0.76, 1, model="ERM"), *corrupted(0.3, 2, model="ERM")]
    difference = compare_seeds(only(ours), only(theirs))
    assert difference is not None
    assert difference.values == pytest.approx((0.10, 0.14))
    assert difference.mean == pytest.approx(0.12)
    assert difference.half_width == pytest.approx(12.7062 * 0.02, rel=1e-4)  # Student's t of one degree of freedom
    assert compare_seeds(only(ours), only(corrupted(0.7, 0, model="ERM"))) is None
    assert compare_seeds(only(ours), only([replace(r, data="cifar100") for r in theirs])) is None


def test_domains_are_compared_with_equal_weight():
    def side(art: list[int], sketch: list[int], **changes: Any) -> Series:
        rights = {CLEAN: np.ones(5, bool), "art": np.array(art, bool), "sketch": np.array(sketch, bool)}
        sets = {name: {"n": len(r), "correct": int(r.sum()), "hits": pack_hits(r)} for name, r in rights.items()}
        return only([domain(name, **one, **changes) for name, one in sets.items()])

    difference = compare(side([1, 1], [1, 0, 0, 0]), side([0, 0], [1, 0, 0, 0], model="ERM"))
    assert difference is not None
    assert difference[:3] == pytest.approx((0.5, 0.5, 0.5))


def test_seeds_are_compared_on_the_other_domains_alone():
    def side(art: Sequence[int], **changes: Any) -> Series:
        own = [domain(CLEAN, n=10, correct=n, seed=seed, **changes) for seed, n in enumerate(art[::-1])]
        return only(own + [domain("art", n=10, correct=n, seed=seed, **changes) for seed, n in enumerate(art)])

    difference = compare_seeds(side([8, 5]), side([6, 4], model="ERM"))
    assert difference is not None
    assert difference.values == pytest.approx((0.2, 0.1))


def test_what_cannot_be_paired_is_not_compared():
    ours = only(answered(0.8))
    assert compare(ours, only(answered(0.7))) is not None
    assert compare(ours, only(answered(0.7, data="cifar100"))) is None
    assert compare(ours, only(answered(0.7, origin="generated"))) is None
    assert compare(ours, only(answered(0.7, n=41))) is None
    assert compare(ours, only(answered(0.7)[:-1])) is None
    assert compare(ours, only(answered(0.7) + answered(0.7, n=41, seed=1))) is None
    assert compare(only(one_seed(sloping)), only(one_seed(sloping))) is None  # no hits


def test_other_domains_of_the_same_size_are_other_images():
    hits = {"correct": 5, "n": 8, "hits": pack_hits(np.arange(8) < 5)}
    first, second = (only([domain(CLEAN, **hits), domain(name, **hits)]) for name in ("art", "sketch"))
    assert compare(first, first) == (0, 0, 0, 1)
    assert compare(first, second) is None


def test_severity_five_alone_suffices_for_its_own_ratios():
    some = [r for r in one_seed(sloping, model="ERM") if r.severity in (0, 5)]
    found = scores(only([r for r in one_seed(flat(0.25, 0.1), model="PDE+") if r.severity in (0, 5)]), only(some))
    assert mean(found, "severe_mce") == pytest.approx((3 * 0.25 / 0.5 + 4 * (0.1 / 0.1 + 0.1 / 0.2 + 0.1 / 0.3)) / 15)
    assert "mce" not in found


def test_a_seed_that_was_trained_again_is_named():
    series = only([*one_seed(sloping, seed=4, weights="old"), *one_seed(sloping, seed=4, weights="new")])
    assert series.trained_again == (4,)
    assert {r.weights for r in series.seeds[4].values()} == {"new"}


def test_all_nineteen_have_a_mean_of_their_own():
    extra = [record(corruption=name, severity=s, correct=0) for name in SUITE if SUITE[name].extra for s in range(1, 6)]
    found = scores(only([*one_seed(flat(0.5, 0.5)), *extra]))
    assert mean(found, "corrupted") == pytest.approx(0.5)
    assert mean(found, "nineteen") == pytest.approx(0.5 * 15 / 19)


def ten(error: float, worst: float, **changes: Any) -> list[Record]:
    """Records of C̄: the same error at severities 1 to 4, another at the fifth."""
    cells = [(name, severity) for name in CBAR for severity in range(1, 6)]
    rows = [record(suite="cbar", corruption=CLEAN, severity=0, correct=900, **changes)]
    for name, severity in cells:
        correct = round(1000 * (1 - (worst if severity == 5 else error)))
        rows.append(record(suite="cbar", corruption=name, severity=severity, correct=correct, **changes))
    return rows


def test_cbar_is_a_series_with_scores_of_its_own():
    first, second = series_of([*one_seed(sloping), *ten(0.2, 0.7, overlaps=("fog", "ripple"))])
    found = scores(second)
    assert mean(found, "cbar") == pytest.approx(0.7)
    assert mean(found, "severe_cbar") == pytest.approx(0.3)
    assert mean(found, "without_overlaps") == pytest.approx(0.7)
    assert mean(found, "ece") == 0.125
    assert {"corrupted", "mce", "rmce", "severe", "noise", "nineteen"}.isdisjoint(found)
    assert scores(first, first).keys().isdisjoint({"cbar", "severe_cbar"})
    assert len(second.wanted) == 51
    assert not second.gaps
    assert second.overlaps == ["ripple"]
    assert severity_accuracies(second)[5].mean == pytest.approx(0.3)
    assert find_baseline(second, [first, second], "PDE+") is second
    (partial,) = series_of(ten(0.2, 0.7)[:-3])
    assert "cbar" not in scores(partial)
    assert [len(cells) for cells in partial.gaps.values()] == [3]


def test_cbar_is_compared_image_by_image():
    hits = [pack_hits(np.arange(1000) < right) for right in (800, 850)]
    one, two = (series_of(ten(0.2, 0.2, hits=h, model=m))[0] for h, m in zip(hits, "ab", strict=True))
    difference = compare(two, one)
    assert difference is not None
    assert difference.mean == pytest.approx(0.05)
