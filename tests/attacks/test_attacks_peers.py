"""PGD breaks as many images of a trained network as established libraries do with the same budget."""

from statistics import mean
from typing import NamedTuple

import pytest
import torch
from support.peers import peer
from torch import Tensor, nn

from pdeplus.attacks.gradient_attacks import APGD, FGSM, PGD, attacking
from pdeplus.data.digits import Digits

STEPS = 20
BUDGETS = [("linf", 0.02), ("linf", 0.05), ("l2", 0.2), ("l2", 0.5)]
POINT = 0.01
SEEDS = 3
"""Of random starts, whose success rates are averaged."""


class Trained(NamedTuple):
    net: nn.Module
    x: Tensor
    y: Tensor


@pytest.fixture(scope="module")
def trained(erm) -> Trained:
    """A network that has learnt the digits, and all images it gets right: a point is more than eight of them."""
    data = Digits(size=8)
    net = erm.load_weights(erm.weights("last")[1]).eval()
    for p in net.parameters():
        p.requires_grad_(False)
    parts = data.train(), data.test()["clean"]
    x, y = torch.cat([part.floats() for part in parts]), torch.cat([part.labels for part in parts])
    right = net(x).argmax(-1) == y
    return Trained(net, x[right], y[right])


def success(t: Trained, found: Tensor) -> float:
    return float((t.net(found.detach()).argmax(-1) != t.y).float().mean())


def ours(t: Trained, attack, seeds: int = 1) -> float:
    with attacking(t.net):
        found = [attack(t.net, t.x, t.y, torch.Generator().manual_seed(seed)) for seed in range(seeds)]
    return mean([success(t, images) for images in found])


@pytest.mark.parametrize(("norm", "epsilon"), BUDGETS)
@pytest.mark.parametrize("random_start", [False, True])
def test_as_torchattacks(trained, norm, epsilon, random_start):
    library = peer("torchattacks")
    step = 2.5 * epsilon / STEPS
    kind = library.PGD if norm == "linf" else library.PGDL2
    attack = kind(trained.net, eps=epsilon, alpha=step, steps=STEPS, random_start=random_start)
    seeds = SEEDS if random_start else 1
    theirs = mean([success(trained, attack(trained.x, trained.y)) for _ in range(seeds)])
    mine = ours(trained, PGD(norm=norm, epsilon=epsilon, steps=STEPS, random_start=random_start), seeds)
    print(f"torchattacks {norm} {epsilon} {random_start=}: theirs {theirs:.4f}, ours {mine:.4f}")
    assert 0.02 < theirs < 0.98
    assert abs(mine - theirs) <= POINT


@pytest.mark.parametrize(("norm", "epsilon"), BUDGETS)
@pytest.mark.parametrize("random_start", [False, True])
def test_as_foolbox(trained, norm, epsilon, random_start):
    library = peer("foolbox")
    kind = library.attacks.LinfPGD if norm == "linf" else library.attacks.L2PGD
    attack = kind(abs_stepsize=2.5 * epsilon / STEPS, steps=STEPS, random_start=random_start)
    model = library.PyTorchModel(trained.net, bounds=(0, 1), device="cpu")
    seeds = SEEDS if random_start else 1
    found = [attack(model, trained.x, trained.y, epsilons=epsilon)[1] for _ in range(seeds)]
    theirs = mean([success(trained, images) for images in found])
    mine = ours(trained, PGD(norm=norm, epsilon=epsilon, steps=STEPS, random_start=random_start), seeds)
    print(f"foolbox {norm} {epsilon} {random_start=}: theirs {theirs:.4f}, ours {mine:.4f}")
    assert 0.02 < theirs < 0.98
    assert abs(mine - theirs) <= POINT


@pytest.mark.parametrize("epsilon", [0.02, 0.05])
def test_fgsm_is_torchattacks_image_by_image(trained, epsilon):
    theirs = peer("torchattacks").FGSM(trained.net, eps=epsilon)(trained.x, trained.y)
    mine = FGSM(epsilon=epsilon)(trained.net, trained.x, trained.y)
    assert float(((mine - theirs).abs() < 1e-6).float().mean()) > 0.99  # signs of vanishing gradients may differ


@pytest.mark.parametrize("loss", ["ce", "dlr"])
@pytest.mark.parametrize(("norm", "epsilon"), BUDGETS[::2])
def test_apgd_as_torchattacks(trained, norm, epsilon, loss):
    name = {"linf": "Linf", "l2": "L2"}[norm]
    library = peer("torchattacks")
    attack = library.APGD(trained.net, norm=name, eps=epsilon, steps=50, loss=loss, n_restarts=1)
    theirs = mean([success(trained, attack(trained.x, trained.y)) for _ in range(SEEDS)])
    mine = ours(trained, APGD(norm=norm, epsilon=epsilon, steps=50, loss=loss))
    print(f"torchattacks APGD {norm} {epsilon} {loss}: theirs {theirs:.4f}, ours {mine:.4f}")
    assert abs(mine - theirs) <= POINT
