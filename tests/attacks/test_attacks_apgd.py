"""APGD: its checkpoints, its loss and its steps by hand; never worse than where it began."""

import pytest
import torch
from support.attacked_network import attacked_network
from torch.nn import functional as F

from pdeplus.attacks.gradient_attacks import APGD, PGD
from pdeplus.attacks.steps import apgd, ascent, checkpoints, cross_entropy, dlr

ZERO = torch.zeros(1, dtype=torch.long)


def test_the_checkpoints_of_a_hundred_steps_by_hand():
    assert checkpoints(100) == [22, 41, 57, 70, 80, 87, 93, 99]


def test_the_checkpoints_of_few_steps_are_rounded_up_and_differ():
    assert checkpoints(10) == [3, 5, 6, 7, 8, 9, 10]
    assert checkpoints(1) == [1]


def test_dlr_by_hand():
    logits = torch.tensor([[3.0, 1.0, 0.0, -1.0], [1.0, 3.0, 2.5, 0.0], [2.0, 2.0, 2.0, 2.0]])
    found = dlr(logits, torch.tensor([0, 0, 1]))
    assert found.tolist() == pytest.approx([-(3 - 1) / (3 - 0), -(1 - 3) / (3 - 1), 0])
    assert torch.allclose(dlr(5 * logits + 7, torch.tensor([0, 0, 1])), found)


def test_dlr_is_positive_exactly_where_an_image_is_broken(net, x):
    labels = torch.arange(6)
    assert torch.equal(dlr(net(x), labels) > 0, net(x).argmax(-1) != labels)


def test_one_image_step_by_step_as_in_the_paper():
    """A parabola with its top inside the ball: every point of the way is worked out by hand."""
    top, epsilon, steps = 0.53, 0.1, 12

    def logits(x):  # the cross-entropy of label 0 is log(1 + exp(z)): it rises with z
        z = 4 - 300 * (x.flatten(1) - top) ** 2
        return torch.cat([torch.zeros_like(z), z], 1)

    seen = []

    def watched(x):
        seen.append(float(x.detach()))
        return logits(x)

    x = torch.full((1, 1, 1, 1), 0.5, dtype=torch.double)
    apgd(watched, x, x, ZERO, cross_entropy, norm="linf", epsilon=epsilon, steps=steps)

    def height(v):
        return -((v - top) ** 2)

    def pull(v):
        return min(max(v, 0.4), 0.6)

    point, before, eta, best = 0.5, 0.5, 0.2, 0.5
    way, rises, since, eta_then, best_then = [0.5], 0, 0, 0.2, 0.5
    for k in range(1, steps + 1):
        z = pull(point + eta * (1 if point < top else -1))
        new = z if k == 1 else pull(point + 0.75 * (z - point) + 0.25 * (point - before))
        way.append(new)
        rises += height(new) > height(point)
        before, point = point, new
        best = max(best, point, key=height)
        if k in (3, 5, 7, 9, 10, 11, 12):  # ⌈12·p⌉ of 0.22, 0.41, 0.57, 0.70, 0.80, 0.87, 0.93, 0.99
            stalled = eta == eta_then and best == best_then
            eta_then, best_then = eta, best
            if rises < 0.75 * (k - since) or stalled:
                eta, point = eta / 2, best
            rises, since = 0, k
    assert checkpoints(steps) == [3, 5, 7, 9, 10, 11, 12]
    assert seen == pytest.approx(way)
    assert eta < 0.2  # it was halved on the way


@pytest.mark.parametrize("loss", ["ce", "dlr"])
@pytest.mark.parametrize("norm", ["linf", "l2"])
def test_the_result_is_never_better_for_the_network_than_the_start(net, loss, norm):
    x, labels = torch.rand(30, 3, 16, 16), torch.arange(30) % 10
    losses = cross_entropy if loss == "ce" else dlr
    found = APGD(loss=loss, norm=norm, epsilon=0.02 if norm == "linf" else 0.3, steps=15)(net, x, labels)
    before, after = (ascent(net, images, labels, losses) for images in (x, found))
    assert bool((after.broken | ~before.broken).all())
    assert bool((after.losses >= before.losses)[before.broken == after.broken].all())
    assert float(after.losses.mean()) > float(before.losses.mean())


def test_apgd_finds_at_least_what_pgd_finds():
    model, x, labels = attacked_network()
    options = {"epsilon": 0.03, "steps": 40}
    attacks = APGD(**options), APGD(loss="dlr", **options), PGD(**options)
    found = [model(attack(model, x, labels, torch.Generator().manual_seed(0))) for attack in attacks]
    ce, ratio, pgd = (int((z.argmax(-1) != labels).sum()) for z in found)
    assert 0 < pgd <= ce < len(x)
    assert pgd <= ratio < len(x)
    assert float(F.cross_entropy(found[0], labels).detach()) > 0.98 * float(F.cross_entropy(found[2], labels).detach())


def test_a_broken_image_is_not_given_back_for_a_greater_loss():
    """Near 0.5 another class wins although the label's loss is less there than at the edge, where nobody wins it."""

    def logits(x):
        v = x.flatten(1)
        own = 1 - 4 * (v - 0.5).abs()
        rival = torch.where((v - 0.5).abs() < 0.02, own + 0.1, own - 0.1)
        crowd = own - 0.2 + 0.5 * (v - 0.5).abs()
        return torch.cat([own, rival, crowd, crowd, crowd], 1)

    x = torch.full((1, 1, 1, 1), 0.5)
    found = apgd(logits, x, x, ZERO, cross_entropy, norm="linf", epsilon=0.2, steps=10)
    assert bool(logits(x).argmax(-1) != 0)
    assert bool(logits(found).argmax(-1) != 0)
