"""RLAT: radii and perturbations by hand, its losses, and what the attack leaves behind."""

import copy
from dataclasses import replace

import pytest
import torch
from support.one_step import Scaled, batch_of, linear_batch, only_objective, small_resnet
from torch import nn
from torch.nn import functional as F

from pdeplus._lib import registry
from pdeplus.augment.augmix import AugMix
from pdeplus.augment.identity import Identity
from pdeplus.augment.prime import Prime
from pdeplus.core.network import INPUT
from pdeplus.errors import UserError
from pdeplus.methods.base import overlaps_of
from pdeplus.methods.erm import ERM
from pdeplus.methods.rlat import RLAT, adding, radii
from pdeplus.models.resnet18 import build

PUBLISHED = [0.08, 0.853, 0.569, 0.213, 0.0853, 0.0356]
SMALL = {"wide_resnet": {"width": 2, "widen": 2, "depth": 10}}


class TwoLayers(nn.Module):
    """Linear, images of 1×2×2 → 3 features → 3 logits; the second layer is its only stage."""

    stages = ("layer1",)

    def __init__(self):
        super().__init__()
        self.conv1 = nn.Sequential(nn.Flatten(), nn.Linear(4, 3, bias=False))
        self.layer1 = nn.Linear(3, 3, bias=False)

    def forward(self, x):
        return self.layer1(self.conv1(x))


def lengths(delta):
    return delta.flatten(1).norm(dim=1)


def by_hand(net, images, labels, epsilon):
    """δ_0, δ_1, δ_2 of the linear network, and its logits with them."""
    first, second = net.conv1[1].weight.detach(), net.layer1.weight.detach()
    x = images.flatten(1)
    at_logits = (x @ first.T @ second.T).softmax(-1) - F.one_hot(labels, 3)
    gradients = [at_logits @ second @ first, at_logits @ second, at_logits]
    sizes = [epsilon, epsilon * (3 / 4) / 2, epsilon * (3 / 4) / 3]
    deltas = [r * g / g.norm(dim=1, keepdim=True) for r, g in zip(sizes, gradients, strict=True)]
    hidden = (x + deltas[0]).clamp(0, 1) @ first.T + deltas[1]
    return deltas, hidden @ second.T + deltas[2]


def test_the_six_published_radii():
    """Of ResNet-18 at 32 pixels: input, stem, stages 1 to 4, from the network itself."""
    net = build(classes=10, channels=3).eval()
    deltas = RLAT().perturbations(net, torch.rand(2, 3, 32, 32), torch.tensor([3, 8]))
    assert list(deltas) == [INPUT, "conv1", "layer1", "layer2", "layer3", "layer4"]
    for delta, published in zip(deltas.values(), PUBLISHED, strict=True):
        digits = len(str(published).partition(".")[2])
        assert [round(length, digits) for length in lengths(delta).tolist()] == [published] * 2


def test_radii_follow_the_images_own_size():
    """ε is the length of the image's change whatever its size; a grey image has a third of the elements."""
    assert radii({"": 3072, "a": 65536}, 0.08) == pytest.approx({"": 0.08, "a": 0.08 * (65536 / 3072) / 2})
    assert radii({"": 12288, "a": 262144}, 0.08) == radii({"": 3072, "a": 65536}, 0.08)
    assert radii({"": 1024, "a": 65536}, 0.08)["a"] == pytest.approx(3 * 0.08 * (65536 / 3072) / 2)


def test_perturbations_and_loss_by_hand():
    net, batch = TwoLayers(), linear_batch()
    deltas, logits = by_hand(net, batch.images, batch.labels, 0.5)
    found = RLAT(epsilon=0.5).perturbations(net, batch.images, batch.labels)
    for delta, expected in zip(found.values(), deltas, strict=True):
        assert torch.allclose(delta.flatten(1), expected, atol=1e-6)
    goal = only_objective(RLAT(epsilon=0.5), net, replace(batch, label_smoothing=0.1))
    expected = F.cross_entropy(logits, batch.labels, label_smoothing=0.1)
    assert goal.loss.item() == pytest.approx(expected.item(), rel=1e-5)
    assert set(goal.parts) == {"task"}


