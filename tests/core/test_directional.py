"""Directional diffusion (ours): noise along the way to the twin, against closed forms."""

import pytest
import torch
from torch import nn

import pdeplus as pp
from pdeplus.errors import UserError
from pdeplus.functional import diffuse_along


def seeded(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def pair(*shape: int) -> tuple[torch.Tensor, torch.Tensor]:
    h, twin = torch.randn(2, *shape, generator=seeded(1), dtype=torch.float64)
    return h, twin


@pytest.mark.parametrize("shape", [(5, 4), (5, 3, 4), (5, 4, 2, 3)])
@pytest.mark.parametrize("per", ["sample", "position", "channel"])
def test_the_step_is_a_random_share_of_the_way_by_hand(shape, per):
    h, twin = pair(*shape)
    share = (diffuse_along(h, twin, 0.5, seeded(), per) - h) / (twin - h)  # reach · ε
    channel = 1 if len(shape) == 4 else len(shape) - 1
    positions = [d for d in range(1, len(shape)) if d != channel]
    one = {"sample": [*positions, channel], "position": [channel], "channel": positions}[per]
    assert torch.allclose(share, share.mean(one, keepdim=True).expand_as(share)) if one else True
    count = len(share.unique(dim=None).mul(1e6).round().unique())
    expected = 5 * {"sample": 1, "position": share[0].numel() // 4, "channel": 4}[per]
    assert count == expected


def test_mean_and_covariance_are_h_and_reach_squared_v_vt():
    h, twin = pair(1, 3)
    v = (twin - h)[0]
    out = diffuse_along(h.expand(200_000, 3), twin.expand(200_000, 3), 0.5, seeded(2))
    assert torch.allclose(out.mean(0), h[0], atol=0.01)
    assert torch.allclose(torch.cov(out.T), 0.25 * torch.outer(v, v), atol=0.02)


def test_the_twin_lies_one_over_reach_standard_deviations_away():
    h, twin = pair(100_000, 2)
    v = twin - h
    moved = ((diffuse_along(h, twin, 0.5, seeded()) - h) * v).sum(1) / v.norm(dim=1)
    assert float((moved / v.norm(dim=1)).std()) == pytest.approx(0.5, rel=0.01)


def network() -> tuple[nn.Sequential, torch.Tensor]:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Conv2d(3, 4, 3), nn.Tanh(), nn.Flatten(), nn.Linear(144, 5)).double()
    return model, torch.rand(6, 3, 8, 8, dtype=torch.float64)


def test_in_a_network_both_halves_move_along_the_way_to_the_other():
    model, x = network()
    net = pp.add_diffusion(model, ["0"], x, covariance="directional", reach=0.25)
    assert sum(p.numel() for p in net.parameters()) == sum(p.numel() for p in model.parameters())
    with pp.diffusion(net, generator=seeded(), twins=True) as trace:
        logits = net(x)
    h, twin = model[0](x).chunk(2)
    assert torch.allclose(trace.means[0], model[0](x))
    assert trace.scales == []
    stream = seeded()
    first, second = (0.25 * torch.randn(3, 1, 1, 1, generator=stream).double() for _ in range(2))
    moved = torch.cat([h + first * (twin - h), twin - second * (twin - h)])
    assert torch.allclose(logits, model[1:](moved))
    assert torch.equal(net(x), model(x))


def test_the_gradient_reaches_both_twins():
    """Of h + s ε (h^a - h) the derivatives are 1 - s ε and s ε."""
    h, twin = (t.requires_grad_() for t in pair(4, 3))
    out = diffuse_along(h, twin, 0.5, seeded())
    own, other = torch.autograd.grad(out.sum(), (h, twin))
    share = ((out - h) / (twin - h)).detach()
    assert torch.allclose(own, 1 - share)
    assert torch.allclose(other, share)


def test_both_adds_isotropic_noise_of_scale_sigma():
    """The covariance is σ² I + reach² v vᵀ: measured on one feature vector that is repeated."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Identity(), nn.Identity()).double()
    h, twin = pair(1, 3)
    n = 100_000
    x = torch.cat([h.expand(n, 3), twin.expand(n, 3)])
    linear = nn.Sequential(nn.Linear(3, 3, bias=False)).double()
    with torch.no_grad():
        linear[0].weight.copy_(torch.eye(3))
    net = pp.add_diffusion(nn.Sequential(linear, model), ["0"], x[:2], covariance="both", initial_scale=0.3, reach=0.5)
    with torch.no_grad(), pp.diffusion(net, generator=seeded(3), twins=True) as trace:
        out = net(x)[:n]
    assert torch.allclose(trace.scales[0], torch.full_like(trace.scales[0], 0.3))
    v = (twin - h)[0]
    assert torch.allclose(torch.cov(out.T), 0.09 * torch.eye(3).double() + 0.25 * torch.outer(v, v), atol=0.03)


def test_reach_may_differ_between_places():
    model, x = network()
    net = pp.add_diffusion(model, ["0", "1"], x, covariance="directional", reach=[0.0, 0.5])
    assert [block.reach for block in net.add_blocks] == [0.0, 0.5]
    with pytest.raises(
        UserError, match=r"reach=\[0.1\] must be a number of 0 or more, or one for each of the 2 places"
    ):
        pp.add_diffusion(model, ["0", "1"], x, covariance="directional", reach=[0.1])
    with pytest.raises(UserError, match="reach=-1"):
        pp.add_diffusion(model, ["0"], x, covariance="directional", reach=-1)


def test_what_has_no_twins_is_answered_in_one_line():
    model, x = network()
    net = pp.add_diffusion(model, ["0"], x, covariance="directional")
    needs = "directional diffusion needs a batch of samples and their twins"
    with pytest.raises(UserError, match=needs), pp.diffusion(net):
        net(x)
    for samples in (1, 3):
        with pytest.raises(UserError, match=needs):
            pp.predict(net, x, samples=samples)
    with pytest.raises(UserError, match="a batch of 5 has no two halves"), pp.diffusion(net, twins=True):
        net(x[:5])
    with pytest.raises(UserError, match=r"shape \(2, 3\) have twins of shape \(2, 4\)"):
        diffuse_along(torch.zeros(2, 3), torch.zeros(2, 4), 0.5)
    with pytest.raises(UserError, match="per='pixel' is not known"):
        diffuse_along(torch.zeros(2, 3), torch.zeros(2, 3), 0.5, per="pixel")
