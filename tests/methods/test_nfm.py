"""Noisy feature mixup and NoisyMix: moments in closed form, mixing by hand, places, losses."""

from collections import Counter

import pytest
import torch
from support.one_step import Scaled, Watched, only_objective, random_batch, seeded, small_resnet
from torch import nn
from torch.nn import functional as F

from pdeplus._lib import registry
from pdeplus.augment.identity import Identity
from pdeplus.errors import UserError
from pdeplus.functional import jensen_shannon
from pdeplus.methods._mixing import (
    Mix,
    Units,
    beta_2_5,
    draw_mix,
    mixed,
    mixing_places,
    noisy,
    noisy_at,
    over_mixed_labels,
)
from pdeplus.methods.base import accuracy, overlaps_of
from pdeplus.methods.nfm import NFM
from pdeplus.methods.noisymix import NoisyMix

PLACES = ["", "layer1", "layer2", "layer3"]
SECOND_MOMENT = 2 * 3 / (7 * 8)
"""E[B²] of Beta(2, 5)."""


def force(monkeypatch, method, mix):
    """The method's next draws are `mix`."""
    monkeypatch.setattr(f"{type(method).__module__}.draw_mix", lambda *args: mix)


def test_the_noises_strength_has_the_moments_of_beta_2_5():
    b = beta_2_5(200_000, torch.zeros(()), seeded())
    moments = [(b**k).mean().item() for k in (1, 2, 3)]
    assert moments == pytest.approx([2 / 7, SECOND_MOMENT, 2 * 3 * 4 / (7 * 8 * 9)], rel=0.01)
    assert b.min() > 0
    assert b.max() < 1


@pytest.mark.parametrize(
    ("additive", "multiplicative", "sparsity"), [(0.4, 0.0, 0.0), (0.0, 0.2, 0.0), (0.4, 0.2, 0.0), (0.5, 0.5, 0.65)]
)
def test_the_noise_has_mean_zero_and_the_variance_of_the_formula(additive, multiplicative, sparsity):
    """Var = (1 - sparsity) · E[B²] · (m² h² / 3 + a²), since a uniform number on (-1, 1) has variance 1/3."""
    h, generator = torch.tensor([[1.0], [-2.0], [0.0]]).expand(3, 40), seeded()
    levels = {"additive": additive, "multiplicative": multiplicative, "sparsity": sparsity}
    noise = torch.stack([noisy(h, **levels, generator=generator) - h for _ in range(6000)])
    expected = (1 - sparsity) * SECOND_MOMENT * (multiplicative**2 * torch.tensor([1.0, 4.0, 0.0]) / 3 + additive**2)
    assert torch.allclose(noise.square().mean((0, 2)), expected, rtol=0.07, atol=1e-12)
    assert (noise.mean((0, 2)).abs() <= 5 * (expected / (6000 * 40)).sqrt()).all()


def test_the_strength_is_drawn_once_per_batch():
    h = torch.ones(64, 8, 8, 8)
    spread = torch.tensor(
        [float((noisy(h, additive=1.0, multiplicative=0.0, generator=seeded(i)) - h).std()) for i in range(300)]
    )
    strength = beta_2_5(4000, h, seeded(9))
    assert spread.mean().item() == pytest.approx(2 / 7, rel=0.07)  # were it drawn for each element, always 0.327
    assert spread.std().item() == pytest.approx(strength.std().item(), rel=0.15)


def test_sparsity_is_the_share_of_elements_left_alone():
    h = torch.ones(50, 8, 8, 8)
    for additive, multiplicative in ((0.5, 0.0), (0.0, 0.5)):
        out = noisy(h, additive=additive, multiplicative=multiplicative, sparsity=0.65, generator=seeded())
        assert (out == h).float().mean().item() == pytest.approx(0.65, abs=0.01)
    both = noisy(h, additive=0.5, multiplicative=0.5, sparsity=0.65, generator=seeded())
    assert (both == h).float().mean().item() == pytest.approx(0.65**2, abs=0.01)  # two independent draws
    assert torch.equal(noisy(h, additive=0.5, multiplicative=0.5, sparsity=1.0, generator=seeded()), h)


