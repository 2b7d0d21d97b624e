"""Noise of a given size in a network: moments in closed form, places, and what leaves no trace."""

import copy

import pytest
import torch
from conftest import STAGES
from support.noisy_passes import one_by_one
from support.one_step import seeded
from torch import nn

import pdeplus as pp
from pdeplus.core.add_block import ADDBlock
from pdeplus.core.prediction import sample_logits
from pdeplus.core.surgery import Constant, Relative, add_noise, convolutions
from pdeplus.errors import UserError
from pdeplus.evaluation.deployment import plain
from pdeplus.evaluation.tested_models import fast_copy
from pdeplus.methods.en_resnet import Ensemble


def linear_pair() -> nn.Sequential:
    """Two linear layers without bias, 4 → 6 → 3."""
    return nn.Sequential(nn.Linear(4, 6, bias=False), nn.Linear(6, 3, bias=False)).eval()


def test_constant_is_one_number_and_relative_a_share_of_the_spread():
    h = torch.tensor([[1.0, 2.0], [3.0, 6.0]])  # mean 3, variance (4 + 1 + 0 + 9) / 4 = 3.5
    assert torch.equal(Constant(0.3)(h), torch.full((2, 2), 0.3))
    assert torch.allclose(Relative(0.1)(h), torch.full((2, 2), 0.1 * 3.5**0.5))
    images = torch.randn(3, 4, 5, 5).to(memory_format=torch.channels_last)
    assert torch.allclose(Relative(2.0)(images), (2 * images.std(correction=0)).expand(3, 4, 5, 5))


@pytest.mark.parametrize("size", [-0.1, float("nan")])
@pytest.mark.parametrize("kind", [Constant, Relative])
def test_negative_noise_is_refused(kind, size):
    with pytest.raises(UserError, match=f"{size} must be 0 or more"):
        kind(size)


@pytest.mark.parametrize(("where", "reach"), [("before", 0), ("after", 1)])
def test_moments_before_and_after_a_module_are_the_closed_form(where, reach):
    """Noise before the first layer is carried by both matrices, noise behind it by the second alone."""
    model = linear_pair()
    first, second = (layer.weight.detach() for layer in model)
    carrier = second @ first if reach == 0 else second
    x = torch.randn(2, 4)
    net = add_noise(model, ["0"], lambda name: Constant(0.7), where=where)
    logits = sample_logits(net, x, 20_000, generator=seeded(3))
    std = 0.7 * carrier.norm(dim=1)
    assert torch.allclose(logits.mean(0), model(x), atol=5 * float(std.max()) / 20_000**0.5)
    assert torch.allclose(logits.std(0), std.expand(2, 3), rtol=0.03)


def test_noise_at_several_places_adds_its_variances():
    model = linear_pair()
    first, second = (layer.weight.detach() for layer in model)
    net = add_noise(model, ["0", "1"], lambda name: Constant({"0": 0.5, "1": 0.2}[name]), where="before")
    logits = sample_logits(net, torch.randn(1, 4), 20_000, generator=seeded(3))
    variance = 0.25 * (second @ first).square().sum(1) + 0.04 * second.square().sum(1)
    assert torch.allclose(logits.var(0), variance.expand(1, 3), rtol=0.05)


def test_relative_noise_has_the_share_it_names():
    x = 5 + 3 * torch.randn(200, 50)
    net = add_noise(nn.Sequential(nn.Identity()), ["0"], lambda name: Relative(0.1))
    with pp.diffusion(net, generator=seeded(3)):
        noise = net(x) - x
    assert noise.std() / x.std() == pytest.approx(0.1, rel=0.03)
    assert abs(noise.mean()) < 0.02


PLACES = {"before": "conv1", "after": "layer1"}


@pytest.mark.parametrize("where", ["before", "after"])
@pytest.mark.parametrize("scale", [Constant, Relative])
def test_off_it_is_the_model_bit_for_bit_and_on_it_is_not(net, x, where, scale):
    before = copy.deepcopy(net.state_dict())
    changed = add_noise(net, [PLACES[where], "layer3"], lambda name: scale(0.2), where=where)
    assert torch.equal(changed(x), net(x))
    with pp.diffusion(changed, generator=seeded(3)):
        noisy = changed(x)
    assert not torch.allclose(noisy, net(x), atol=1e-3)
    with pp.diffusion(changed, generator=seeded(3)):
        assert torch.equal(changed(x), noisy)
    assert not any(isinstance(module, ADDBlock) for module in net.modules())
    assert all(torch.equal(value, before[name]) for name, value in net.state_dict().items())
    assert set(changed.state_dict()) == set(before)  # the noise has no weights


@pytest.mark.parametrize("where", ["before", "after"])
def test_zero_noise_is_none(net, x, where):
    changed = add_noise(net, STAGES, lambda name: Constant(0.0), where=where)
    with pp.diffusion(changed, generator=seeded(3)):
        assert torch.equal(changed(x), net(x))


