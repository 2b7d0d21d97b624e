"""Augmentations: one contract for all, and each operation against its definition."""

import numpy as np
import pytest
import torch
from PIL import Image, ImageEnhance, ImageOps

import pdeplus as pp
from pdeplus import _registry
from pdeplus._errors import UserError
from pdeplus.augment import _operations as ops
from pdeplus.augment.crop_flip import CropFlip
from pdeplus.data.synthetic import draw


@pytest.fixture
def images():
    return draw("photo", 14, 32, torch.Generator().manual_seed(0)).images.float() / 255


@pytest.mark.parametrize("name", _registry.names("augment"))
@pytest.mark.parametrize("channels", [1, 3])
def test_contract(name, channels, images):
    augment = _registry.build("augment", name, {})
    x = images[:, :channels]
    kept = x.clone()
    state = torch.get_rng_state()
    first, again = (augment(x, torch.Generator().manual_seed(1)) for _ in range(2))
    assert torch.equal(first, again)
    assert torch.equal(x, kept)
    assert torch.equal(state, torch.get_rng_state())  # no global randomness
    assert first.shape == x.shape
    assert first.dtype == x.dtype
    assert first.min() >= 0
    assert first.max() <= 1
    if name != "identity":
        assert not torch.equal(first, augment(x, torch.Generator().manual_seed(2)))


@pytest.mark.parametrize(
    ("operation", "pillow", "level"),
    [
        (ops.autocontrast, lambda im: ImageOps.autocontrast(im), 0.0),
        (ops.equalize, lambda im: ImageOps.equalize(im), 0.0),
        (ops.posterize, lambda im: ImageOps.posterize(im, 2), 5.0),
        (ops.solarize, lambda im: ImageOps.solarize(im, 128), 5.0),
        (ops.color, lambda im: ImageEnhance.Color(im).enhance(1.54), 8.0),
        (ops.contrast, lambda im: ImageEnhance.Contrast(im).enhance(0.46), 2.0),
        (ops.brightness, lambda im: ImageEnhance.Brightness(im).enhance(0.46), 2.0),
        (ops.sharpness, lambda im: ImageEnhance.Sharpness(im).enhance(1.54), 8.0),
    ],
)
def test_tone_operations_agree_with_pillow(operation, pillow, level, images):
    grey = (images * 255).round()
    ours = operation(grey, torch.full((len(grey),), level))
    for mine, original in zip(ours, grey, strict=True):
        array = original.permute(1, 2, 0).numpy().astype(np.uint8)
        theirs = torch.from_numpy(np.asarray(pillow(Image.fromarray(array))).copy()).permute(2, 0, 1)
        assert (mine - theirs).abs().mean() < 0.6


def test_affine_by_hand():
    x = torch.zeros(1, 1, 5, 5)
    x[0, 0, 1, 3] = 100.0
    moved = ops.affine(x, ops.translate_x(torch.tensor([10.0]), size=3))  # reads one pixel to the right
    assert moved[0, 0, 1, 2].item() == pytest.approx(100, abs=1e-3)
    identity = ops.affine(x, ops.rotation(torch.tensor([0.0]), size=5))
    assert torch.allclose(identity, x, atol=1e-4)
    sheared = ops.affine(x, ops.shear_x(torch.tensor([100 / 3]), size=5))  # x reads x + y: row 1 is y = -1
    assert sheared[0, 0, 1, 4].item() == pytest.approx(100, abs=1e-3)
    quarter = ops.affine(x, ops.rotation(torch.tensor([30.0]), size=5))  # 3 × 30 degrees
    assert quarter[0, 0].flatten().argmax().item() in (1 * 5 + 1, 3 * 5 + 3)
    assert quarter.sum().item() == pytest.approx(100, rel=1e-3)


def test_augmix_mixes_convexly_and_per_image(images):
    out = pp.augmix(images, severity=3, width=3, generator=torch.Generator().manual_seed(0))
    change = (out - images).abs().mean((1, 2, 3))
    assert (change > 0).all()
    assert change.unique().numel() == len(images)
    weak = pp.augmix(images, 0.2, 3, torch.Generator().manual_seed(0), depth=1)
    strong = pp.augmix(images, 10, 3, torch.Generator().manual_seed(0), depth=3, operations=13)
    assert (strong - images).abs().mean() > 1.5 * (weak - images).abs().mean()


def test_augmix_of_a_constant_black_image_stays_black_under_nine_operations_but_solarize():
    black = torch.zeros(200, 3, 8, 8)
    out = pp.augmix(black, 1.0, 3, torch.Generator().manual_seed(0))
    assert out.abs().max() == 0  # threshold 256 - 25 is never reached by 0


def test_crop_flip_is_a_shift_and_a_mirror(images):
    out = CropFlip(padding=3, flip=True)(images, torch.Generator().manual_seed(3))
    padded = torch.nn.functional.pad(images, [3] * 4)
    flipped = 0
    for i, image in enumerate(out):
        windows = padded[i].unfold(1, 32, 1).unfold(2, 32, 1)  # C × 7 × 7 × 32 × 32
        straight = (windows == image[:, None, None]).all((0, 3, 4)).any()
        mirrored = (windows == image.flip(-1)[:, None, None]).all((0, 3, 4)).any()
        assert straight or mirrored
        flipped += bool(mirrored)
    assert 2 <= flipped <= 12


@pytest.mark.parametrize(("arguments", "name"), [({"severity": 11}, "severity=11"), ({"width": 0}, "width=0")])
def test_bad_augmix_parameters(arguments, name, images):
    with pytest.raises(UserError, match=name):
        pp.augmix(images, **arguments)
