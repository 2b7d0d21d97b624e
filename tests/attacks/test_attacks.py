"""FGSM and PGD against closed forms on linear classifiers; what an attack must leave alone; what it refuses."""

import math
from dataclasses import replace
from itertools import pairwise

import pytest
import torch
from support.attacked_network import attacked_network
from torch import nn
from torch.nn import functional as F

import pdeplus as pp
from pdeplus.attacks.gradient_attacks import (
    APGD,
    ATTACKS,
    FGSM,
    PGD,
    Attack,
    attacking,
    build_attack,
    expected_logits,
    resized,
    single_step,
)
from pdeplus.attacks.steps import ascent, cross_entropy, dlr, pgd, project, random_point, steepest
from pdeplus.core.context import diffusion
from pdeplus.errors import UserError

W = torch.tensor([[1.0, -2.0, 0.5, 0.0], [-1.0, 1.0, 0.5, 0.0]])
"""Two classes of four pixels: for label 0 the cross-entropy rises along w_1 - w_0 = (-2, 3, 0, 0)."""
GREY = torch.full((1, 1, 2, 2), 0.5)
ZERO = torch.zeros(1, dtype=torch.long)


def linear(x):
    return x.flatten(1) @ W.T


def image(*pixels):
    return torch.tensor(pixels).view(1, 1, 2, 2)


@pytest.mark.parametrize("steps", [1, 7])
def test_on_a_linear_classifier_pgd_is_the_closed_form(steps):
    found = pgd(linear, GREY, ZERO, norm="linf", epsilon=0.1, steps=steps)
    assert torch.allclose(found, image(0.4, 0.6, 0.5, 0.5))
    found = pgd(linear, GREY, ZERO, norm="l2", epsilon=0.1, steps=steps)
    length = math.sqrt(13)
    assert torch.allclose(found, image(0.5 - 0.2 / length, 0.5 + 0.3 / length, 0.5, 0.5))


def test_the_step_size_is_epsilon_for_one_step_and_two_and_a_half_shares_for_more():
    one = pgd(linear, GREY, ZERO, norm="linf", epsilon=0.1, step_size=0.03)
    assert torch.allclose(one, image(0.47, 0.53, 0.5, 0.5))
    seen = []

    def watched(x):
        seen.append(x.detach())
        return linear(x)

    pgd(watched, GREY, ZERO, norm="linf", epsilon=0.1, steps=5)
    assert [round(float(0.5 - x[0, 0, 0, 0]), 4) for x in seen] == [0, 0.05, 0.1, 0.1, 0.1]


def test_images_are_clipped_and_of_two_labels_each_goes_its_way():
    x = torch.cat([image(0.05, 0.98, 0.0, 1.0)] * 2)
    found = pgd(linear, x, torch.tensor([0, 1]), norm="linf", epsilon=0.1)
    assert torch.allclose(found, torch.cat([image(0.0, 1.0, 0.0, 1.0), image(0.15, 0.88, 0.0, 1.0)]))


def test_a_zero_gradient_gives_no_step_and_a_tiny_one_a_full_one():
    assert torch.equal(steepest(torch.zeros(2, 1, 2, 2), "l2"), torch.zeros(2, 1, 2, 2))
    assert torch.equal(pgd(lambda x: linear(x) * 0, GREY, ZERO, norm="l2", epsilon=0.3), GREY)
    tiny = steepest(torch.full((1, 1, 2, 2), 1e-30), "l2")
    assert torch.allclose(tiny, torch.full((1, 1, 2, 2), 0.5))
    sure = pgd(lambda x: 25 * linear(x) + torch.tensor([30.0, 0]), GREY, ZERO, norm="linf", epsilon=0.1)
    assert torch.allclose(sure, image(0.4, 0.6, 0.5, 0.5))  # in single precision 1 - p of the label is zero


def test_projection_onto_both_balls():
    x = torch.full((2, 1, 2, 2), 0.5)
    point = x + torch.stack([image(0.3, -0.4, 0.0, 0.0)[0], image(0.03, -0.04, 0.0, 0.0)[0]])
    linf, l2 = project(point, x, "linf", 0.1) - x, project(point, x, "l2", 0.1) - x
    assert torch.allclose(linf, torch.stack([image(0.1, -0.1, 0.0, 0.0)[0], image(0.03, -0.04, 0.0, 0.0)[0]]))
    assert torch.allclose(l2, torch.stack([image(0.06, -0.08, 0.0, 0.0)[0], image(0.03, -0.04, 0.0, 0.0)[0]]))


