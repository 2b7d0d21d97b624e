"""HybridAugment++: the split into frequencies, the exchange of amplitudes, and who gets what."""

import math

import pytest
import torch
from support.one_step import seeded
from support.pictures import pictures

from pdeplus.augment import hybrid
from pdeplus.augment.hybrid import Hybrid, paired, single, split, with_amplitudes, with_amplitudes_of

DIMENSIONS = (1, 2, 3)


@pytest.fixture
def images():
    return pictures() / 255


def spectrum(x):
    return torch.fft.fftn(x.double(), dim=DIMENSIONS)


def test_low_and_high_are_the_image(images):
    low, high = split(images, 0.5)
    assert torch.allclose(low + high, images, atol=1e-6)
    assert torch.allclose(low.mean((2, 3)), images.mean((2, 3)), atol=1e-2)
    flat = torch.full((1, 3, 8, 8), 0.3)
    assert torch.allclose(split(flat, 0.5)[0], flat)


def test_the_low_part_of_a_point_is_the_3_by_3_gaussian():
    x = torch.zeros(1, 1, 5, 7)
    x[0, 0, 2, 3] = 1
    side = math.exp(-2)  # exp(-1 / 2σ²) at σ = 1/2
    line = torch.tensor([side, 1, side]) / (1 + 2 * side)
    low, _ = split(x, 0.5)
    assert torch.allclose(low[0, 0, 1:4, 2:5], line[:, None] * line)
    assert low.sum().item() == pytest.approx(1)
    assert (low > 0).sum() == 9
    corner = torch.zeros(1, 1, 4, 4)
    corner[0, 0, 0, 0] = 1
    assert split(corner, 0.5)[0][0, 0, 0, 0].item() == pytest.approx((1 - line[0].item()) ** 2)  # the edge repeats


@pytest.mark.parametrize("width", [8, 9])
def test_phases_are_kept_and_amplitudes_are_the_others(width):
    x, other = torch.rand(2, 5, 3, 8, width, generator=seeded()) - 0.3
    out = with_amplitudes(x, other)
    mine, theirs, found = spectrum(x), spectrum(other), spectrum(out)
    assert torch.allclose(found.abs(), theirs.abs(), atol=1e-4)
    assert torch.allclose(found / found.abs(), mine / mine.abs(), atol=1e-3)


def test_the_exchange_with_itself_is_the_identity(images):
    assert torch.allclose(with_amplitudes(images, images), images, atol=1e-5)
    assert torch.allclose(with_amplitudes_of(images, torch.arange(len(images))), images, atol=1e-5)
    order = torch.randperm(len(images), generator=seeded())
    assert torch.allclose(with_amplitudes_of(images, order), with_amplitudes(images, images[order]), atol=1e-5)


def test_a_shift_has_the_same_amplitudes_so_that_nothing_is_exchanged(images):
    assert torch.allclose(with_amplitudes(images, images.roll(5, 3)), images, atol=1e-4)


def test_a_flat_image_has_a_phase_at_the_mean_alone():
    flat, other = torch.full((1, 3, 8, 8), 0.2), torch.rand(1, 3, 8, 8, generator=seeded())
    assert torch.allclose(with_amplitudes(flat, other), other.mean().expand_as(flat), atol=1e-4)


def test_paired_by_hand(images):
    x = images * 0.5 + 0.25  # far enough from black and white for no sum to be cut
    generator = seeded(3)
    torch.rand(2, generator=generator)
    amplitudes, details = (torch.randperm(len(x), generator=generator) for _ in range(2))
    low, high = split(x, 0.5)
    assert torch.allclose(paired(x, seeded(3), probability=1, exchange=0), low + high[details], atol=1e-6)
    exchanged = (with_amplitudes(low, low[amplitudes]) + high[details]).clamp(0, 1)
    assert torch.allclose(paired(x, seeded(3), probability=1, exchange=1), exchanged, atol=1e-4)
    assert not torch.equal(amplitudes, details)


def test_paired_happens_to_whole_batches_with_its_probabilities(monkeypatch, images):
    exchanged = []
    monkeypatch.setattr(hybrid, "with_amplitudes_of", lambda x, partners: exchanged.append(1) or x)
    generator, happened = seeded(), 0
    x = images[:4, :, :4, :4]
    for _ in range(1000):
        out = paired(x, generator)
        happened += not torch.equal(out, x)
    # in one batch of 24 the permutation is the identity
    assert happened / 1000 == pytest.approx(0.6 * 23 / 24, abs=0.04)
    assert len(exchanged) / 1000 == pytest.approx(0.36, abs=0.04)


def test_single_by_hand(monkeypatch, images):
    """The operation darkens by half: the views are x/2 and x/4, whose phases agree, and amplitudes are as 2 to 1."""
    monkeypatch.setattr(hybrid, "one_operation", lambda x, severity, generator: x // 2)
    x = torch.full((2000, 1, 4, 4), 160 / 255)
    x[:, :, ::2] = 80 / 255
    out = single(x, seeded(), probability=0.5)
    view = (x * 255).round() // 2 / 255
    alone = (out - view).abs().amax((1, 2, 3)) < 1e-5
    # u = x/2, v = x/4: low(u; v) + high(v) = v; u = x/4, v = x/2: the first view again
    darker = (out - view / 2).abs().amax((1, 2, 3)) < 1e-5
    assert (alone | darker).all()
    assert darker.float().mean().item() == pytest.approx(0.25, abs=0.03)


def test_single_mixes_one_images_views_with_its_probability(images):
    x = images[:1].repeat(400, 1, 1, 1)
    never, always = (single(x, seeded(), probability=p) for p in (0, 1))
    levels = never * 255
    assert torch.allclose(levels, levels.round(), atol=1e-3)  # views are in whole grey levels, hybrids are not
    fine = always * 255
    assert ((fine - fine.round()).abs() > 1e-2).flatten(1).any(1).float().mean() > 0.8  # some operations do nothing


def test_the_variants_are_parts_of_both(images):
    assert torch.equal(Hybrid(variants="single")(images, seeded()), single(images, seeded()))
    assert torch.equal(Hybrid(variants="paired")(images, seeded()), paired(images, seeded()))
    generator = seeded()
    assert torch.equal(Hybrid()(images, seeded()), paired(single(images, generator), generator))