def test_mixing_by_hand_within_each_view():
    mix = Mix("", torch.tensor([1, 2, 0]), torch.tensor(0.75))
    h = torch.tensor([1.0, 2.0, 4.0, 10.0, 20.0, 40.0])[:, None]
    by_hand = [0.75 + 0.5, 1.5 + 1.0, 3.0 + 0.25, 7.5 + 5.0, 15.0 + 10.0, 30.0 + 2.5]
    assert torch.allclose(mixed(h, mix).squeeze(1), torch.tensor(by_hand))
    assert torch.allclose(mixed(h[:3], mix).squeeze(1), torch.tensor(by_hand[:3]))
    wide = torch.rand(6, 4, 5, 5).to(memory_format=torch.channels_last)
    assert torch.allclose(mixed(wide, mix), mixed(wide.contiguous(), mix))


def test_the_loss_is_weighted_by_lambda():
    logits = torch.log(torch.tensor([[0.5, 0.25, 0.25], [0.1, 0.8, 0.1]]))
    mix = Mix("", torch.tensor([1, 0]), torch.tensor(0.75))
    own = -(torch.tensor(0.5).log() + torch.tensor(0.8).log()) / 2  # labels 0 and 1
    other = -(torch.tensor(0.25).log() + torch.tensor(0.1).log()) / 2  # labels 1 and 0
    found = over_mixed_labels(lambda y: F.cross_entropy(logits, y), torch.tensor([0, 1]), mix)
    assert found.item() == pytest.approx((0.75 * own + 0.25 * other).item())


def test_the_accuracy_is_weighted_by_lambda():
    logits, labels = torch.eye(3)[[1, 2, 2, 2]], torch.tensor([0, 1, 2, 0])
    mix = Mix("", torch.tensor([1, 2, 3, 0]), torch.tensor(0.75))
    # one image's own label is told, and two partners', 1 and 2
    found = over_mixed_labels(lambda y: accuracy(logits, y), labels, mix)
    assert found.item() == pytest.approx(0.75 * 1 / 4 + 0.25 * 2 / 4)


def test_the_place_is_drawn_uniformly_and_lambda_and_the_permutation_too():
    labels, generator = torch.arange(3), seeded()
    draws = [draw_mix(PLACES, labels, 1.0, generator) for _ in range(4000)]
    counts = Counter(draw.place for draw in draws)
    assert set(counts) == set(PLACES)
    assert all(abs(count - 1000) < 5 * (4000 * 3 / 16) ** 0.5 for count in counts.values())
    shares = torch.stack([draw.share for draw in draws])
    assert shares.mean().item() == pytest.approx(1 / 2, abs=0.02)
    assert shares.var().item() == pytest.approx(1 / 12, rel=0.07)  # Beta(1, 1) is uniform
    assert len({tuple(draw.partners.tolist()) for draw in draws}) == 6


def test_places_are_the_input_and_the_first_three_stages_or_what_is_named():
    assert mixing_places(small_resnet().eval(), "stage") == PLACES
    wide = registry.build("models", "wide_resnet", {"width": 2, "depth": 10, "widen": 1}, classes=5, channels=3)
    assert mixing_places(wide, "stage") == ["", "layer1", "layer2", "layer3"]
    assert mixing_places(nn.Linear(1, 1), ("a",)) == ["", "a"]
    for method in (NFM(), NoisyMix()):
        with pytest.raises(UserError, match="names no stages"):
            method.prepare(nn.Linear(1, 1), torch.zeros(1))


