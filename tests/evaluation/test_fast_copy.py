"""The faster copy of a network: the same predictions, whatever the network."""

import pytest
import torch
from conftest import STAGES
from torch import nn
from torch.nn import functional as F

import pdeplus as pp
from pdeplus._lib import registry
from pdeplus.core.prediction import sample_logits
from pdeplus.evaluation.tested_models import fast_copy

NETWORKS = {
    "resnet18": {"width": 8},
    "preact_resnet18": {"width": 8},
    "wide_resnet": {"width": 4, "depth": 16, "widen": 2},
    "plain_cnn": {"width": 8},
}


@pytest.fixture
def images() -> torch.Tensor:
    return torch.rand(16, 3, 16, 16)


def norms(net: nn.Module) -> int:
    return sum(isinstance(module, nn.BatchNorm2d) for module in net.modules())


@torch.no_grad()
def with_statistics(net: nn.Module) -> nn.Module:
    """BatchNorms as after training: statistics and weights far from the initial ones."""
    for module in net.modules():
        if isinstance(module, nn.BatchNorm2d):
            nn.init.uniform_(module.weight, 0.5, 1.5)
            nn.init.normal_(module.bias, 0, 0.3)
            nn.init.normal_(module.running_mean, 0, 0.3)
            nn.init.uniform_(module.running_var, 0.5, 2)
    return net.eval()


@torch.no_grad()
def check_equal(net: nn.Module, fast: nn.Module, x: torch.Tensor) -> None:
    expected, found = net(x), fast(x)
    assert torch.equal(found.argmax(-1), expected.argmax(-1))
    assert (found - expected).abs().max() <= 1e-5 * max(1, float(expected.abs().max()))


@pytest.mark.parametrize("name", NETWORKS)
def test_the_same_predictions_from_fewer_layers(name, images):
    net = with_statistics(registry.build("models", name, NETWORKS[name], classes=10, channels=3))
    before = {key: value.clone() for key, value in net.state_dict().items()}
    fast = fast_copy(net, images[:2])
    check_equal(net, fast, images)
    assert norms(fast) < norms(net)
    assert not fast.training
    assert all(torch.equal(before[key], value) for key, value in net.state_dict().items())
    assert norms(net) > 0


def test_nothing_but_convolutions_is_left_of_a_resnet(net, images):
    assert norms(net) == 20
    assert norms(fast_copy(net, images[:2])) == 0


@pytest.mark.parametrize("name", NETWORKS)
def test_add_blocks_give_the_same_sigma_and_do_the_same_with_noise(name, images):
    plain = registry.build("models", name, NETWORKS[name], classes=10, channels=3)
    net = with_statistics(pp.add_diffusion(plain, list(plain.stages), images[:2]))
    fast = fast_copy(net, images[:2])
    assert norms(fast.add_blocks) == 0
    check_equal(net, fast, images)
    with torch.no_grad():
        with pp.diffusion(net, active=False) as trace:
            net(images)
        noise = [[torch.randn_like(h) for h in trace.means] for _ in range(2)]  # layouts draw in other orders
        noisy, scales = [], []
        for each in (net, fast):
            with pp.diffusion(each, passes=noise) as seen:
                noisy.append(each(images))
            scales.append(seen.scales)
    assert torch.allclose(noisy[0], noisy[1], atol=1e-4, rtol=1e-4)
    assert all(torch.allclose(a, b, atol=1e-4, rtol=1e-4) for a, b in zip(*scales, strict=True))


def test_a_network_in_training_mode_is_left_in_it(net, images):
    net.train()
    fast = fast_copy(net, images[:2])
    assert net.training
    assert not fast.training
    check_equal(net.eval(), fast, images)


class Odd(nn.Module):
    """Convolutions and BatchNorms that do not simply follow one another."""

    def __init__(self, kind: str):
        super().__init__()
        self.kind = kind
        self.conv, self.other, self.norm = nn.Conv2d(3, 3, 3, padding=1), nn.Conv2d(3, 3, 1), nn.BatchNorm2d(3)

    def forward(self, x):
        if self.kind == "norm called twice":
            h = self.norm(self.conv(x)) + self.norm(self.other(x))
        elif self.kind == "convolution called twice":
            h = self.norm(self.conv(x)) + self.conv(x * 2)
        elif self.kind == "output used elsewhere":
            h = self.conv(x)
            h = self.norm(h) + h
        else:
            h = self.norm(self.conv(x))
        return h.mean((2, 3))


