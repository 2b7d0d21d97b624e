"""PGD training: the attacked images by hand, and what the attack leaves behind."""

import copy
from dataclasses import replace

import pytest
import torch
from support.one_step import batch_of, linear_batch, only_objective, small_resnet
from torch import nn
from torch.nn import functional as F

from pdeplus._lib import registry
from pdeplus.augment.identity import Identity
from pdeplus.data.base import Batch
from pdeplus.errors import UserError
from pdeplus.methods.base import overlaps_of
from pdeplus.methods.erm import ERM
from pdeplus.methods.pgd import PGD

NORMS = ["linf", "l2"]


def linear_softmax():
    return nn.Sequential(nn.Flatten(), nn.Linear(4, 3))


def gradient_by_hand(net, batch):
    """∇_x CE = Wᵀ(p - e_y) of a linear softmax model."""
    weight, bias = net[1].weight.detach(), net[1].bias.detach()
    x = batch.images.flatten(1)
    return ((x @ weight.T + bias).softmax(-1) - F.one_hot(batch.labels, 3)) @ weight


def loss_by_hand(net, batch, change):
    x = (batch.images.flatten(1) + change).clamp(0, 1)
    return F.cross_entropy(x @ net[1].weight.T + net[1].bias, batch.labels).item()


@pytest.mark.parametrize(("epsilon", "size"), [("published", 1 / 255), (0.3, 0.3)])
def test_the_linf_loss_is_that_at_the_sign_of_the_gradient(epsilon, size):
    net, batch = linear_softmax(), linear_batch()
    change = size * gradient_by_hand(net, batch).sign()
    goal = only_objective(PGD(epsilon=epsilon), net, batch)
    assert goal.loss.item() == pytest.approx(loss_by_hand(net, batch, change), rel=1e-6)
    assert goal.loss.item() > loss_by_hand(net, batch, 0 * change)
    assert set(goal.parts) == {"task"}


@pytest.mark.parametrize(("epsilon", "size"), [("published", 0.1), (0.8, 0.8)])
def test_the_l2_loss_is_that_along_the_gradient(epsilon, size):
    """A step of five times its size, cut to [0, 1], then scaled back."""
    net, batch = linear_softmax(), linear_batch()
    gradient, x = gradient_by_hand(net, batch), batch.images.flatten(1)
    change = (x + 5 * size * gradient / gradient.norm(dim=1, keepdim=True)).clamp(0, 1) - x
    change = change * (size / change.norm(dim=1, keepdim=True)).clamp(max=1)
    goal = only_objective(PGD(norm="l2", epsilon=epsilon), net, batch)
    assert goal.loss.item() == pytest.approx(loss_by_hand(net, batch, change), rel=1e-6)
    assert goal.loss.item() > loss_by_hand(net, batch, 0 * change)


@pytest.mark.parametrize(
    ("pixels", "attacked"),
    [
        ((0.5, 0.5), (0.5 + 0.06, 0.5 - 0.08)),  # a step of (0.3, -0.4), which is inside, scaled from 0.5 to 0.1
        ((1.0, 0.5), (1.0, 0.4)),  # white cannot rise: the change is (0, -0.4), and 0.1 after the projection
        ((0.5, 0.02), (0.5 + 0.3 * 0.1 / (0.09 + 0.0004) ** 0.5, 0.02 - 0.02 * 0.1 / (0.09 + 0.0004) ** 0.5)),
        ((1.0, 0.0), (1.0, 0.0)),
    ],
)
def test_the_published_step_in_l2_by_hand(pixels, attacked):
    """The gradient points along (3, -4) / 5: a step of 0.5 is (0.3, -0.4), cut to [0, 1], then scaled to 0.1."""
    net = nn.Sequential(nn.Flatten(), nn.Linear(2, 2, bias=False))
    net[1].weight.data = torch.tensor([[-3.0, 4.0], [0.0, 0.0]])  # the loss of class 0 rises along (3, -4)
    x = torch.tensor(pixels).view(1, 1, 1, 2)
    found = PGD(norm="l2").attacked(net, x, torch.tensor([0]), None)
    assert found.flatten().tolist() == pytest.approx(attacked, abs=1e-6)


def test_a_larger_step_than_epsilon_is_cut_to_it():
    """In the norm linf the published step size of 0.5 is a full-size step; in l2 it is the default."""
    net, batch = linear_softmax(), linear_batch()
    for norm in NORMS:
        cut, full = (only_objective(method, net, batch) for method in (PGD(norm=norm, step_size=0.5), PGD(norm=norm)))
        assert cut.loss == full.loss
    half = only_objective(PGD(epsilon=0.3, step_size=0.1), net, batch).loss.item()
    by_hand = loss_by_hand(net, batch, 0.1 * gradient_by_hand(net, batch).sign())
    assert half == pytest.approx(by_hand, rel=1e-6)