@pytest.mark.parametrize("place", ["", "stage"])
def test_nfm_by_hand_with_forced_draws(monkeypatch, place):
    method = NFM(additive=0.0, multiplicative=0.0)
    net, batch = Watched(), random_batch(3, 8, transform=Identity())
    mix = Mix(place, torch.tensor([2, 0, 1]), torch.tensor(0.6))
    force(monkeypatch, method, mix)
    goal = only_objective(method, net, batch)
    x, y = batch.images, batch.labels
    both = 0.6 * x + 0.4 * x[[2, 0, 1]]
    assert torch.allclose(net.seen[0], both)
    own, other = (F.cross_entropy(net(both), labels) for labels in (y, y[[2, 0, 1]]))
    assert goal.loss.item() == pytest.approx((0.6 * own + 0.4 * other).item(), rel=1e-5)


def test_nfm_adds_its_noise_after_mixing_from_the_batchs_generator(monkeypatch):
    method, net, batch = NFM(), Watched(), random_batch(4, 8, transform=Identity())
    mix = Mix("stage", torch.tensor([1, 0, 3, 2]), torch.tensor(0.3))
    force(monkeypatch, method, mix)
    only_objective(method, net, batch)
    expected = noisy(mixed(batch.images, mix), additive=0.4, multiplicative=0.2, generator=seeded())
    assert torch.equal(net.seen[0], expected)
    assert not net.stage._forward_hooks


def test_nfm_is_plain_at_test_and_leaves_no_hook():
    method, net = NFM(), small_resnet().eval()
    x = torch.rand(4, 3, 16, 16)
    before = net(x)
    for seed in range(8):
        only_objective(method, net, random_batch(seed=seed, transform=Identity()))
    assert torch.equal(method.predict(net, x, None), before.softmax(-1))
    assert not any(m._forward_hooks or m._forward_pre_hooks for m in net.modules())


@pytest.mark.parametrize(("place", "centre", "std"), [("stage", 0.0, 1.0), ("", 0.5, 0.5)])
def test_noisymix_makes_the_additive_noise_of_later_views_two_and_three_times_as_strong(place, centre, std):
    """Var = (1 - sparsity) · E[B²] · (m² (h - centre)² / 3 + (v · std · a)²), m = a = 0.5, for h = 1."""
    method, mix = NoisyMix(alpha=1.0), Mix(place, torch.tensor([1, 0]), torch.tensor(0.5))
    h, generator = torch.ones(6, 40), seeded()
    noise = torch.stack([method.changed(h, mix, generator) - h for _ in range(3000)])
    variance = noise.view(3000, 3, -1).square().mean((0, 2))
    by_view = [0.35 * SECOND_MOMENT * 0.5**2 * ((1 - centre) ** 2 / 3 + (v * std) ** 2) for v in (1, 2, 3)]
    assert variance.tolist() == pytest.approx(by_view, rel=0.1)


def test_noise_on_images_is_that_of_normalised_ones():
    """With (x - 0.47) / 0.25: one draw by hand, and Var = E[B²] · (m² (x - 0.47)² / 3 + (0.25 a)²)."""
    x, units = torch.rand(5, 3, 4, 4, generator=seeded(3)), Units(0.47, 0.25)
    levels = {"additive": 0.4, "multiplicative": 0.2, "generator": seeded()}
    normalised = noisy((x - 0.47) / 0.25, **levels)
    on_images = noisy_at("", x, units, 0.4, 0.2, seeded())
    assert torch.allclose(on_images, 0.47 + 0.25 * normalised, atol=1e-6)
    assert torch.equal(noisy_at("layer1", x, units, 0.4, 0.2, seeded()), noisy(x, 0.4, 0.2, seeded()))
    pixels, generator = torch.tensor([[0.47], [0.97], [0.0]]).expand(3, 40), seeded()
    noise = torch.stack([noisy_at("", pixels, units, 0.4, 0.2, generator) - pixels for _ in range(6000)])
    by_hand = [SECOND_MOMENT * (0.04 * (x - 0.47) ** 2 / 3 + 0.01) for x in (0.47, 0.97, 0.0)]
    assert noise.square().mean((0, 2)).tolist() == pytest.approx(by_hand, rel=0.07)


