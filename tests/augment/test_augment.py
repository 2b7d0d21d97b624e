"""Augmentations: one contract for all, and what each of them promises."""

import math

import pytest
import torch
from support.pictures import pictures
from torch.nn import functional as F

import pdeplus as pp
from pdeplus._lib import registry
from pdeplus.augment import base as _random
from pdeplus.augment import deep_augment as network
from pdeplus.augment._geometry import smoothed_noise
from pdeplus.augment._operations import NAMES as OPERATIONS
from pdeplus.augment._operations import mix_chains
from pdeplus.augment.augmix import AugMix
from pdeplus.augment.brightness import Brightness
from pdeplus.augment.crop_flip import CropFlip
from pdeplus.augment.gaussian_noise import GaussianNoise
from pdeplus.augment.invert import Invert
from pdeplus.augment.rotation import Rotation
from pdeplus.errors import UserError

NAMES = registry.names("augment")
FIXED = ("identity", "invert")
"""Draw nothing."""


def seeded(seed=0):
    return torch.Generator().manual_seed(seed)


@pytest.fixture
def images():
    return pictures() / 255


@pytest.fixture
def build(tmp_path):
    """The named augmentation with its defaults; DeepAugment's network is not trained."""

    def make(name, channels):
        if name != "deep_augment":
            return registry.build("augment", name, {})
        path = tmp_path / f"{channels}.safetensors"
        network.save(network.initial_weights(channels, 8, 2, seeded()), path)
        return registry.build("augment", name, {"weights": str(path)})

    return make


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize(
    ("channels", "height", "dtype"), [(3, 32, torch.float32), (1, 32, torch.float64), (2, 21, torch.float32)]
)
def test_contract(name, channels, height, dtype, images, build):
    augment = build(name, channels)
    x = images[:, :channels, :height].to(dtype)
    kept = x.clone()
    state = torch.get_rng_state()
    first, again = (augment(x, seeded(1)) for _ in range(2))
    assert torch.equal(first, again)
    assert torch.equal(x, kept)
    assert torch.equal(state, torch.get_rng_state())  # no global randomness
    assert first.shape == x.shape
    assert first.dtype == x.dtype
    assert first.device == x.device
    assert first.min() >= 0
    assert first.max() <= 1
    if name not in FIXED:
        assert not torch.equal(first, augment(x, seeded(2)))


@pytest.mark.parametrize("name", NAMES)
def test_no_images_and_one_image(name, images, build):
    augment = build(name, 3)
    assert augment(images[:0], seeded()).shape == (0, 3, 32, 32)
    assert augment(images[:1], seeded()).shape == (1, 3, 32, 32)


@pytest.mark.parametrize("name", [name for name in NAMES if name not in FIXED])
def test_equal_images_come_out_different(name, images, build):
    out = build(name, 3)(images[:1].repeat(40, 1, 1, 1), seeded())
    assert len({tuple(image.flatten().tolist()) for image in out}) > 3


@pytest.mark.parametrize("name", NAMES)
def test_a_view_of_other_memory_gives_the_same(name, images, build):
    channels_last = images.to(memory_format=torch.channels_last)
    augment = build(name, 3)
    assert torch.allclose(augment(images, seeded()), augment(channels_last, seeded()), atol=1e-5)


def test_augmix_mixes_convexly_and_per_image(images):
    out = pp.augmix(images, severity=3, width=3, generator=seeded())
    change = (out - images).abs().mean((1, 2, 3))
    assert (change > 0).all()
    assert change.unique().numel() == len(images)
    weak = pp.augmix(images, 0.2, 3, seeded(), depth=1)
    strong = pp.augmix(images, 10, 3, seeded(), depth=3, operations=13)
    assert (strong - images).abs().mean() > 1.5 * (weak - images).abs().mean()


@pytest.mark.parametrize("severity", [1, 4, 10])
def test_torchvisions_variant_draws_whole_levels_up_to_the_severity(severity, monkeypatch):
    seen = []
    monkeypatch.setattr("pdeplus.augment.augmix.apply_each", lambda x, *drawn: seen.append(drawn) or x)
    x = torch.rand(3000, 1, 4, 6, generator=seeded())
    out = pp.augmix(x, severity, 3, seeded(), depth=1, operations=13, variant="torchvision")
    ((which, value),) = seen

    def drawn(name):
        return sorted(set(value[which == OPERATIONS.index(name)].mul(1000).round().div(1000).tolist()))

    levels = range(severity)
    assert drawn("color") == pytest.approx(sorted({1 + sign * 0.1 * k for k in levels for sign in (1, -1)}))
    assert drawn("rotate") == pytest.approx(sorted({sign * 30 / 9 * k for k in levels for sign in (1, -1)}), abs=1e-3)
    assert drawn("solarize") == pytest.approx(sorted(255 - 255 / 9 * k for k in levels), abs=1e-3)
    assert drawn("posterize") == sorted({4 - k for k in (0, 0, 1, 1, 2, 2, 3, 3, 4, 4)[:severity]})
    assert drawn("shear_x")[-1] == pytest.approx(0.3 * (severity - 1) / 9, abs=1e-3)
    assert drawn("translate_x")[-1] == 6 * (severity - 1) // 27
    counts = torch.bincount(which[which < 14]) / len(which)
    assert counts[counts > 0].tolist() == pytest.approx([1 / 13] * 13, abs=0.02)
    assert torch.equal(out, (out * 255).round() / 255)
    assert ((x - out) * 255).min() > -0.6  # cut, not rounded: only the chains' own first rounding raises a level
    assert ((x - out) * 255).max() < 1.6


