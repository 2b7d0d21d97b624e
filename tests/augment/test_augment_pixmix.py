"""PixMix: the blends by hand, the weights, the rounds, and the fractals."""

import time

import pytest
import torch
from support.one_step import seeded
from support.pictures import pictures

from pdeplus.augment import pixmix
from pdeplus.augment.pixmix import PICTURES, PixMix, add, contractions, fractals, multiply


def numbers(*values):
    return torch.tensor(values)


def test_blends_by_hand():
    x, y = numbers(0.8, 0.2, 1.0, 0.5), numbers(0.6, 0.1, 1.0, 0.5)
    a, b = torch.tensor(0.75), torch.tensor(0.5)
    # 0.5 + 0.75 · 0.3 + 0.5 · 0.1, 0.5 - 0.75 · 0.3 - 0.5 · 0.4, 0.5 + 0.75 · 0.5 + 0.5 · 0.5 cut, grey
    assert torch.allclose(add(x, y, a, b), numbers(0.775, 0.075, 1.0, 0.5))
    # 1.6^0.75 · 1.2^0.5 / 2, 0.4^0.75 · 0.2^0.5 / 2, 2^1.25 / 2 cut, grey
    assert torch.allclose(multiply(x, y, a, b), numbers(0.7792086, 0.1124683, 1.0, 0.5), atol=1e-6)


@pytest.mark.parametrize("blend", [add, multiply])
def test_middle_grey_and_weight_nothing_change_nothing_and_black_is_no_error(blend):
    x = torch.linspace(0, 1, 11)
    one, none = torch.ones(()), torch.zeros(())
    assert torch.allclose(blend(x, torch.full_like(x, 0.5), one, torch.tensor(0.7)), x, atol=1e-6)
    assert torch.allclose(blend(x, x.flip(0), one, none), x, atol=1e-6)
    assert torch.allclose(blend(x, x.flip(0), none, one), x.flip(0), atol=1e-6)
    assert blend(torch.zeros(3), torch.zeros(3), none, none).isfinite().all()


def test_weights_are_beta_and_rounds_are_drawn_from_none_to_all(monkeypatch):
    weights, sizes = [], []

    def watch(x, y, a, b):
        weights.append((a.flatten(), b.flatten()))
        sizes.append(len(x))
        return x

    monkeypatch.setattr(pixmix, "add", watch)
    monkeypatch.setattr(pixmix, "multiply", watch)
    PixMix(rounds=4, beta=3.0)(torch.rand(5000, 1, 2, 2), seeded())
    a, b = (torch.cat(part) for part in zip(*weights, strict=True))
    # Beta(3, 1) and Beta(1, 3): means 3/4 and 1/4, variance 3 / (16 · 5)
    assert (a.mean().item(), b.mean().item()) == pytest.approx((0.75, 0.25), abs=0.01)
    assert (a.var().item(), b.var().item()) == pytest.approx((0.0375, 0.0375), rel=0.05)
    assert torch.corrcoef(torch.stack([a, b]))[0, 1].abs() < 0.05
    added, multiplied = sizes[::2], sizes[1::2]
    for done, (one, other) in enumerate(zip(added, multiplied, strict=True)):
        assert (one + other) / 5000 == pytest.approx((4 - done) / 5, abs=0.03)
        assert one / (one + other) == pytest.approx(0.5, abs=0.04)


def test_without_rounds_half_of_the_images_are_views_of_themselves(monkeypatch):
    monkeypatch.setattr(pixmix, "one_operation", lambda x, *rest: 255 - x)
    x = torch.zeros(4000, 1, 2, 2)
    out = PixMix(rounds=0)(x, seeded())
    assert set(out.unique().tolist()) == {0.0, 1.0}
    assert out.mean().item() == pytest.approx(0.5, abs=0.03)


def test_what_comes_in_is_a_fractal_or_a_view(monkeypatch):
    others = []
    monkeypatch.setattr(pixmix, "one_operation", lambda x, *rest: x)
    monkeypatch.setattr(pixmix, "add", lambda x, y, a, b: others.append(y) or x)
    monkeypatch.setattr(pixmix, "multiply", lambda x, y, a, b: others.append(y) or x)
    x = torch.full((3000, 3, 8, 8), 7 / 255)
    PixMix(rounds=1)(x, seeded())
    y = torch.cat(others)
    assert len(y) / 3000 == pytest.approx(0.5, abs=0.04)
    view = (y == 7 / 255).flatten(1).all(1)
    assert view.float().mean().item() == pytest.approx(0.5, abs=0.04)
    pixels = {tuple(pixel) for pixel in fractals(3, 8, 8).movedim(1, -1).flatten(0, 2).tolist()}
    found = y[~view][:20].movedim(1, -1).flatten(0, 2).tolist()
    assert all(tuple(pixel) in pixels for pixel in found)  # moved and mirrored, with no value changed


def test_fractals_are_the_same_again_differ_from_each_other_and_take_no_time():
    fractals.cache_clear()
    start = time.process_time()
    first = fractals(3, 32, 32)
    assert time.process_time() - start < 3  # about 0.4 s of a busy core
    fractals.cache_clear()
    assert torch.equal(first, fractals(3, 32, 32))
    assert fractals(3, 32, 32) is fractals(3, 32, 32)
    assert first.shape == (PICTURES, 3, 32, 32)
    assert first.min() >= 0
    assert first.max() <= 1
    assert first.flatten(1).std(1).min() > 0.03  # none is flat
    assert torch.pdist(first.flatten(1)).min() > 1


def test_maps_contract_and_their_chances_are_their_areas():
    matrices, shifts, weights = contractions(50, 4, seeded())
    values = torch.linalg.svdvals(matrices)
    assert values.max() <= 0.8 + 1e-5
    assert values.min() >= 0.2 - 1e-5
    assert torch.allclose(weights.flatten(), torch.linalg.det(matrices).abs(), atol=1e-5)
    assert shifts.abs().max() <= 1


def test_images_stay_recognisable():
    x = (pictures() / 255).repeat(20, 1, 1, 1)
    out = PixMix()(x, seeded())
    same = torch.stack(
        [torch.corrcoef(torch.stack([a.flatten(), b.flatten()]))[0, 1] for a, b in zip(x, out, strict=True)]
    )
    assert same.median() > 0.6
    assert (out - x).abs().mean() > 0.05
