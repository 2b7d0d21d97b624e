"""The diffusion step, the coverage losses and the consistency against closed forms."""

import math

import pytest
import torch
from torch import nn

import pdeplus as pp
from pdeplus.errors import UserError
from pdeplus.functional import coverage_nll, diffuse, jensen_shannon

PRIORS = ["gaussian", "laplace", "student_t"]
VARIANCE = {"gaussian": 1.0, "laplace": 2.0, "student_t": 2.0}


def test_diffuse_has_the_given_mean_and_scale_element_by_element():
    h = torch.linspace(-3, 3, 6).repeat(200_000, 1)
    scale = torch.linspace(0.1, 2, 6).expand_as(h)
    out = diffuse(h, scale, torch.Generator().manual_seed(1))
    assert torch.allclose(out.mean(0), h[0], atol=0.02)
    assert torch.allclose(out.std(0), scale[0], rtol=0.01)
    assert torch.corrcoef(out.T).fill_diagonal_(0).abs().max() < 0.02  # independent elements


@pytest.mark.parametrize("prior", PRIORS)
def test_noise_families_have_their_variance(prior):
    out = diffuse(torch.zeros(2_000_000), 3.0, torch.Generator().manual_seed(2), prior)
    tolerance = 0.01 if prior != "student_t" else 0.1  # its fourth moment is infinite
    assert out.var().item() == pytest.approx(9 * VARIANCE[prior], rel=tolerance)
    quantile = {"gaussian": 0.67449, "laplace": math.log(2), "student_t": 0.74070}[prior]
    assert (out.abs() < 3 * quantile).float().mean().item() == pytest.approx(0.5, abs=0.002)


@pytest.mark.parametrize("layout", [torch.contiguous_format, torch.channels_last])
def test_noise_in_half_precision_is_that_of_32_bits_rounded(layout):
    h = torch.zeros(3, 4, 5, 6).to(memory_format=layout)
    precise, rounded = (diffuse(like, 1.0, torch.Generator().manual_seed(4)) for like in (h, h.bfloat16()))
    assert rounded.dtype == torch.bfloat16
    assert rounded.is_contiguous(memory_format=layout)
    assert torch.equal(rounded, precise.bfloat16())


def test_linear_drift_gives_the_known_mean_and_variance():
    """x ← a x + σ ε, L times: mean aᴸ x, variance σ² (a²ᴸ - 1) / (a² - 1)."""
    a, sigma, steps = 0.9, 0.3, 5
    generator = torch.Generator().manual_seed(3)
    state = torch.full((400_000,), 2.0)
    for _ in range(steps):
        state = diffuse(a * state, sigma, generator)
    assert state.mean().item() == pytest.approx(2 * a**steps, abs=0.005)
    variance = sigma**2 * (a ** (2 * steps) - 1) / (a**2 - 1)
    assert state.var().item() == pytest.approx(variance, rel=0.01)


def test_feynman_kac_of_a_linear_network_is_exact():
    """E[o(x(1))] of a quadratic output through a diffused linear layer: |Wx|² + d σ²."""
    linear = nn.Linear(3, 3, bias=False)
    net = pp.add_diffusion(linear_then_square(linear), ["0"], torch.zeros(2, 3), initial_scale=0.5)
    x = torch.tensor([[1.0, -2.0, 0.5]]).repeat(300_000, 1)
    with torch.no_grad(), pp.diffusion(net, generator=torch.Generator().manual_seed(4)):
        value = net(x).mean().item()
    assert value == pytest.approx(linear(x[:1]).square().sum().item() + 3 * 0.5**2, rel=0.005)


def linear_then_square(linear: nn.Linear) -> nn.Sequential:
    class Square(nn.Module):
        def forward(self, h: torch.Tensor) -> torch.Tensor:
            return h.square().sum(-1)

    return nn.Sequential(linear, Square())


def test_diffuse_keeps_memory_layout_and_repeats_with_the_generator():
    h = torch.rand(2, 4, 5, 6).to(memory_format=torch.channels_last)
    first = diffuse(h, torch.ones_like(h), torch.Generator().manual_seed(5))
    again = diffuse(h, torch.ones_like(h), torch.Generator().manual_seed(5))
    assert first.stride() == h.stride()
    assert torch.equal(first, again)


