"""Every operation against Pillow's on real pictures, and what the geometric ones do by hand."""

import math

import numpy as np
import pytest
import torch
from PIL import Image, ImageEnhance, ImageFilter, ImageOps
from support.pictures import pictures

from pdeplus.augment._geometry import affine, blurred, displace, pick, rotation, sample, shear, shift
from pdeplus.augment._operations import NAMES, Strength, apply_each, apply_one, values_of

BILINEAR, NEAREST = Image.Resampling.BILINEAR, Image.Resampling.NEAREST
AFFINE = Image.Transform.AFFINE


def moved(*coefficients):
    return lambda im, how: im.transform(im.size, AFFINE, coefficients, resample=how)


def pillow(function, images):
    """Pillow's answer for each of the N×C×H×W bytes, as floats."""
    out = []
    for image in images:
        array = image.permute(1, 2, 0).numpy()
        answer = np.asarray(function(Image.fromarray(array.squeeze(2) if array.shape[2] == 1 else array)))
        out.append(torch.from_numpy(answer.copy()).view(*array.shape).permute(2, 0, 1))
    return torch.stack(out).float()


TONE = [
    ("autocontrast", 0.0, ImageOps.autocontrast),
    ("equalize", 0.0, ImageOps.equalize),
    ("invert", 0.0, ImageOps.invert),
    *(("posterize", float(bits), lambda im, b=bits: ImageOps.posterize(im, b)) for bits in (1, 2, 4, 7)),
    *(("solarize", float(level), lambda im, t=level: ImageOps.solarize(im, t)) for level in (0, 77, 128, 255)),
]
for factor in (0.1, 0.46, 1.0, 1.9):
    TONE += [
        ("color", factor, lambda im, f=factor: ImageEnhance.Color(im).enhance(f)),
        ("contrast", factor, lambda im, f=factor: ImageEnhance.Contrast(im).enhance(f)),
        ("brightness", factor, lambda im, f=factor: ImageEnhance.Brightness(im).enhance(f)),
        ("sharpness", factor, lambda im, f=factor: ImageEnhance.Sharpness(im).enhance(f)),
    ]
GEOMETRY = [
    *(("rotate", angle, lambda im, how, a=angle: im.rotate(a, resample=how)) for angle in (-27.0, 8.0, 30.0)),
    *(("shear_x", amount, moved(1, amount, 0, 0, 1, 0)) for amount in (-0.3, 0.07)),
    *(("shear_y", amount, moved(1, 0, 0, amount, 1, 0)) for amount in (-0.3, 0.07)),
    *(("translate_x", float(pixels), moved(1, 0, pixels, 0, 1, 0)) for pixels in (-3, 10)),
    *(("translate_y", float(pixels), moved(1, 0, 0, 0, 1, pixels)) for pixels in (-3, 10)),
]


def ours(name, value, images, interpolation="bilinear"):
    n = len(images)
    return apply_each(images, torch.full((n,), NAMES.index(name)), torch.full((n,), value), interpolation).float()


@pytest.mark.parametrize(("name", "value", "theirs"), TONE)
def test_tone_operations_are_pillows(name, value, theirs):
    images = pictures()
    difference = (ours(name, value, images) - pillow(theirs, images)).abs()
    assert difference.mean() < 0.05
    assert difference.max() <= 1


@pytest.mark.parametrize("name", ["autocontrast", "equalize", "posterize", "solarize", "contrast", "sharpness"])
def test_tone_operations_are_pillows_on_one_channel_and_oblong_images(name):
    images = pictures()[:, :1, :20]
    theirs = dict(reversed([(n, (v, f)) for n, v, f in TONE]))[name]
    assert (ours(name, theirs[0], images) - pillow(theirs[1], images)).abs().mean() < 0.05


@pytest.mark.parametrize(("name", "value", "theirs"), GEOMETRY)
@pytest.mark.parametrize(("interpolation", "how"), [("bilinear", BILINEAR), ("nearest", NEAREST)])
@pytest.mark.parametrize("height", [32, 20])
def test_geometric_operations_are_pillows_borders_included(name, value, theirs, interpolation, how, height):
    images = pictures()[:, :, :height]
    difference = (ours(name, value, images, interpolation) - pillow(lambda im: theirs(im, how), images)).abs()
    assert difference.mean() < 0.2


@pytest.mark.parametrize("flat", [0, 128, 255])
def test_flat_images_stay_under_autocontrast_and_equalize(flat):
    x = torch.full((2, 3, 16, 16), flat, dtype=torch.uint8)
    for name in ("autocontrast", "equalize"):
        assert torch.equal(ours(name, 0.0, x), x.float())


