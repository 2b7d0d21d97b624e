"""Corrupted images that are kept for the next model: the same as those made anew, within a limit."""

import pytest
import torch

from pdeplus.data.synthetic import Synthetic
from pdeplus.evaluation import test_sets
from pdeplus.evaluation.test_sets import Kept, build_suite


def pixels(limit: int = 6, seed: int = 0) -> dict[tuple[str, int], torch.Tensor]:
    """The images of every test set, in two batches each."""
    suite = build_suite(Synthetic(size=16), "synthetic", "corruptions", severities=[3], limit=limit, seed=seed)
    return {(one.corruption, one.severity): torch.cat([x for x, _ in one.batches(4)]) for one in suite.sets}


@pytest.fixture
def kept(monkeypatch) -> Kept:
    fresh = Kept()
    monkeypatch.setattr(test_sets, "KEPT", fresh)
    return fresh


def test_kept_images_are_those_made_anew_and_are_made_once(kept, monkeypatch):
    expected, other_seed, fewer = pixels(), pixels(seed=1), pixels(limit=5)
    kept.limit, made = 10**8, []
    apply = test_sets.apply_planes
    monkeypatch.setattr(test_sets, "apply_planes", lambda *args: made.append(args[0].name) or apply(*args))
    for _ in range(2):
        found = pixels()
        assert all(torch.equal(found[key], images) for key, images in expected.items())
    assert len(made) == 2 * 15  # two batches under fifteen corruptions, once
    assert all(torch.equal(pixels(seed=1)[key], images) for key, images in other_seed.items())
    assert all(torch.equal(pixels(limit=5)[key], images) for key, images in fewer.items())


def test_no_more_is_kept_than_the_limit(kept):
    expected = pixels()
    kept.limit = 3 * 4 * 3 * 16 * 16  # three whole batches
    for _ in range(2):
        found = pixels()
        assert all(torch.equal(found[key], images) for key, images in expected.items())
        assert 0 < kept.size <= kept.limit