def test_a_variant_is_one_of_two_and_torchvisions_has_whole_severities(images):
    with pytest.raises(UserError, match="variant='other'"):
        pp.augmix(images, variant="other")
    with pytest.raises(UserError, match=r"severity=2.5 must be a whole number for variant='torchvision'"):
        AugMix(severity=2.5, variant="torchvision")


def test_augmix_of_black_images_stays_black_under_nine_operations():
    black = torch.zeros(200, 3, 8, 8)
    out = pp.augmix(black, 3.0, 3, seeded())
    assert out.abs().max() == 0  # solarize's threshold, 256 - 76 or more, is never reached by 0


def test_augmix_weights_the_original_uniformly():
    x = torch.full((2000, 1, 1, 1), 0.5)
    out = mix_chains(x, torch.zeros_like(x), 3, 1, lambda images, level: images, seeded())  # (1 - m) x
    m = 1 - (out / x).mean((1, 2, 3))
    assert m.mean().item() == pytest.approx(0.5, abs=0.02)
    assert m.var().item() == pytest.approx(1 / 12, abs=0.01)


def test_chains_have_one_to_three_operations_or_as_many_as_asked():
    counts = []
    x = torch.zeros(3000, 1, 1, 1)

    def count(images, level):
        counts.append(len(images))
        return images

    mix_chains(x, x, 2, 0, count, seeded())
    assert [c / 6000 for c in counts] == pytest.approx([1, 2 / 3, 1 / 3], abs=0.03)
    counts.clear()
    mix_chains(x, x, 2, 4, count, seeded())
    assert counts == [6000] * 4


@pytest.mark.parametrize(("arguments", "name"), [({"severity": 11}, "severity=11"), ({"width": 0}, "width=0")])
def test_bad_augmix_parameters(arguments, name, images):
    with pytest.raises(UserError, match=name):
        pp.augmix(images, **arguments)


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("auto_augment", {"policy": "svhn"}, "svhn"),
        ("auto_augment", {"interpolation": "cubic"}, "cubic"),
        ("rand_augment", {"magnitude": 31}, "magnitude=31"),
        ("rand_augment", {"count": 0}, "count=0"),
        ("gaussian_noise", {"fraction": 1.5}, "fraction=1.5"),
        ("crop_flip", {"padding": -1}, "padding=-1"),
        ("rotation", {"degrees": 181.0}, "degrees=181"),
        ("brightness", {"strength": 1.5}, "strength=1.5"),
        ("contrast", {"strength": -1.0}, "strength=-1"),
        ("elastic", {"smoothness": 0.0}, "smoothness=0"),
        ("blur", {"least": 3.0}, "least=3"),
        ("prime", {"filter_size": 4}, "filter_size=4"),
        ("prime", {"width": 0}, "width=0"),
        ("prime", {"deformation_cut": 2}, "deformation_cut=2"),
        ("deep_augment", {"group": 0}, "group=0"),
        ("hybrid", {"paired": 1.5}, "paired=1.5"),
        ("hybrid", {"sigma": 0.0}, "sigma=0"),
        ("hybrid", {"severity": 11.0}, "severity=11"),
        ("hybrid", {"variants": "triple"}, "triple"),
        ("trivial_augment", {"interpolation": "cubic"}, "cubic"),
        ("p_norm_noise", {"share": -0.1}, "share=-0.1"),
        ("p_norm_noise", {"strength": -1.0}, "strength=-1"),
        ("random_erasing", {"most": 1.2}, "most=1.2"),
        ("random_erasing", {"probability": 2.0}, "probability=2"),
        ("pixmix", {"rounds": -1}, "rounds=-1"),
        ("pixmix", {"beta": 0.0}, "beta=0"),
    ],
)
def test_bad_options_are_named(name, options, message):
    with pytest.raises(UserError, match=message) as error:
        registry.build("augment", name, options)
    assert "\n" not in str(error.value)