def test_random_points_fill_the_ball():
    x, generator = torch.full((4000, 1, 1, 2), 0.5), torch.Generator().manual_seed(0)
    linf = random_point(x, "linf", 0.2, generator) - x
    assert 0.19 < float(linf.abs().max()) <= 0.2
    assert float(linf.std()) == pytest.approx(0.2 / math.sqrt(3), rel=0.05)
    lengths = (random_point(x, "l2", 0.2, generator) - x).flatten(1).norm(dim=1)
    assert float(lengths.max()) <= 0.2 + 1e-6
    assert float(lengths.square().mean()) == pytest.approx(0.2**2 / 2, rel=0.05)  # E r² = ε²·d/(d + 2)


@pytest.mark.parametrize("name", ATTACKS)
@pytest.mark.parametrize("norm", ["linf", "l2"])
def test_every_attack_stays_within_its_ball_raises_the_loss_and_leaves_everything_alone(net, x, name, norm):
    labels, epsilon = net(x).argmax(-1), 0.05 if norm == "linf" else 0.5
    few = {} if name == "fgsm" else {"steps": 12, "restarts": 2}
    attack = build_attack(name, norm=norm, epsilon=epsilon, **few)
    assert isinstance(attack, Attack)
    net.train()
    net.bn1.eval()
    net.conv1.weight.requires_grad_(False)
    for p in net.parameters():
        p.grad = torch.full_like(p, 0.25)
    weights = {key: value.clone() for key, value in net.state_dict().items()}
    modes, state = [m.training for m in net.modules()], torch.get_rng_state()
    with attacking(net):
        assert not any(m.training for m in net.modules())
        before = F.cross_entropy(net(x), labels)
        found = [attack(net, x, labels, torch.Generator().manual_seed(3)) for _ in range(2)]
        after = F.cross_entropy(net(found[0]), labels)
        assert not any(p.requires_grad for p in net.parameters())
    assert torch.equal(*found)
    assert not found[0].requires_grad
    assert float(found[0].min()) >= 0
    assert float(found[0].max()) <= 1
    change = (found[0] - x).flatten(1)
    assert float((change.abs().amax(1) if norm == "linf" else change.norm(dim=1)).max()) <= epsilon * (1 + 1e-5)
    assert float(after) > float(before)
    assert torch.equal(torch.get_rng_state(), state)
    assert [m.training for m in net.modules()] == modes
    assert [n for n, p in net.named_parameters() if not p.requires_grad] == ["conv1.weight"]
    assert all(bool((p.grad == 0.25).all()) for p in net.parameters())
    assert all(torch.equal(weights[key], value) for key, value in net.state_dict().items())


def test_pgd_alone_leaves_no_gradient_on_parameters(net, x):
    pgd(net, x, torch.zeros(6, dtype=torch.long), norm="linf", epsilon=0.1, steps=2)
    assert all(p.grad is None and p.requires_grad for p in net.parameters())


def test_attacking_restores_after_an_exception(net):
    net.train()
    net.linear.weight.grad = before = torch.ones_like(net.linear.weight)

    def broken_attack():
        with attacking(net):
            net.linear.weight.grad = torch.zeros_like(before)
            raise KeyError

    with pytest.raises(KeyError):
        broken_attack()
    assert net.training
    assert net.linear.weight.requires_grad
    assert net.linear.weight.grad is before


@pytest.mark.parametrize("attack", [PGD(steps=3), APGD(steps=8), APGD(loss="dlr", steps=8)], ids=lambda a: a.name)
def test_more_restarts_break_the_same_images_and_more(attack):
    model, x, labels = attacked_network()
    broken = []
    for restarts in (1, 2, 4):
        found = replace(attack, epsilon=0.03, restarts=restarts)(model, x, labels, torch.Generator().manual_seed(0))
        broken.append(model(found).argmax(-1) != labels)
    assert all(bool((more | ~less).all()) for less, more in pairwise(broken))
    assert 0 < int(broken[-1].sum()) < len(x)


def test_the_gradient_over_noise_is_the_gradient_of_the_mean(net, x):
    """Against a plain loop over passes; with a block before anything random the noise of both is the same."""
    noisy = pp.add_diffusion(net, ["layer1"], x, initial_scale=0.5)
    image, label = x[:1].requires_grad_(), torch.tensor([3])
    with attacking(noisy):
        logits = expected_logits(noisy, image, 4, generator=torch.Generator().manual_seed(0))
        stream, every = torch.Generator().manual_seed(0), []
        for noise in torch.empty(4, 4, 16, 16).normal_(generator=stream):  # what one batch of four draws
            with diffusion(noisy, passes=[[noise[None]]]):
                every.append(noisy(image).softmax(-1))
        by_hand = torch.stack(every).mean(0)
        assert torch.allclose(logits.exp(), by_hand, atol=1e-6)
        losses = F.cross_entropy(logits, label), -by_hand[0, 3].log()
        assert torch.allclose(*(torch.autograd.grad(loss, image)[0] for loss in losses), atol=1e-6)


