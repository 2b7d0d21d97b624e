"""Noise from balls of p-norms, and erased rectangles: their laws by closed forms."""

import math

import pytest
import torch
from support.one_step import seeded

from pdeplus.augment import p_norm_noise
from pdeplus.augment.p_norm_noise import NUMBERS, RADII, PNormNoise, _generalised_normal, in_ball
from pdeplus.augment.random_erasing import RandomErasing, rectangles

N = 20_000
LIKE = torch.empty(0)
every_norm = pytest.mark.parametrize("p", list(RADII))
finite_norm = pytest.mark.parametrize("p", [p for p in RADII if math.isfinite(p)])


def distance_from_uniform(values):
    """Kolmogorov's distance from U(0, 1); above 1.95 / √n with probability 1/1000."""
    steps = torch.arange(1, len(values) + 1) / len(values)
    return (values.flatten().sort().values - steps).abs().max().item() * len(values) ** 0.5


def norms(x, p):
    most = x.abs().double().amax(1)
    return most if math.isinf(p) else most * (x.abs() / most[:, None]).pow(p).sum(1).pow(1 / p)


@every_norm
@pytest.mark.parametrize("d", [1, 2, 7])
def test_radii_of_uniform_points_are_distributed_as_r_to_the_d(p, d):
    r = norms(in_ball(N, d, p, LIKE, seeded()), p)
    assert r.max() <= 1 + 1e-5
    assert distance_from_uniform(r.pow(d)) < 1.95


@every_norm
def test_in_one_dimension_every_ball_is_the_interval(p):
    x = in_ball(N, 1, p, LIKE, seeded())
    assert distance_from_uniform((x + 1) / 2) < 1.95


@finite_norm
def test_a_coordinate_in_the_plane_has_the_length_of_the_cut_as_its_density(p):
    """The cut at t is (1 - |t|^p)^(1/p) long to either side; both coordinates, either sign."""
    grid = torch.linspace(0, 1, 200_001, dtype=torch.float64)
    cut = (1 - grid.pow(p)).pow(1 / p)
    area = torch.cumulative_trapezoid(cut, grid)
    x = in_ball(N, 2, p, LIKE, seeded())
    for coordinate in x.unbind(1):
        place = (coordinate.abs().double() * 200_000).long().clamp(0, 199_999)
        assert distance_from_uniform((area / area[-1])[place]) < 1.95
        assert (coordinate > 0).float().mean().item() == pytest.approx(0.5, abs=0.015)


def test_moments_in_many_dimensions():
    """E |x_i|^p = 1 / (d + p): for p = 2 the variance in a ball."""
    for p, d in ((0.5, 30), (1.0, 30), (2.0, 3), (2.0, 50)):
        x = in_ball(4000, d, p, LIKE, seeded())
        assert x.abs().pow(p).mean().item() == pytest.approx(1 / (d + p), rel=0.03), (p, d)
    assert in_ball(4000, 30, math.inf, LIKE, seeded()).square().mean().item() == pytest.approx(1 / 3, rel=0.02)


@finite_norm
def test_generalised_normal_numbers_have_their_moments(p):
    """|t|^p ~ Gamma(1/p), of mean and variance 1/p; E t² = Γ(3/p) / Γ(1/p)."""
    t = _generalised_normal(400, 1000, p, LIKE, seeded())
    power = t.double().abs().pow(p)
    spread = 4 / t.numel() ** 0.5  # four standard deviations of the means, by the distribution's kurtosis 3 + 6p
    assert power.mean().item() == pytest.approx(1 / p, rel=spread * p**0.5)
    assert power.var().item() == pytest.approx(1 / p, rel=spread * (2 + 6 * p) ** 0.5)
    assert t.double().square().mean().item() == pytest.approx(
        math.exp(math.lgamma(3 / p) - math.lgamma(1 / p)), rel=0.1
    )
    assert t.sign().mean().item() == pytest.approx(0, abs=0.01)


