"""Methods that train on changed images: what the network sees, and the losses by hand."""

from pathlib import Path

import pytest
import torch
from support.one_step import Scaled, Watched, batch_of, only_objective, random_batch, seeded
from support.pictures import pictures
from torch.nn import functional as F

from pdeplus.augment import deep_augment as network
from pdeplus.augment.auto_augment import AutoAugment
from pdeplus.augment.deep_augment import DeepAugment
from pdeplus.augment.gaussian_noise import GaussianNoise
from pdeplus.augment.hybrid import Hybrid
from pdeplus.augment.identity import Identity
from pdeplus.augment.prime import Prime
from pdeplus.errors import UserError
from pdeplus.methods import _mixing
from pdeplus.methods.augmix import AugMixTraining
from pdeplus.methods.autoaug import AutoAug
from pdeplus.methods.base import overlaps_of, views_of
from pdeplus.methods.deepaug import DeepAug, partly_augmented, untrained_network, untrained_network_file
from pdeplus.methods.erm import ERM
from pdeplus.methods.gaussian import Gaussian
from pdeplus.methods.hybrid_augment import HybridAugment
from pdeplus.methods.mixup import Mixup
from pdeplus.methods.pixmix import PixMixTraining
from pdeplus.methods.prime import PrimeTraining
from pdeplus.methods.trivial_augment import TrivialAugmentTraining
from pdeplus.methods.two_views import TwoViews

ONE_VIEW = [
    ERM(),
    Gaussian(),
    AutoAug(),
    DeepAug(),
    PrimeTraining(jsd=0.0),
    AugMixTraining(),
    TrivialAugmentTraining(),
    PixMixTraining(),
]
EVERY = [*ONE_VIEW, Mixup(), PrimeTraining(), HybridAugment(augmentor=Hybrid(paired=1.0, exchange=1.0)), TwoViews()]


def seen(method, batch):
    """The one batch that the network was given."""
    net = Watched(batch.images[0].numel())
    only_objective(method, net, batch)
    (x,) = net.seen
    return x


def cropped(batch, seed=0):
    """The batch's clean view, and the generator after it."""
    generator = seeded(seed)
    return batch.transform(batch.images, generator), generator


@pytest.mark.parametrize("method", ONE_VIEW, ids=lambda m: m.label)
def test_the_loss_is_the_cross_entropy_of_what_the_network_saw(method):
    net, batch = Watched(), random_batch(side=8)
    goal = only_objective(method, net, batch)
    by_hand = F.cross_entropy(net(net.seen[0]), batch.labels)
    assert goal.loss.item() == pytest.approx(by_hand.item())
    assert set(goal.parts) == {"task"}


@pytest.mark.parametrize("method", EVERY, ids=lambda m: m.label)
def test_mixed_precision_keeps_images_and_losses_in_full(method):
    net, batch = Watched(), random_batch(side=8)
    with torch.autocast("cpu", torch.bfloat16):
        goal = only_objective(method, net, batch)
    assert net.seen[0].dtype == goal.loss.dtype == torch.float32
    assert torch.equal(net.seen[0], seen(method, random_batch(side=8)))
    assert net.seen[0].min() >= 0
    assert net.seen[0].max() <= 1


def test_gaussian_reuses_the_augmentation_with_both_published_recipes():
    batch = random_batch(20, 8)
    view, generator = cropped(batch)
    assert torch.equal(seen(Gaussian(), random_batch(20, 8)), GaussianNoise(std=0.05, fraction=1.0)(view, generator))
    strong = seen(Gaussian(sigma=0.1, share=0.5), batch)
    view, generator = cropped(batch)
    assert torch.equal(strong, GaussianNoise(std=0.1, fraction=0.5)(view, generator))


@pytest.mark.parametrize(("sigma", "share"), [(0.05, 1.0), (0.1, 0.5)])
def test_gaussian_noises_its_share_with_its_moments_and_clips(sigma, share):
    grey = torch.full((40, 3, 8, 8), 0.5)
    x = seen(Gaussian(sigma=sigma, share=share), batch_of(grey))
    noisy = (x != 0.5).flatten(1).any(1)
    assert int(noisy.sum()) == 40 * share
    noise = x[noisy] - 0.5
    assert noise.std().item() == pytest.approx(sigma, rel=0.05)
    assert noise.mean().item() == pytest.approx(0, abs=0.05 * sigma)
    white = seen(Gaussian(sigma=sigma, share=1.0), batch_of(torch.ones(40, 3, 8, 8)))
    assert white.max() == 1
    assert (white == 1).float().mean().item() == pytest.approx(0.5, abs=0.02)  # noise above white is cut
    assert (1 - white).mean().item() == pytest.approx(sigma * (2 * torch.pi) ** -0.5, rel=0.05)  # E max(N, 0)