def test_over_one_pass_with_the_same_noise_the_gradient_is_exact_and_noise_is_fresh_in_each_call(net, x):
    noisy = pp.add_diffusion(net, ["layer2"], x, initial_scale=0.5)
    images = x.clone().requires_grad_()
    with attacking(noisy):
        mine = expected_logits(noisy, images, 1, generator=torch.Generator().manual_seed(5))
        with diffusion(noisy, generator=torch.Generator().manual_seed(5)):
            plain = noisy(images).log_softmax(-1)
        assert torch.allclose(mine, plain, atol=1e-6)
        gradients = [torch.autograd.grad(z[:, 0].sum(), images)[0] for z in (mine, plain)]
        assert torch.allclose(*gradients, atol=1e-6)
        stream = torch.Generator().manual_seed(0)
        assert not torch.equal(*(expected_logits(noisy, images, 2, generator=stream) for _ in range(2)))
        assert torch.equal(expected_logits(noisy, images, 0), net(images))
        logits = expected_logits(noisy, images, 3, generator=torch.Generator().manual_seed(2), average="logits")
        with diffusion(noisy, generator=torch.Generator().manual_seed(2)):
            assert torch.allclose(logits, noisy(torch.cat([images] * 3)).view(3, 6, -1).mean(0), atol=1e-6)


def test_what_has_no_gradient_is_refused(net, x):
    labels = torch.zeros(6, dtype=torch.long)
    blind = {
        "detached": lambda images: net(images).detach(),
        "no_grad": torch.no_grad()(net.forward),
        "numpy": lambda images: torch.from_numpy(images.numpy().reshape(6, -1)),
        "of parameters alone": lambda images: net(images.detach()),
        "rounded": lambda images: net((images * 255).byte().float()),
    }
    for model in blind.values():
        with pytest.raises(UserError, match="needs the gradient .* this model gives none; attack the torch network"):
            pgd(model, x, labels, norm="linf", epsilon=0.1)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: PGD(norm="l1"), "norm='l1' is not known; choose from linf, l2"),
        (lambda: PGD(epsilon=-1), "epsilon=-1 of an attack must be at least 0"),
        (lambda: PGD(epsilon=math.nan), "epsilon=nan of an attack must be at least 0"),
        (lambda: APGD(steps=0), "steps=0 of an attack must be at least 1"),
        (lambda: PGD(restarts=0), "restarts=0 of an attack must be at least 1"),
        (lambda: PGD(restarts=2, random_start=False), "restarts=2 from the same point are all the same"),
        (lambda: PGD(step_size=0.0), "step_size=0.0 and epsilon=.* must both be above 0"),
        (lambda: build_attack("cw"), "attack='cw' is not known; choose from fgsm, pgd, apgd_ce, apgd_dlr"),
        (lambda: build_attack("fgsm", steps=3), "steps=3: the attack fgsm has no steps; it has norm, epsilon"),
        (lambda: dlr(torch.zeros(1, 2), ZERO), "the DLR loss needs 3 classes, the model has 2; choose attack="),
        (lambda: pgd(linear, GREY, ZERO, norm="linf", epsilon=0.1, steps=0), "steps=0 of an attack"),
    ],
)
def test_bad_options_are_answered_in_one_line(make, message):
    with pytest.raises(UserError, match=message) as caught:
        make()
    assert "\n" not in str(caught.value)


def test_an_attack_of_another_size_keeps_its_options_and_the_share_of_its_step():
    small = resized(PGD(epsilon=0.1, step_size=0.02, steps=7), 0.05)
    assert (small.epsilon, small.step_size, small.steps) == (0.05, pytest.approx(0.01), 7)
    assert PGD(epsilon=0.1, step_size=0.02).effort == small.effort.replace("7", "10")
    assert FGSM(norm="l2").harder() == PGD(norm="l2")
    assert single_step(PGD(norm="l2", epsilon=0.3, steps=7)) == FGSM(norm="l2", epsilon=0.3)


def test_the_whole_family_works_on_one_channel_and_one_image():
    model = nn.Sequential(nn.Flatten(), nn.Linear(4, 3))
    for attack in ATTACKS.values():
        assert attack(model, GREY, ZERO, torch.Generator().manual_seed(0)).shape == GREY.shape
    assert ascent(model, GREY, ZERO, cross_entropy).losses.shape == (1,)


def test_a_model_with_noise_of_its_own_is_refused_under_attack():
    def noisy(x):
        return x.flatten(1)[:, :10] * 20 + torch.randn(len(x), 10)

    images = torch.randint(0, 256, (12, 3, 8, 8), dtype=torch.uint8)
    with pytest.raises(UserError, match="gives different outputs for the same images; give one whose noise"):
        pp.evaluate(noisy, "adversarial", data=(images, torch.arange(12) % 10))