@pytest.mark.parametrize("norm", NORMS)
def test_more_steps_raise_the_loss_at_least_as_much(norm, x):
    net, batch, epsilon = small_resnet().eval(), batch_of(x), {"linf": 8 / 255, "l2": 2.0}[norm]
    one, ten = (only_objective(PGD(norm=norm, epsilon=epsilon, steps=n), net, batch).loss.item() for n in (1, 10))
    clean = only_objective(ERM(), net, batch).loss.item()
    assert ten >= one > clean


@pytest.mark.parametrize("norm", NORMS)
def test_the_attack_touches_no_gradient_and_the_objective_gives_all(norm, x):
    net = small_resnet().train()
    for p in net.parameters():
        p.grad = torch.full_like(p, 7.0)
    batch = batch_of(x)
    attacked = PGD(norm=norm, steps=2).attacked(net, batch.images, batch.labels, batch.generator)
    assert all(p.requires_grad and (p.grad == 7).all() for p in net.parameters())
    assert not attacked.requires_grad
    goal = only_objective(PGD(norm=norm), net, batch)
    assert all((p.grad == 7).all() for p in net.parameters())
    gradients = torch.autograd.grad(goal.loss, list(net.parameters()))
    assert all(g.any() for g in gradients)


@pytest.mark.parametrize("mode", ["train", "eval"])
def test_every_module_keeps_its_mode(mode, x):
    net = small_resnet().train()
    net.layer2.eval()
    before = [module.training for module in net.modules()]
    only_objective(PGD(attack_mode=mode), net, batch_of(x))
    assert [module.training for module in net.modules()] == before


def test_modes_come_back_after_an_exception(x):
    net = small_resnet().train()
    with pytest.raises(IndexError):
        only_objective(PGD(attack_mode="eval"), net, Batch(x, torch.full((6,), 9), Identity(), torch.Generator()))
    assert all(module.training for module in net.modules())


def test_the_attack_counts_in_the_running_statistics_in_train_mode_only(x):
    """In eval mode they are those of one plain pass of the attacked images."""
    for mode, steps, passes in (("train", 1, 2), ("train", 3, 4), ("eval", 3, 1)):
        net = small_resnet().train()
        only_objective(PGD(attack_mode=mode, steps=steps), net, batch_of(x))
        assert net.bn1.num_batches_tracked == passes
    net, batch, method = small_resnet().train(), batch_of(x), PGD(attack_mode="eval")
    plain = copy.deepcopy(net)
    plain(method.attacked(net, x, batch.labels, None))
    only_objective(method, net, batch)
    assert torch.equal(net.layer4[1].bn2.running_var, plain.layer4[1].bn2.running_var)


def test_a_random_start_comes_from_the_batch_alone(x):
    net, method = small_resnet().eval(), PGD(random_start=True, epsilon=0.05, step_size=0.01)
    state = torch.get_rng_state()
    losses = [only_objective(method, net, batch_of(x, seed=seed)).loss.item() for seed in (0, 0, 1)]
    assert torch.equal(state, torch.get_rng_state())
    assert losses[0] == losses[1] != losses[2]


def test_label_smoothing_is_of_the_training_loss():
    net, batch = linear_softmax(), replace(linear_batch(), label_smoothing=0.1)
    x = PGD().attacked(net, batch.images, batch.labels, None)
    by_hand = F.cross_entropy(net(x), batch.labels, label_smoothing=0.1)
    assert only_objective(PGD(), net, batch).loss.item() == pytest.approx(by_hand.item())


def test_mixed_precision_keeps_the_images_in_full(x):
    net, batch = small_resnet().train(), batch_of(x)
    with torch.autocast("cpu", torch.bfloat16):
        attacked = PGD(norm="l2").attacked(net, batch.images, batch.labels, None)
        goal = only_objective(PGD(norm="l2"), net, batch)
    assert attacked.dtype == torch.float32
    assert (attacked - x).flatten(1).norm(dim=1).max() <= 0.1 + 1e-6
    assert goal.loss.isfinite()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"epsilon": -1.0}, "method.epsilon=-1"),
        ({"steps": 0}, "method.steps=0"),
        ({"step_size": -0.1}, "method.step_size=-0.1"),
        ({"norm": "l1"}, "method.norm='l1'.*linf, l2"),
        ({"attack_mode": "frozen"}, "method.attack_mode='frozen'.*train, eval"),
    ],
)
def test_bad_options_are_named(options, message):
    with pytest.raises(UserError, match=message):
        PGD(**options)


def test_names_and_overlaps():
    assert [PGD(norm=norm).label for norm in NORMS] == ["PGD_linf", "PGD_l2"]
    assert registry.build("methods", "pgd", {"norm": "l2", "epsilon": 1}) == PGD(norm="l2", epsilon=1.0)
    assert overlaps_of(PGD(), Identity())["pgd"] == ()