def test_crop_flip_is_a_shift_and_a_mirror(images):
    out = CropFlip(padding=3, flip=True)(images, seeded(3))
    padded = torch.nn.functional.pad(images, [3] * 4)
    flipped = 0
    for i, image in enumerate(out):
        windows = padded[i].unfold(1, 32, 1).unfold(2, 32, 1)  # C × 7 × 7 × 32 × 32
        straight = (windows == image[:, None, None]).all((0, 3, 4)).any()
        mirrored = (windows == image.flip(-1)[:, None, None]).all((0, 3, 4)).any()
        assert straight or mirrored
        flipped += bool(mirrored)
    assert 2 <= flipped <= len(images) - 2


@pytest.mark.parametrize("padding", [2, 3])
def test_reflected_borders_are_those_of_a_padded_image(images, padding):
    out = CropFlip(padding=padding, flip=False, border="reflected")(images, seeded(3))
    padded = F.pad(images, [padding] * 4, mode="reflect")
    h, w = images.shape[-2:]
    for one, wide in zip(out, padded, strict=True):
        places = [(i, j) for i in range(2 * padding + 1) for j in range(2 * padding + 1)]
        assert any(torch.equal(one, wide[:, i : i + h, j : j + w]) for i, j in places)


def test_images_to_mirror_may_be_given(images):
    mirrored = torch.arange(len(images)) % 2 == 0
    out = CropFlip(padding=0)(images, seeded(), mirrored=mirrored)
    assert torch.equal(out[0], images[0].flip(-1))
    assert torch.equal(out[1], images[1])


def test_crop_flip_reaches_every_shift_alike():
    x = torch.zeros(9000, 1, 3, 3)
    x[:, :, 1, 1] = 1
    mean = CropFlip(padding=1, flip=False)(x, seeded()).mean((0, 1))
    assert torch.allclose(mean, torch.full((3, 3), 1 / 9), atol=0.02)


@pytest.mark.parametrize(("fraction", "n", "noisy"), [(1.0, 7, 7), (0.5, 8, 4), (0.0, 8, 0)])
def test_noise_reaches_its_share_of_the_images(fraction, n, noisy):
    x = torch.full((n, 3, 16, 16), 0.5)
    out = GaussianNoise(std=0.05, fraction=fraction)(x, seeded())
    changed = (out != x).flatten(1).any(1)
    assert changed.sum() == noisy
    if noisy:
        assert (out - x)[changed].std().item() == pytest.approx(0.05, rel=0.05)


def test_noise_shares_are_right_on_average_and_any_image_may_get_it():
    x = torch.full((3, 1, 2, 2), 0.5)
    generator = seeded()
    changed = torch.stack([(GaussianNoise(fraction=0.5)(x, generator) != x).flatten(1).any(1) for _ in range(600)])
    assert changed.float().mean(0).tolist() == pytest.approx([0.5] * 3, abs=0.07)
    assert set(changed.sum(1).tolist()) == {1, 2}


def test_invert_rotation_and_brightness_alone(images):
    assert torch.equal(Invert()(images), 1 - images)
    assert torch.equal(Rotation(degrees=0.0)(images, seeded()), images)
    grey = torch.full((4000, 1, 2, 2), 100 / 255)
    factors = Brightness(strength=0.5)(grey, seeded()).mean((1, 2, 3)) / grey.mean((1, 2, 3))
    assert factors.mean().item() == pytest.approx(1, abs=0.02)
    assert factors.std().item() == pytest.approx(0.5 / 3**0.5, rel=0.05)


def test_the_elastic_field_has_variance_one_up_to_the_border():
    field = smoothed_noise(torch.randn(800, 20, 12, generator=seeded()), 1.5)
    assert field.shape == (800, 20, 12)
    assert field.var(0).sub(1).abs().max() < 0.25
    assert field.var().item() == pytest.approx(1, abs=0.05)
    neighbours = (field[..., 5:6] * field[..., 6:7]).mean().item()
    assert neighbours == pytest.approx(math.exp(-1 / 9), abs=0.05)  # exp(-d² / 4σ²)


@pytest.mark.parametrize("alpha", [0.2, 1.0, 3.0])
def test_beta_has_its_moments(alpha):
    values = _random.beta(20_000, alpha, torch.empty(0), seeded())
    assert values.min() >= 0
    assert values.max() <= 1
    assert values.mean().item() == pytest.approx(0.5, abs=0.01)
    assert values.var().item() == pytest.approx(1 / (4 * (2 * alpha + 1)), rel=0.03)


def test_arcsine_and_simplex_have_their_moments():
    values = _random.arcsine(20_000, torch.empty(0), seeded())
    assert values.var().item() == pytest.approx(1 / 8, rel=0.03)  # Beta(1/2, 1/2)
    weights = _random.simplex(3, 20_000, torch.empty(0), seeded())
    assert torch.allclose(weights.sum(0), torch.ones(20_000))
    assert weights.mean(1).tolist() == pytest.approx([1 / 3] * 3, abs=0.01)
    assert weights.var(1).tolist() == pytest.approx([1 / 18] * 3, rel=0.05)  # Dirichlet(1, 1, 1)