@pytest.mark.parametrize("where", ["before", "after"])
def test_plain_strips_the_noise(net, x, where):
    changed = add_noise(net, [PLACES[where], "layer2"], lambda name: Constant(0.5), where=where)
    stripped = plain(changed)
    assert not any(isinstance(module, ADDBlock) for module in stripped.modules())
    assert not any(m._forward_hooks or m._forward_pre_hooks for m in stripped.modules())
    assert torch.equal(stripped(x), net(x))
    assert any(m._forward_hooks or m._forward_pre_hooks for m in changed.modules())


@pytest.mark.parametrize("where", ["before", "after"])
@pytest.mark.parametrize("scale", [Constant, Relative])
@pytest.mark.parametrize("images", [1, 6])
def test_samples_equal_passes_one_by_one(net, x, where, scale, images):
    """Relative noise too, whose σ is each pass's own although the passes share a batch."""
    changed = add_noise(net, [PLACES[where], "layer2", "layer4"], lambda name: scale(0.4), where=where)
    at_once = sample_logits(changed, x[:images], 5, generator=seeded(3))
    assert torch.allclose(at_once, one_by_one(changed, x[:images], 5, seeded(3)), atol=1e-5)
    assert (at_once[0] - at_once[1]).abs().max() > 1e-3


@pytest.mark.parametrize("images", [1, 3])
def test_samples_of_an_ensemble_equal_passes_one_by_one(net, x, images):
    """The second member starts from the images again, behind the first place of the noise."""
    both = Ensemble([net, copy.deepcopy(net)])
    places = [f"members.{i}.{name}" for i in range(2) for name in STAGES]
    changed = add_noise(both, places, lambda name: Relative(0.4)).eval()
    at_once = sample_logits(changed, x[:images], 4, generator=seeded(3))
    assert torch.allclose(at_once, one_by_one(changed, x[:images], 4, seeded(3)), atol=1e-5)


@pytest.mark.parametrize("where", ["before", "after"])
def test_a_deep_copy_has_noise_of_its_own(net, x, where):
    changed = add_noise(net, STAGES, lambda name: Constant(0.5), where=where)
    twin = copy.deepcopy(changed)
    with pp.diffusion(twin, generator=seeded(3)):
        noisy = twin(x)
        assert torch.equal(changed(x), net(x))  # the context is the copy's alone
    with pp.diffusion(changed, generator=seeded(3)):
        assert torch.equal(changed(x), noisy)


@pytest.mark.parametrize(("where", "scale", "folded"), [("before", Constant, 0), ("after", Relative, 20)])
def test_the_fast_copy_keeps_the_noise(net, x, where, scale, folded):
    """A convolution with noise before it is left as it was; others take their BatchNorm in."""
    places = convolutions(net) if where == "before" else STAGES
    changed = add_noise(net, places, lambda name: scale(0.3), where=where)
    slow = pp.predict(changed, x, 3, generator=seeded(3))
    fast = fast_copy(changed, x)
    assert sum(isinstance(module, nn.Identity) for module in fast.modules()) == folded
    assert torch.allclose(pp.predict(fast, x, 3, generator=seeded(3)), slow, atol=1e-4)
    assert not torch.allclose(pp.predict(fast, x, 0), slow, atol=1e-3)


def test_gradients_pass_through_both_kinds():
    x = torch.randn(4, 3, requires_grad=True)
    for scale, factor in ((Constant(0.5), 0.0), (Relative(0.5), 0.5)):
        net = add_noise(nn.Sequential(nn.Identity()), ["0"], lambda name, scale=scale: scale)
        with pp.diffusion(net, generator=seeded(3)):
            (gradient,) = torch.autograd.grad(net(x).sum(), x)
        noise = torch.empty(4, 3).normal_(generator=seeded(3))
        centred = (x - x.mean()) / (12 * x.std(correction=0))  # derivative of the standard deviation
        assert torch.allclose(gradient, 1 + factor * noise.sum() * centred.detach(), atol=1e-5)


def test_convolutions_are_found_in_the_order_of_the_modules(net):
    found = convolutions(net)
    assert found[:3] == ["conv1", "layer1.0.conv1", "layer1.0.conv2"]
    assert len(found) == 20  # a stem, sixteen in the blocks, three shortcuts
    assert convolutions(linear_pair()) == []


def test_bad_places_are_named(net):
    with pytest.raises(UserError, match="no module 'layer9'"):
        add_noise(net, ["layer9"], lambda name: Constant(0.1))
    with pytest.raises(UserError, match="where='behind'"):
        add_noise(net, ["layer1"], lambda name: Constant(0.1), where="behind")
    once = add_noise(net, ["layer1"], lambda name: Constant(0.1))
    with pytest.raises(UserError, match="already"):
        add_noise(once, ["layer2"], lambda name: Constant(0.1))