@every_norm
def test_radii_are_uniform_up_to_the_largest(p, monkeypatch):
    monkeypatch.setattr(p_norm_noise, "RADII", {p: RADII[p]})
    x = torch.full((3000, 3, 8, 8), 0.5)
    noise = (PNormNoise(strength=0.01, share=1.0)(x, seeded()) - x).flatten(1)
    r = norms(noise, p) / (0.01 * RADII[p] * (192 / NUMBERS) ** (1 / p))
    assert r.max() < 1.02  # within the rounding of 0.5 + noise
    assert r.mean().item() == pytest.approx(0.5, abs=0.03)
    assert r.var().item() == pytest.approx(1 / 12, rel=0.1)


@every_norm
def test_a_pixels_noise_is_alike_at_every_size(p, monkeypatch):
    monkeypatch.setattr(p_norm_noise, "RADII", {p: RADII[p]})
    small, large = (
        (PNormNoise(strength=0.1, share=1.0)(x, seeded()) - x).std().item()
        for x in (torch.full((3000, 3, 8, 8), 0.5), torch.full((300, 3, 24, 24), 0.5))
    )
    assert small == pytest.approx(large, rel=0.15)


def test_a_share_gets_noise_and_all_norms_are_as_likely(monkeypatch):
    x = torch.full((6000, 1, 2, 2), 0.5)
    out = PNormNoise(share=0.3)(x, seeded())
    assert (out != x).flatten(1).any(1).float().mean().item() == pytest.approx(0.3, abs=0.02)
    assert torch.equal(PNormNoise(share=0.0)(x, seeded()), x)
    counts = {}
    monkeypatch.setattr(p_norm_noise, "in_ball", lambda n, d, p, *rest: counts.update({p: n}) or torch.zeros(n, d))
    PNormNoise(share=1.0)(x, seeded())
    assert set(counts) == set(RADII)
    assert [n / 6000 for n in counts.values()] == pytest.approx([1 / 6] * 6, abs=0.02)


def test_rectangles_have_their_areas_and_fit():
    masks = rectangles(4000, 40, 40, 0.02, 0.4, LIKE, seeded())
    share = masks.float().mean((1, 2))
    assert share.mean().item() == pytest.approx(0.21, abs=0.01)  # (0.02 + 0.4) / 2
    assert share.std().item() == pytest.approx(0.38 / 12**0.5, rel=0.05)
    assert share.max() < 0.43
    down, across = masks.any(2), masks.any(1)
    assert torch.equal(masks, down[:, :, None] & across[:, None])
    assert ((down[:, 1:] != down[:, :-1]).sum(1) <= 2).all()  # one piece
    aspect = down.sum(1) / across.sum(1)
    assert aspect.log().mean().item() == pytest.approx(0, abs=0.03)  # as often tall as wide
    assert aspect.log().abs().quantile(0.99).item() == pytest.approx(math.log(1 / 0.3), abs=0.15)


def test_a_small_rectangle_is_anywhere_alike():
    masks = rectangles(20_000, 4, 5, 0.05, 0.05, LIKE, seeded())  # one pixel of twenty
    assert (masks.sum((1, 2)) <= 2).all()
    assert masks.float().mean(0).mean(1).std().item() < 0.01


def test_erasing_fills_the_rectangles_with_noise_and_leaves_the_rest():
    x = torch.full((2000, 3, 16, 16), -1.0)  # no value that is filled in
    out = RandomErasing()(x, seeded())
    filled = out != -1
    assert torch.equal(filled.any(1), filled.all(1))
    assert filled.flatten(1).any(1).float().mean().item() == pytest.approx(0.5, abs=0.03)
    assert filled.float().mean().item() == pytest.approx(0.105, abs=0.01)
    values = out[filled]
    assert values.min() >= 0
    assert values.mean().item() == pytest.approx(0.5, abs=0.01)
    assert values.var().item() == pytest.approx(1 / 12, rel=0.02)
    whole = RandomErasing(probability=1.0, least=1.0, most=1.0)(x[:10], seeded())
    assert (whole != -1).all()


def test_erasing_with_the_mean_colour_draws_the_same_rectangles():
    x = torch.rand(50, 3, 16, 16, generator=seeded())
    noise, mean = (RandomErasing(probability=1.0, fill=fill)(x, seeded()) for fill in ("noise", "mean"))
    filled = (noise != x).any(1, keepdim=True).expand_as(x)
    assert torch.equal(mean, torch.where(filled, x.mean((2, 3), keepdim=True), x))
