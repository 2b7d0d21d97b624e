"""PRIME's primitives against their closed forms."""

import math

import pytest
import torch
from support.pictures import pictures

from pdeplus.augment import prime as primitives
from pdeplus.augment.prime import Prime


def seeded(seed=0):
    return torch.Generator().manual_seed(seed)


def test_the_field_has_the_variance_of_its_series():
    cut, points = 5, 9
    field = primitives.sine_field(torch.full((8000,), float(cut)), points, points, 20, seeded())
    u = torch.linspace(0, 1, points)
    expected = torch.zeros(points, points)
    for i in range(1, cut + 1):
        for j in range(1, cut + 1):
            if math.hypot(i, j) < cut + 0.5:
                modes = torch.outer(torch.sin(math.pi * j * u), torch.sin(math.pi * i * u))
                expected += modes.square() / (i * i + j * j)
    assert torch.allclose(field.var((0, 1)), expected, rtol=0.1, atol=1e-3)
    assert field[..., 0, :].abs().max() < 1e-4  # borders stay
    assert field[..., -1].abs().max() < 1e-4


def test_oblong_fields_have_rows_and_columns():
    assert primitives.sine_field(torch.tensor([3.0]), 6, 11, 4, seeded()).shape == (1, 2, 6, 11)


def test_temperatures_run_from_half_a_pixel_to_folding():
    cut = torch.tensor([3.0, 10.0, 90.0])
    low, high = primitives.temperatures(cut, 32 * 32)
    typical = 32 * (math.pi * low * cut.log()).sqrt() / 2  # n √(π T ln c) / 2
    assert typical.tolist() == pytest.approx([0.5] * 3)
    assert high[:2].tolist() == pytest.approx([4 / (math.pi**3 * c * c * math.log(c)) for c in (3, 10)])
    assert high[2] == low[2]  # half a pixel already folds: the range is a point


def test_deformation_keeps_flat_images_and_moves_pictures_little():
    assert torch.allclose(primitives.deform(torch.full((4, 3, 16, 16), 0.7), 100, seeded()), torch.tensor(0.7))
    x = pictures() / 255
    assert 0 < (primitives.deform(x, 100, seeded()) - x).abs().mean() < 0.1


def test_a_colour_curve_is_the_sine_series_at_grey_levels(monkeypatch):
    one = torch.ones
    monkeypatch.setattr(primitives, "normal", lambda *shape, like, generator: 0.1 * one(shape))
    monkeypatch.setattr(primitives, "uniform", lambda n, *rest: one(n))
    monkeypatch.setattr(primitives, "integers", lambda n, *rest: torch.full((n,), 3))
    x = (torch.arange(256.0) / 255).view(1, 1, 16, 16)
    expected = x + 0.1 * sum(torch.sin(math.pi * i * x) for i in (1, 2, 3))
    assert torch.allclose(primitives.recolor(x, 5, 0.01, None), expected.clamp(0, 1), atol=1e-4)


def test_colour_coefficients_have_their_variance():
    """At x = 1/2 the odd terms remain: the variance is T times their number."""
    x = torch.full((6000, 1, 1, 1), 0.5)
    out = primitives.recolor(x, 1, 0.002, seeded())
    assert (out - x).var().item() == pytest.approx(0.001, rel=0.06)  # mean of T ~ U(0, 0.002), one term


def test_colour_keeps_black_and_white_ends():
    x = torch.tensor([0.0, 1.0]).view(1, 1, 1, 2)
    assert torch.allclose(primitives.recolor(x, 100, 0.01, seeded()), x, atol=1e-4)  # sin(π i x) vanishes at both


def test_a_filter_without_noise_is_the_identity_and_with_noise_a_convolution():
    x = pictures() / 255
    assert torch.allclose(primitives.refilter(x, 3, 0.0, seeded()), x)
    dot = torch.zeros(3000, 1, 5, 5)
    dot[:, 0, 2, 2] = 0.5
    out = primitives.refilter(dot, 3, 0.2, seeded())
    assert out[..., 0, :].abs().max() == 0
    assert (out[:, 0, 2, 2] * 2).mean().item() == pytest.approx(1, abs=0.02)
    corner = out[:, 0, 1, 1] * 2  # the positive half of σ N(0, 1), σ ~ U(0, 0.2): second moment 0.2² / 3 / 2
    assert corner.square().mean().item() == pytest.approx(0.04 / 6, rel=0.1)
    channels = primitives.refilter(dot.expand(-1, 2, -1, -1), 3, 4.0, seeded())
    assert torch.equal(channels[:, 0], channels[:, 1])


def test_prime_uses_its_three_primitives_alike(monkeypatch):
    seen = {}
    for name in ("deform", "recolor", "refilter"):
        monkeypatch.setattr(f"pdeplus.augment.prime.{name}", lambda x, *rest, n=name: seen.update({n: len(x)}) or x)
    x = torch.rand(3000, 1, 2, 2, generator=seeded())
    out = Prime(width=1, depth=1)(x, seeded())
    assert torch.allclose(out, x, atol=1e-6)  # chains that do nothing mix to the image
    assert [count / 3000 for count in seen.values()] == pytest.approx([1 / 3] * 3, abs=0.04)