def test_nfm_adds_its_noise_to_images_in_their_published_units(monkeypatch):
    method, net, batch = NFM(alpha=1.0), Watched(), random_batch(4, 8, transform=Identity())
    mix = Mix("", torch.tensor([1, 0, 3, 2]), torch.tensor(0.3))
    force(monkeypatch, method, mix)
    only_objective(method, net, batch)
    normalised = noisy((mixed(batch.images, mix) - 0.47) / 0.25, additive=0.4, multiplicative=0.2, generator=seeded())
    assert torch.allclose(net.seen[0], 0.47 + 0.25 * normalised, atol=1e-6)


def test_noisymix_loss_by_hand(monkeypatch):
    method = NoisyMix(additive=0.0, multiplicative=0.0, augmentor=Scaled(0.5, 0.1), jsd=12.0)
    net, batch = Watched(), random_batch(4, 8)
    mix = Mix("stage", torch.tensor([1, 2, 3, 0]), torch.tensor(0.8))
    force(monkeypatch, method, mix)
    goal = only_objective(method, net, batch)
    clean = batch.transform(batch.images, seeded())
    both = 0.8 * clean + 0.2 * clean[[1, 2, 3, 0]]
    assert torch.allclose(net.seen[0], torch.cat([both, 0.5 * both, 0.1 * both]))  # one λ, one permutation
    logits = torch.stack([net(factor * both) for factor in (1, 0.5, 0.1)])
    y = batch.labels
    task = 0.8 * F.cross_entropy(logits[0], y) + 0.2 * F.cross_entropy(logits[0], y[[1, 2, 3, 0]])
    assert goal.parts["task"].item() == pytest.approx(task.item(), rel=1e-5)
    assert goal.parts["consistency"].item() == pytest.approx(jensen_shannon(logits).item(), rel=1e-4)
    total = task + 12 * jensen_shannon(logits)
    assert goal.loss.item() == pytest.approx(total.item(), rel=1e-5)


@pytest.mark.parametrize("method", [NFM(), NoisyMix()], ids=["nfm", "noisymix"])
@pytest.mark.parametrize("place", PLACES)
def test_mixed_precision_and_every_place(monkeypatch, method, place):
    force(monkeypatch, method, Mix(place, torch.tensor([1, 0]), torch.tensor(0.3)))
    net = small_resnet().train()
    with torch.autocast("cpu", torch.bfloat16):
        goal = only_objective(method, net, random_batch(2, transform=Identity()))
    assert goal.loss.dtype == torch.float32
    goal.loss.backward()
    assert all(p.grad is not None and p.grad.isfinite().all() for p in net.parameters())


def test_what_images_go_through_is_stated():
    assert overlaps_of(NFM(), Identity())["nfm"] == ("gaussian_noise", "speckle_noise")
    assert overlaps_of(NFM(additive=0.0), Identity())["nfm"] == ("speckle_noise",)
    assert overlaps_of(NoisyMix(multiplicative=0.0), Identity())["noisymix"] == ("gaussian_noise",)
    assert overlaps_of(NoisyMix(sparsity=1.0), Identity())["noisymix"] == ()


@pytest.mark.parametrize("kind", [NFM, NoisyMix])
@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"alpha": 0.0}, "alpha=0.0 must be above 0 and finite"),
        ({"additive": -1.0}, "additive=-1"),
        ({"multiplicative": -1.0}, "multiplicative=-1"),
    ],
)
def test_bad_options_are_named(kind, options, message):
    with pytest.raises(UserError, match=message):
        kind(**options)


def test_noisymix_needs_consistency_and_a_share():
    with pytest.raises(UserError, match="jsd=0.0.*nfm"):
        NoisyMix(jsd=0.0)
    with pytest.raises(UserError, match="sparsity=1.5"):
        NoisyMix(sparsity=1.5)