@pytest.mark.parametrize("kind", ["norm called twice", "convolution called twice", "output used elsewhere"])
def test_layers_with_more_than_one_use_are_not_folded(kind, images):
    net = with_statistics(Odd(kind))
    fast = fast_copy(net, images[:2])
    check_equal(net, fast, images)
    assert norms(fast) == 1
    assert norms(fast_copy(with_statistics(Odd("plain")), images[:2])) == 0


@pytest.mark.parametrize("where", ["conv", "norm"])
@pytest.mark.parametrize("when", ["before", "after"])
def test_hooks_still_do_what_they_did(where, when, images):
    net = with_statistics(Odd("plain"))
    seen = []
    module = net.get_submodule(where)
    if when == "before":
        module.register_forward_pre_hook(lambda module, args: seen.append(len(args[0])))
    else:
        module.register_forward_hook(lambda module, args, output: seen.append(len(output)) or output * 2)
    fast = fast_copy(net, images[:2])
    seen.clear()
    check_equal(net, fast, images)
    assert seen == [16, 16]
    assert norms(fast) == 1


def test_an_add_block_between_convolution_and_norm_keeps_its_place(images):
    """Off, a block behind a container of one convolution cannot be seen; its noise must still pass the norm."""
    model = nn.Sequential(nn.Sequential(nn.Conv2d(3, 4, 3)), nn.BatchNorm2d(4), nn.Flatten(), nn.Linear(4 * 14 * 14, 5))
    net = with_statistics(pp.add_diffusion(model, ["0"], images[:2], initial_scale=0.5))
    for norm in (net.add_blocks[0].body[1], net.add_blocks[0].body[4]):
        nn.init.zeros_(norm.weight)  # σ is the same for every input, as before training
    fast = fast_copy(net, images[:2])
    noisy = [sample_logits(n, images, 2, generator=torch.Generator().manual_seed(0)) for n in (net, fast)]
    assert torch.allclose(noisy[0], noisy[1], atol=1e-4)


class Undecided(nn.Module):
    """Its path depends on the values: it cannot be traced."""

    def __init__(self):
        super().__init__()
        self.conv, self.norm = nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4)

    def forward(self, x):
        h = self.norm(self.conv(x))
        return F.relu(h).mean((2, 3)) if float(h.mean()) > 0 else h.mean((2, 3))


def test_a_network_that_cannot_be_traced_works_as_it_was(images):
    net = with_statistics(Undecided())
    fast = fast_copy(net, images[:2])
    assert norms(fast) == 1
    with torch.no_grad():
        assert torch.equal(fast(images), net(images))


def test_a_network_that_cannot_be_copied_is_called_in_eval_mode(images):
    class Uncopied(Undecided):
        def __deepcopy__(self, memo):
            raise RuntimeError("I hold a file")

    net = with_statistics(Uncopied()).train()
    fast = fast_copy(net, images[:2])
    with torch.no_grad():
        found = fast(images)
        assert net.training
        assert torch.equal(found, net.eval()(images))


def test_a_norm_without_statistics_and_a_grouped_convolution(images):
    model = nn.Sequential(
        nn.Conv2d(3, 6, 3, groups=3),
        nn.BatchNorm2d(6),
        nn.Conv2d(6, 4, 1),
        nn.BatchNorm2d(4, track_running_stats=False),
        nn.Flatten(),
        nn.Linear(4 * 14 * 14, 5),
    )
    nn.init.normal_(model[1].running_mean)
    nn.init.uniform_(model[1].running_var, 0.5, 2)
    fast = fast_copy(model, images)
    assert norms(fast) == 1
    check_equal(model.eval(), fast, images)


def test_stages_are_still_called_by_name(net, images):
    assert [name for name, _ in fast_copy(net, images[:2]).named_children() if name.startswith("layer")] == STAGES
