"""GradReg: the penalty in closed form, its gradient, and the cases at the edge."""

import copy
from dataclasses import replace

import pytest
import torch
from support.one_step import batch_of, only_objective, seeded
from torch import nn

from pdeplus.augment.crop_flip import CropFlip
from pdeplus.augment.identity import Identity
from pdeplus.data.base import Batch
from pdeplus.errors import UserError
from pdeplus.methods.erm import ERM
from pdeplus.methods.grad_reg import GradReg, gradient_norms
from pdeplus.models.preact_resnet18 import build as build_preact
from pdeplus.models.resnet18 import build
from pdeplus.training.distributed import Engine
from pdeplus.training.loop import train_step


def make_batch(size=5, *, side=4, channels=3, transform=None, dtype=torch.float32):
    images = torch.rand(size, channels, side, side, generator=seeded(1), dtype=dtype)
    return batch_of(images, 4, transform=transform)


def linear(classes=4, inputs=48, dtype=torch.float32):
    torch.manual_seed(0)
    return nn.Sequential(nn.Flatten(), nn.Linear(inputs, classes)).to(dtype)


def test_the_penalty_of_a_linear_model_in_closed_form():
    """∇_x ℓ = Wᵀ(p - e_y), image by image."""
    net, batch = linear(), make_batch()
    goal = only_objective(GradReg(penalty=0.3), net, batch)
    w, p = net[1].weight.detach(), net(batch.images).softmax(-1).detach()
    lengths = [(w.T @ (p[i] - torch.eye(4)[y])).square().sum().sqrt() for i, y in enumerate(batch.labels)]
    task = only_objective(ERM(), net, batch).loss
    assert goal.parts["gradient"].item() == pytest.approx(float(sum(lengths)) / 5, rel=1e-5)
    assert goal.parts["task"].item() == pytest.approx(task.item())
    assert goal.loss.item() == pytest.approx(task.item() + 0.3 * float(sum(lengths)) / 5, rel=1e-5)


def test_the_penalty_by_hand_for_one_pixel_and_two_classes():
    """Logits (0, 2x) at x = 0, label 0: p = (1/2, 1/2), so ℓ' = 2 · 1/2 = 1; at x = 1/2: 2 / (1 + e⁻¹)."""
    net = linear(2, 1)
    with torch.no_grad():
        net[1].weight.copy_(torch.tensor([[0.0], [2.0]]))
        net[1].bias.zero_()
    batch = Batch(torch.tensor([0.0, 0.5]).view(2, 1, 1, 1), torch.zeros(2, dtype=torch.long), Identity(), seeded())
    gradient = only_objective(GradReg(), net, batch).parts["gradient"]
    assert gradient.item() == pytest.approx((1 + 1.4621172) / 2, rel=1e-6)


def test_the_gradient_of_the_penalty_against_finite_differences():
    torch.manual_seed(0)
    net = nn.Sequential(nn.Conv2d(3, 2, 3), nn.BatchNorm2d(2), nn.Tanh(), nn.Flatten(), nn.Linear(8, 4)).double()
    batch = replace(make_batch(dtype=torch.float64), label_smoothing=0.1)
    method = GradReg(penalty=1.0)
    only_objective(method, net, batch).parts["gradient"].backward()
    step = 1e-6
    for parameter in net.parameters():
        expected = torch.zeros_like(parameter).flatten()
        flat = parameter.data.view(-1)
        for i in range(min(len(flat), 6)):
            values = list[float]()
            for change in (step, -step):
                flat[i] += change
                values.append(only_objective(method, net, batch).parts["gradient"].item())
                flat[i] -= change
            expected[i] = (values[0] - values[1]) / (2 * step)
            found = 0.0 if parameter.grad is None else float(parameter.grad.view(-1)[i])
            assert found == pytest.approx(float(expected[i]), abs=1e-7, rel=1e-5)


def test_batch_norm_couples_the_images_and_the_gradient_is_that_of_the_sum():
    torch.manual_seed(0)
    net = nn.Sequential(nn.BatchNorm2d(3), nn.Flatten(), nn.Linear(48, 4)).double()
    batch = make_batch(dtype=torch.float64)
    found = only_objective(GradReg(), net, batch).parts["gradient"]
    jacobian = torch.autograd.functional.jacobian(
        lambda x: nn.functional.cross_entropy(net(x), batch.labels, reduction="none"), batch.images
    )
    summed = jacobian.sum(0).flatten(1).norm(dim=1).mean()
    alone = torch.stack([jacobian[i, i].norm() for i in range(5)]).mean()
    assert found.item() == pytest.approx(summed.item(), rel=1e-9)
    assert abs(summed - alone) > 1e-4


def trained(method, steps=2):
    torch.manual_seed(0)
    net = method.prepare(build(classes=4, channels=3, width=4), torch.rand(2, 3, 16, 16)).train()
    optimizers = method.optimizers(net, lambda p: torch.optim.SGD(p, lr=0.05, momentum=0.9))
    for _ in range(steps):
        batch = make_batch(6, side=16, transform=CropFlip(padding=1))
        train_step(net, method, batch, optimizers, Engine("fp32"))
    return copy.deepcopy(net.state_dict())


def test_no_penalty_is_erm_exactly():
    erm, none, some = (trained(method) for method in (ERM(), GradReg(penalty=0.0), GradReg()))
    assert all(torch.equal(erm[name], none[name]) for name in erm)
    assert not torch.equal(erm["conv1.weight"], some["conv1.weight"])


def test_a_penalty_shortens_the_gradients():
    """What training on it does to a fixed batch, against training without."""
    lengths = []
    for penalty in (0.0, 1.0):
        net, batch = linear(), make_batch(8)
        optimizer = torch.optim.SGD(net.parameters(), lr=0.05)
        for _ in range(60):
            optimizer.zero_grad()
            only_objective(GradReg(penalty=penalty), net, batch).loss.backward()
            optimizer.step()
        lengths.append(only_objective(GradReg(), net, batch).parts["gradient"].item())
    assert lengths[1] < 0.7 * lengths[0]


def test_a_zero_gradient_gives_no_nan():
    net = linear()
    nn.init.zeros_(net[1].weight)  # the loss does not depend on the image
    goal = only_objective(GradReg(penalty=1.0), net, make_batch())
    goal.loss.backward()
    assert goal.parts["gradient"].item() == 0
    assert all(p.grad.isfinite().all() for p in net.parameters())


def test_one_zero_gradient_among_others_leaves_theirs():
    scale = torch.tensor([0.0, 2.0], requires_grad=True)
    x = torch.ones(2, 3, requires_grad=True)
    norms = gradient_norms((x * scale[:, None]).sum(1), x)
    norms.sum().backward()
    assert norms.tolist() == pytest.approx([0, 12**0.5])
    assert scale.grad.tolist() == pytest.approx([0, 3**0.5])


@pytest.mark.parametrize("make", [build, build_preact])
def test_networks_in_mixed_precision_have_finite_gradients_and_the_batch_is_left_alone(make):
    torch.manual_seed(0)
    net, batch = make(classes=4, channels=1, width=4), make_batch(2, side=16, channels=1)
    with torch.autocast("cpu", torch.bfloat16):
        goal = only_objective(GradReg(), net, batch)
    goal.loss.backward()
    assert goal.loss.dtype == goal.parts["gradient"].dtype == torch.float32
    assert all(p.grad.isfinite().all() for p in net.parameters())
    assert not batch.images.requires_grad


def test_a_bad_penalty_is_named():
    with pytest.raises(UserError, match=r"method.penalty=-0.1"):
        GradReg(penalty=-0.1)