def test_consistency_by_hand():
    """Three views, each attacked towards its own loss; cross-entropy on the clean one."""
    net, batch = TwoLayers(), linear_batch()
    goal = only_objective(RLAT(epsilon=0.5, augmentor=Scaled(0.5, 0.1), jsd=12.0), net, batch)
    logits = [by_hand(net, factor * batch.images, batch.labels, 0.5)[1] for factor in (1, 0.5, 0.1)]
    p = torch.stack(logits).softmax(-1)
    consistency = (p * (p.log() - p.mean(0).log())).sum(-1).mean().item()
    task = F.cross_entropy(logits[0], batch.labels).item()
    assert consistency > 0
    assert goal.parts["task"].item() == pytest.approx(task, rel=1e-5)
    assert goal.parts["consistency"].item() == pytest.approx(consistency, rel=1e-4)
    assert goal.loss.item() == pytest.approx(task + 12 * consistency, rel=1e-5)


def test_without_consistency_the_augmented_view_is_attacked():
    net, batch = TwoLayers(), linear_batch()
    goal = only_objective(RLAT(epsilon=0.5, augmentor=Scaled(0.5)), net, batch)
    logits = by_hand(net, 0.5 * batch.images, batch.labels, 0.5)[1]
    assert goal.loss.item() == pytest.approx(F.cross_entropy(logits, batch.labels).item(), rel=1e-5)


def test_a_zero_gradient_gives_no_perturbation():
    net, batch = TwoLayers(), linear_batch()
    with torch.no_grad():
        net.layer1.weight.zero_()
    deltas = RLAT().perturbations(net, batch.images, batch.labels)
    assert not deltas[INPUT].any()
    assert not deltas["conv1"].any()
    assert lengths(deltas["layer1"]).tolist() == pytest.approx([0.08 * 3 / 4 / 3] * 3)
    assert only_objective(RLAT(), net, batch).loss.isfinite()


def test_the_loss_is_higher_than_without_at_every_place(x):
    net, batch = small_resnet().eval(), batch_of(x)
    clean = only_objective(ERM(), net, batch).loss.item()
    assert only_objective(RLAT(epsilon=0.01, placement=("layer4",)), net, batch).loss.item() > clean
    assert only_objective(RLAT(epsilon=0.01), net, batch).loss.item() > clean


@pytest.mark.parametrize(("mode", "passes"), [("train", 2), ("eval", 1)])
def test_without_epsilon_it_is_erm(mode, passes, x):
    """Loss and gradients bit for bit; BatchNorm's statistics too, unless the attack's pass counts in them."""
    results = []
    for method in (ERM(), RLAT(epsilon=0.0, attack_mode=mode)):
        net = small_resnet().train()
        goal = only_objective(method, net, batch_of(x))
        results.append((net, goal.loss, torch.autograd.grad(goal.loss, list(net.parameters()))))
    (plain, loss, gradients), (net, same_loss, same_gradients) = results
    assert torch.equal(loss, same_loss)
    assert all(torch.equal(a, b) for a, b in zip(gradients, same_gradients, strict=True))
    assert net.bn1.num_batches_tracked == passes
    if mode == "eval":
        assert all(torch.equal(a, b) for a, b in zip(plain.buffers(), net.buffers(), strict=True))


@pytest.mark.parametrize("mode", ["train", "eval"])
def test_the_attack_leaves_no_gradient_no_mode_and_no_hook(mode, x):
    net = small_resnet().train()
    net.layer2.eval()
    before = [module.training for module in net.modules()]
    for p in net.parameters():
        p.grad = torch.full_like(p, 7.0)
    goal = only_objective(RLAT(attack_mode=mode), net, batch_of(x))
    assert all(p.requires_grad and (p.grad == 7).all() for p in net.parameters())
    assert [module.training for module in net.modules()] == before
    assert not any(module._forward_hooks or module._forward_pre_hooks for module in net.modules())
    assert all(g.any() for g in torch.autograd.grad(goal.loss, list(net.parameters())))


@pytest.mark.parametrize("failing", [1, 2])
def test_hooks_and_modes_come_back_after_an_exception(failing, x):
    """In the attack's pass and in the training pass."""
    net, calls = small_resnet().train(), []

    def fail(module, args, output):
        calls.append(1)
        if len(calls) == failing:
            raise RuntimeError("no memory")

    handle = net.layer3.register_forward_hook(fail)
    with pytest.raises(RuntimeError, match="no memory"):
        only_objective(RLAT(attack_mode="eval"), net, batch_of(x))
    handle.remove()
    assert all(module.training for module in net.modules())
    assert not any(module._forward_hooks or module._forward_pre_hooks for module in net.modules())