def test_mixup_weighs_both_losses_and_accuracies_by_the_share(monkeypatch):
    monkeypatch.setattr(_mixing, "beta", lambda n, alpha, like, generator: torch.full((n,), 0.25))
    x = torch.eye(4).view(4, 1, 2, 2)
    net = Watched(4, 4)
    with torch.no_grad():
        net.linear.weight.copy_(torch.eye(4))
        net.linear.bias.zero_()
    batch = batch_of(x)
    goal = only_objective(Mixup(), net, batch)
    order = torch.randperm(4, generator=seeded())
    z = 0.25 * torch.eye(4) + 0.75 * torch.eye(4)[order]
    assert torch.allclose(net.seen[0].flatten(1), z)
    log_p = z - z.exp().sum(1, keepdim=True).log()
    loss = -sum(0.25 * log_p[i, i] + 0.75 * log_p[i, order[i]] for i in range(4)) / 4
    assert goal.loss.item() == pytest.approx(float(loss), rel=1e-5)
    moved = float((order != torch.arange(4)).float().mean())
    assert moved > 0
    assert float(goal.metrics["accuracy"]) == pytest.approx(0.75 * moved + 1 - moved)  # the larger part wins


def test_mixup_of_two_values_by_hand(monkeypatch):
    """Images 0 and 1 with λ = 1/4, logits (0, z): the loss is log(1 + e^z) - z · (the share of the second label)."""
    monkeypatch.setattr(_mixing, "beta", lambda n, alpha, like, generator: torch.full((n,), 0.25))
    net = Watched(1, 2)
    with torch.no_grad():
        net.linear.weight.copy_(torch.tensor([[0.0], [1.0]]))
        net.linear.bias.zero_()
    seed = next(s for s in range(9) if torch.randperm(2, generator=seeded(s))[0] == 1)
    batch = batch_of(torch.tensor([0.0, 1.0]).view(2, 1, 1, 1), seed=seed)
    # z = (0.75, 0.25), shares of the second label alike: (log(1 + e^0.75) - 0.5625 + log(1 + e^0.25) - 0.0625) / 2
    assert only_objective(Mixup(), net, batch).loss.item() == pytest.approx(0.6689052, abs=1e-6)


def test_mixup_draws_one_share_for_the_batch_from_its_beta():
    batch = random_batch(side=8)
    view, generator = cropped(batch)
    mix = _mixing.draw_mix([""], batch.labels, 0.3, generator)
    assert mix.share.shape == ()
    by_hand = mix.share * view + (1 - mix.share) * view[mix.partners]
    assert torch.allclose(seen(Mixup(alpha=0.3), batch), by_hand, atol=1e-6)


@pytest.mark.parametrize("policy", ["cifar10", "imagenet"])
def test_autoaug_uses_the_policy_asked_for(policy):
    batch = random_batch()
    view, generator = cropped(batch)
    assert torch.equal(seen(AutoAug(policy=policy), batch), AutoAugment(policy=policy)(view, generator))
    assert overlaps_of(AutoAug(policy=policy), Identity())["autoaug"] == AutoAugment(policy=policy).overlaps


def test_deepaug_distorts_its_share_and_leaves_the_rest_clean():
    batch = batch_of(pictures(32)[:20] / 255)
    x = seen(DeepAug(share=0.5, group=3), batch)
    same = (x == batch.images).flatten(1).all(1)
    assert int(same.sum()) == 10
    assert torch.equal(seen(DeepAug(share=0.0), batch), batch.images)
    assert not (seen(DeepAug(share=1.0), batch) == batch.images).flatten(1).all(1).any()


def test_a_share_of_small_batches_is_right_on_average_and_may_be_none():
    changed = list[float]()
    for x, seed in ((random_batch(2, 8, seed=seed).images, seed) for seed in range(300)):
        out = partly_augmented(x, seeded(seed), augmentor=Scaled(0.5), share=0.3)
        changed.append(float((out != x).flatten(1).any(1).sum()))
    assert set(changed) == {0, 1}
    assert sum(changed) / 600 == pytest.approx(0.3, abs=0.04)
    assert all(seen(DeepAug(share=0.1), random_batch(2, 8, seed=seed)).isfinite().all() for seed in range(5))