@pytest.mark.parametrize("prior", PRIORS)
def test_coverage_is_least_at_the_true_scale(prior):
    mean = torch.randn(400_000)
    twin = diffuse(mean, 0.7, torch.Generator().manual_seed(6), prior)
    log_scale = torch.zeros((), requires_grad=True)
    optimizer = torch.optim.LBFGS([log_scale], lr=0.5, max_iter=60)

    def loss():
        optimizer.zero_grad()
        value = coverage_nll(twin, mean, log_scale.exp().expand_as(mean), prior)
        value.backward()
        return value

    optimizer.step(loss)
    assert log_scale.exp().item() == pytest.approx(0.7, rel=0.005)


def test_coverage_minimisers_are_root_mean_square_and_mean_absolute_deviation():
    twin, mean = torch.tensor([3.0, -1.0]), torch.zeros(2)
    for prior, best in (("gaussian", math.sqrt(5)), ("laplace", 2.0)):
        at = [coverage_nll(twin, mean, torch.full((2,), best * f), prior).item() for f in (0.99, 1.0, 1.01)]
        assert at[1] < min(at[0], at[2])


def test_coverage_values_by_hand():
    twin, mean, scale = torch.tensor([1.0, 2.0]), torch.tensor([0.0, 1.0]), torch.tensor([0.5, 2.0])
    gaussian = ((math.log(0.5) + 1 / (2 * 0.25)) + (math.log(2) + 1 / (2 * 4))) / 2
    laplace = ((math.log(0.5) + 2) + (math.log(2) + 0.5)) / 2
    student = (math.log(0.5) + 2.5 * math.log(2) + math.log(2) + 2.5 * math.log(1 + 1 / 16)) / 2
    assert coverage_nll(twin, mean, scale).item() == pytest.approx(gaussian)
    assert coverage_nll(twin, mean, scale, "laplace").item() == pytest.approx(laplace)
    assert coverage_nll(twin, mean, scale, "student_t").item() == pytest.approx(student)


def test_coverage_agrees_with_torch_distributions_up_to_the_constant():
    twin, mean, scale = torch.randn(50), torch.randn(50), torch.rand(50) + 0.1
    reference = {
        "gaussian": (torch.distributions.Normal(mean, scale), math.log(math.sqrt(2 * math.pi))),
        "laplace": (torch.distributions.Laplace(mean, scale), math.log(2)),
        "student_t": (torch.distributions.StudentT(4.0, mean, scale), -math.log(0.375)),
    }
    for prior, (distribution, constant) in reference.items():
        expected = -distribution.log_prob(twin).mean().item() - constant
        assert coverage_nll(twin, mean, scale, prior).item() == pytest.approx(expected, rel=1e-4)


def test_unknown_prior_names_the_known():
    with pytest.raises(UserError, match="cauchy.*gaussian, laplace, student_t"):
        diffuse(torch.zeros(2), 1.0, prior="cauchy")


def test_jensen_shannon_of_three_distributions_by_hand():
    """p = (1/2, 1/2), (1/4, 3/4), (3/4, 1/4): their mean is (1/2, 1/2), so JS is log 2 less the mean entropy."""
    p = torch.tensor([[0.5, 0.5], [0.25, 0.75], [0.75, 0.25]]).unsqueeze(1)
    uneven = 0.25 * math.log(0.25 / 0.5) + 0.75 * math.log(0.75 / 0.5)
    assert jensen_shannon(p.log()).item() == pytest.approx((0 + uneven + uneven) / 3, rel=1e-5)
    assert jensen_shannon(p.log() + 7).item() == pytest.approx(2 * uneven / 3, rel=1e-5)  # logits, not probabilities
    batch = torch.cat([p, torch.full_like(p, 0.5)], 1)
    assert jensen_shannon(batch.log()).item() == pytest.approx(uneven / 3, rel=1e-5)  # a mean over the batch


def test_jensen_shannon_at_its_ends():
    one = torch.randn(4, 10, generator=torch.Generator().manual_seed(8))
    assert jensen_shannon(one.expand(3, 4, 10)).item() == pytest.approx(0, abs=1e-6)
    for views in (2, 3, 5):
        disjoint = 1000 * torch.eye(views).unsqueeze(1).requires_grad_()
        value = jensen_shannon(disjoint)
        assert value.item() == pytest.approx(math.log(views), rel=1e-6)
        (gradient,) = torch.autograd.grad(value, disjoint)
        assert gradient.isfinite().all()  # though probabilities are exactly zero


def test_jensen_shannon_is_symmetric_in_its_views():
    logits = torch.randn(3, 6, 10, generator=torch.Generator().manual_seed(9))
    assert jensen_shannon(logits[[2, 0, 1]]).item() == pytest.approx(jensen_shannon(logits).item(), rel=1e-5)