@pytest.mark.parametrize("channels", [1, 3])
@pytest.mark.parametrize("name", registry.names("models"))
def test_every_network_is_attacked_at_input_stem_and_stages(name, channels):
    options = SMALL.get(name, {"width": 4})
    net = registry.build("models", name, options, classes=5, channels=channels)
    batch = batch_of(torch.rand(2, channels, 16, 16))
    net = RLAT().prepare(net, batch.images).train()
    stem = [] if name in ("plain_cnn", "fast_cnn") else ["conv1"]  # no convolution that learns is before their stages
    deltas = RLAT().perturbations(net, batch.images, batch.labels)
    assert list(deltas) == [INPUT, *stem, *net.stages]
    assert all((lengths(delta) > 0).all() for delta in deltas.values())
    assert only_objective(RLAT(augmentor=AugMix(), jsd=12.0), net, batch).loss.isfinite()


def test_a_network_of_ones_own_needs_names():
    net = nn.Sequential(nn.Conv2d(3, 4, 3), nn.ReLU(inplace=True), nn.Flatten(), nn.LazyLinear(5))
    batch = batch_of(torch.rand(4, 3, 8, 8))
    net(batch.images)
    with pytest.raises(UserError, match=r"names no stages; .*method\.placement="):
        RLAT().prepare(net, batch.images)
    with pytest.raises(UserError, match="no module 'stem'"):
        RLAT(placement=("stem",)).prepare(net, batch.images)
    method = RLAT(placement=("0", "1"))
    deltas = method.perturbations(method.prepare(net, batch.images), batch.images, batch.labels)
    sizes = [0.08, 0.08 * (4 * 36 / 192) / 2, 0.08 * (4 * 36 / 192) / 3]
    assert [lengths(delta)[0].item() for delta in deltas.values()] == pytest.approx(sizes)


def test_mixed_precision_and_other_layouts(x):
    """Directions are in full precision; the network's memory layout is kept."""
    net, batch = small_resnet(width=8).train(), batch_of(x)
    expected = RLAT().perturbations(copy.deepcopy(net), x, batch.labels)
    last = copy.deepcopy(net).to(memory_format=torch.channels_last)
    for place, delta in RLAT().perturbations(last, x.to(memory_format=torch.channels_last), batch.labels).items():
        assert torch.allclose(delta, expected[place], atol=1e-3)
        h = torch.rand(delta.shape).to(memory_format=torch.channels_last)
        assert adding(delta, place)(h).is_contiguous(memory_format=torch.channels_last)
    with torch.autocast("cpu", torch.bfloat16):
        deltas = RLAT().perturbations(net, x, batch.labels)
        goal = only_objective(RLAT(augmentor=AugMix(), jsd=12.0), net, batch)
    assert all(delta.dtype == torch.float32 for delta in deltas.values())
    for place, delta in deltas.items():
        assert torch.allclose(lengths(delta), lengths(expected[place]), rtol=1e-4)
    assert goal.loss.dtype == torch.float32
    assert goal.loss.isfinite()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"epsilon": -1.0}, "method.epsilon=-1"),
        ({"jsd": -1.0}, "method.jsd=-1"),
        ({"jsd": 12.0}, "method.jsd=12: consistency needs views that differ: set method.augmentor=augmix"),
        ({"attack_mode": "frozen"}, "method.attack_mode='frozen'.*train, eval"),
    ],
)
def test_bad_options_are_named(options, message):
    with pytest.raises(UserError, match=message):
        RLAT(**options)


def test_names_and_overlaps():
    mixed = registry.build("methods", "rlat", {"augmentor": "augmix", "jsd": 12, "epsilon": 0.05})
    assert [RLAT().label, RLAT(augmentor=AugMix()).label, mixed.label] == ["RLAT", "RLAT+AugMix", "RLAT+AugMix+JSD"]
    assert RLAT(augmentor=Prime()).label == "RLAT+Prime"
    assert overlaps_of(mixed, Identity())["rlat"] == ()
    assert set(overlaps_of(mixed, Identity())) == {"rlat", "augmix", "identity"}