def test_deepaug_takes_a_trained_network(tmp_path):
    path = tmp_path / "deep.safetensors"
    network.save(network.train(pictures(16), steps=2, width=4, blocks=1), path)
    batch = random_batch(side=8)
    view, generator = cropped(batch)
    torch.rand(1, generator=generator)  # the count is rounded at random
    order = torch.randperm(6, generator=generator)
    expected = view.index_copy(0, order, DeepAugment(weights=str(path))(view[order], generator))
    assert torch.equal(seen(DeepAug(weights=str(path), share=1.0), batch), expected)
    with pytest.raises(UserError, match="missing"):
        seen(DeepAug(weights=str(tmp_path / "missing.safetensors")), random_batch(side=8))


@pytest.mark.parametrize("channels", [1, 3])
def test_the_untrained_network_gives_pictures_back_and_is_always_the_same(channels):
    first, x = untrained_network(channels), pictures(32)[:8, :channels] / 255
    assert (network.reconstruct(first, x) - x).square().mean().sqrt() < 0.02
    again, stored = untrained_network(channels), network.load(Path(untrained_network_file(channels)), 0)
    assert all(torch.equal(first[name], again[name]) and torch.equal(first[name], stored[name]) for name in first)


def test_prime_agrees_over_three_views_of_one_crop_by_hand():
    torch.manual_seed(0)
    net, batch = Watched(), random_batch(side=8)
    goal = only_objective(PrimeTraining(augmentor=Scaled(0.5, 0.1)), net, batch)
    clean, _ = cropped(batch)
    assert torch.equal(net.seen[0], torch.cat([clean, 0.5 * clean, 0.1 * clean]))
    p = torch.stack([net(factor * clean) for factor in (1, 0.5, 0.1)]).softmax(-1)
    mean = p.mean(0)
    consistency = (p * (p / mean).log()).sum(-1).mean()
    task = -p[0, torch.arange(6), batch.labels].log().mean()
    assert goal.parts["consistency"].item() == pytest.approx(consistency.item(), rel=1e-3)
    assert goal.loss.item() == pytest.approx((task + 12 * consistency).item(), rel=1e-4)


def test_prime_draws_its_views_from_the_batch_and_has_a_form_without_consistency():
    batch = random_batch(side=8)
    clean, generator = cropped(batch)
    views = torch.cat([clean, Prime()(clean, generator), Prime()(clean, generator)])
    assert torch.equal(seen(PrimeTraining(), batch), views)
    assert torch.equal(torch.cat(views_of(random_batch(side=8), Prime(), Prime())), views)
    assert torch.equal(seen(PrimeTraining(jsd=0.0), random_batch(side=8)), Prime()(*cropped(random_batch(side=8))))


def test_labels_and_overlaps():
    assert [m.label for m in (AugMixTraining(), AugMixTraining(jsd=12.0))] == ["AugMix", "AugMix+JSD"]
    assert [m.label for m in (PrimeTraining(), PrimeTraining(jsd=0.0))] == ["PRIME", "PRIME w/o JSD"]
    assert overlaps_of(Gaussian(), Identity()) == {"gaussian": ("gaussian_noise",), "identity": ()}
    assert overlaps_of(DeepAug(), Identity()) == {"deepaug": (), "identity": ()}
    assert overlaps_of(PrimeTraining(), Identity())["prime"] == ("elastic_transform", "ripple")


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Gaussian(sigma=-0.1), "method.sigma=-0.1"),
        (lambda: Gaussian(share=1.5), "method.share=1.5"),
        (lambda: Mixup(alpha=0.0), "method.alpha=0.0 must be above 0 and finite"),
        (lambda: Mixup(alpha=float("nan")), "method.alpha=nan"),
        (lambda: AutoAug(policy="svhn"), "method.policy='svhn'.*cifar10, imagenet"),
        (lambda: DeepAug(share=-1.0), "method.share=-1.0"),
        (lambda: DeepAug(group=0), "method.group=0"),
        (lambda: PrimeTraining(jsd=-1.0), "method.jsd=-1"),
    ],
)
def test_bad_options_are_named(make, message):
    with pytest.raises(UserError, match=message):
        make()