@pytest.mark.parametrize("sigma", [0.5, 1.0, 2.0])
def test_blur_is_pillows(sigma):
    images = pictures()
    theirs = pillow(lambda im: im.filter(ImageFilter.GaussianBlur(sigma)), images)
    assert (blurred(images.float(), torch.full((len(images),), sigma)) - theirs).abs().mean() < 2


def test_blur_keeps_flat_images_and_gives_each_image_its_own_width():
    assert torch.allclose(blurred(torch.ones(2, 1, 9, 12), torch.tensor([0.0, 3.0])), torch.ones(2, 1, 9, 12))
    x = pictures(2).float()[:1].repeat(2, 1, 1, 1)
    sharp, soft = blurred(x, torch.tensor([0.0, 2.0]))
    assert torch.allclose(sharp, x[0])
    assert soft.var() < sharp.var()
    dot = torch.zeros(1, 1, 41, 41)
    dot[0, 0, 20, 20] = 1
    spread = blurred(dot, torch.tensor([2.0]))[0, 0].sum(0)
    assert (spread * (torch.arange(41.0) - 20).square()).sum().item() == pytest.approx(4, rel=0.01)


def test_a_shift_is_a_shift():
    x = pictures()
    out = shift(x, torch.full((len(x),), 5), torch.full((len(x),), -2))
    assert torch.equal(out[:, :, 2:, :-5], x[:, :, :-2, 5:])
    assert not out[:, :, :2].any()
    assert not out[:, :, :, -5:].any()


def test_pick_reads_rows_and_columns_and_black_where_there_is_none():
    x = torch.arange(1.0, 7.0).view(1, 1, 2, 3)
    out = pick(x, torch.tensor([[1, -1]]), torch.tensor([[2, 0, 3]]))
    assert out.tolist() == [[[[6, 4, 0], [0, 0, 0]]]]


def test_maps_by_hand():
    x = torch.zeros(1, 1, 5, 5)
    x[0, 0, 1, 3] = 100.0
    assert torch.allclose(affine(x, rotation(torch.zeros(1), 5, 5)), x, atol=1e-3)
    quarter = affine(x, rotation(torch.tensor([90.0]), 5, 5))  # counter-clockwise
    assert quarter[0, 0, 1, 1].item() == pytest.approx(100, abs=0.1)
    sheared = affine(x, shear(torch.tensor([2 / 3]), torch.tensor([0.0]), 5, 5))  # row centre 3/2 reads 1 to the right
    assert sheared[0, 0, 1, 2].item() == pytest.approx(100, abs=0.1)
    right, down = torch.full((1, 5, 5), -1.0), torch.full((1, 5, 5), 0.5)
    between = displace(x, right, down)[0, 0]
    assert between[0, 4].item() == pytest.approx(50, abs=0.1)
    assert between[1, 4].item() == pytest.approx(50, abs=0.1)
    assert between.sum().item() == pytest.approx(100, abs=0.1)


def test_displaced_edges_repeat_and_sampled_ones_end():
    x = torch.ones(1, 1, 4, 4)
    assert torch.allclose(displace(x, torch.full((1, 4, 4), 3.5), torch.zeros(1, 4, 4)), x)
    outside = sample(x, torch.full((1, 2, 4, 4), 1.01))
    assert not outside.any()


def test_each_image_gets_its_own_operation_and_value():
    x = pictures()
    n = len(x)
    which = torch.arange(n) % len(NAMES)
    value = torch.linspace(1, 6, n)
    together = apply_each(x, which, value)
    alone = torch.cat([apply_each(x[i : i + 1], which[i : i + 1], value[i : i + 1]) for i in range(n)])
    assert torch.equal(together, alone)
    assert torch.equal(apply_one(x / 255, "invert", value), (255 - x) / 255)


def test_values_follow_the_strengths():
    strengths = {
        "posterize": Strength(8, -4, whole="nearest"),
        "rotate": Strength(0, 30, signed=True, whole="down"),
        "color": Strength(0.1, 1.8),
    }
    which = torch.tensor([NAMES.index(name) for name in ("posterize", "rotate", "rotate", "color", "equalize")])
    s = torch.tensor([0.4, 0.99, 0.99, 0.5, 0.5])
    sign = torch.tensor([-1.0, -1.0, 1.0, -1.0, -1.0])
    assert values_of(strengths, which, s, sign).tolist() == pytest.approx([6, -29, 29, 1.0, 0], abs=1e-6)
    assert math.isclose(values_of(strengths, which[:1], torch.zeros(1), sign[:1]).item(), 8)
