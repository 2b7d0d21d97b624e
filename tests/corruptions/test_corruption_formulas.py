"""Each corruption follows its formula: closed forms, and other libraries where they have the same."""

import numpy as np
import pytest
import torch

from pdeplus.corruptions import _filters, extra
from pdeplus.corruptions.base import SEVERITIES, Draws
from pdeplus.corruptions.digital import _affine_coordinates
from pdeplus.corruptions.noise import poisson_numbers
from pdeplus.corruptions.suite import SUITE, corrupt
from pdeplus.corruptions.weather import plasma


def draws(n: int = 4, seed: int = 0) -> Draws:
    return Draws(seed, ("test",), range(n), torch.device("cpu"))


def grey(level: float, n: int = 8, size: int = 64) -> torch.Tensor:
    return torch.full((n, 3, size, size), float(level))


def test_noise_has_its_moments():
    x = grey(100)
    noise = SUITE["gaussian_noise"](x, draws(8), 3, "cifar") - 100
    assert float(noise.mean()) == pytest.approx(0, abs=0.3)
    assert float(noise.std()) == pytest.approx(0.08 * 255, rel=0.02)
    shot = SUITE["shot_noise"](x, draws(8), 5, "cifar")
    assert float(shot.mean()) == pytest.approx(100, rel=0.01)
    assert float(shot.var()) == pytest.approx(100 * 255 / 50, rel=0.03)  # Poisson: var(255 P / c) = 255 x / c
    speckle = SUITE["speckle_noise"](x, draws(8), 5, "cifar")
    assert float(speckle.std()) == pytest.approx(0.2 * 100, rel=0.02)
    impulse = SUITE["impulse_noise"](x, draws(8), 5, "imagenet")
    assert float((impulse == 0).float().mean()) == pytest.approx(0.27 / 2, rel=0.05)
    assert float((impulse == 255).float().mean()) == pytest.approx(0.27 / 2, rel=0.05)


@pytest.mark.parametrize(("level", "photons"), [(0, 50), (1, 3), (20, 100), (128, 50), (255, 500)])
def test_poisson_numbers_have_their_distribution(level, photons):
    from scipy import stats

    # every column of the table is met equally often, so frequencies are exact up to the grid's fineness
    uniform = (torch.arange(2**21) + 0.5) / 2**21
    numbers = poisson_numbers(torch.full_like(uniform, level), photons / 255, uniform).long()
    frequency = torch.bincount(numbers).numpy() / len(uniform)
    expected = stats.poisson.pmf(np.arange(len(frequency)), level * photons / 255)
    assert np.abs(frequency - expected).max() < 1e-4
    assert np.abs(frequency - expected).sum() < 1e-3


def test_gaussian_filter_is_scipys():
    from scipy import ndimage

    x = np.random.default_rng(0).random((2, 17, 30))
    for sigma in (0.3, 1, 2.5, 9):
        for border in ("nearest", "reflect"):
            expected = ndimage.gaussian_filter(x, (0, sigma, sigma), mode=border, truncate=3)
            ours = _filters.gaussian_filter(torch.from_numpy(x), sigma, truncate=3, border=border)
            assert np.allclose(ours, expected, atol=1e-12)


@pytest.mark.parametrize(("sides", "kernel_sides"), [((9, 11), (5, 5)), ((131, 20), (9, 11))])  # the second by Fourier
def test_convolution_is_scipys(sides, kernel_sides):
    from scipy import ndimage

    random = np.random.default_rng(0)
    x, kernel = random.random((2, 3, *sides)), random.random(kernel_sides)
    expected = np.stack([[ndimage.correlate(plane, kernel, mode="mirror") for plane in image] for image in x])
    assert np.allclose(_filters.convolve(torch.from_numpy(x), torch.from_numpy(kernel)), expected)


def test_zoom_is_scipys():
    from scipy import ndimage

    line = np.random.default_rng(0).random(32)
    for factor in (1.0, 1.01, 1.07, 1.25, 1.75, 2.25):
        kept = int(np.ceil(32 / factor))
        top = (32 - kept) // 2
        zoomed = ndimage.zoom(line[top : top + kept], factor, order=1)
        trim = (len(zoomed) - 32) // 2
        assert np.allclose(_filters.zoom_matrix(32, factor) @ line, zoomed[trim : trim + 32])


def test_zoom_blur_is_the_mean_of_its_zooms():
    x = torch.rand(2, 3, 16, 20, generator=torch.Generator().manual_seed(0)) * 255
    factors = [1.0, 1.1, 1.2]
    zooms = [_filters.separable(x, _filters.zoom_matrix(16, f), _filters.zoom_matrix(20, f)) for f in factors]
    assert torch.allclose(_filters.zoom_mean(x, factors), (x + sum(zooms)) / 4, atol=1e-3)


@pytest.mark.parametrize(
    "name",
    [
        "zoom_blur",
        "gaussian_blur",
        "pixelate",
        "snow",
        "elastic_transform",
        "glass_blur",
        "defocus_blur",
        "motion_blur",
    ],
)
def test_long_lines_are_sums_of_few_entries(name, images, monkeypatch):
    whole = {s: corrupt(images, name, s, "imagenet").astype(int) for s in SEVERITIES}
    monkeypatch.setattr(_filters, "DENSE", 0)
    monkeypatch.setattr(_filters, "WHOLE", 0)
    for severity, expected in whole.items():
        difference = np.abs(corrupt(images, name, severity, "imagenet") - expected)
        assert difference.max() <= 1
        assert (difference > 0).mean() < 0.01


def test_imagenet_constants_are_the_published_ones():
    """No recorded output checks these: first and last severity."""
    known = {
        "gaussian_noise": (0.08, 0.38), "shot_noise": (60, 3), "impulse_noise": (0.03, 0.27),
        "speckle_noise": (0.15, 0.6), "defocus_blur": ((3, 0.1), (10, 0.5)), "glass_blur": ((0.7, 1, 2), (1.5, 4, 2)),
        "motion_blur": ((10, 3), (20, 15)), "zoom_blur": ((1.11, 0.01), (1.31, 0.03)), "gaussian_blur": (1, 6),
        "snow": ((0.1, 0.3, 3, 0.5, 10, 4, 0.8), (0.55, 0.3, 2.5, 0.85, 12, 12, 0.55)),
        "frost": ((1, 0.4, 1), (0.6, 0.75, 1)), "fog": ((1.5, 2), (3, 1.4)), "brightness": (0.1, 0.5),
        "spatter": ((0.65, 0.3, 4, 0.69, 0.6, False), (0.67, 0.4, 1, 0.65, 1.5, True)), "contrast": (0.4, 0.05),
        "elastic_transform": ((488, 244 * 0.7, 24.4), (244 * 0.12, 2.44, 4.88)), "pixelate": (0.6, 0.25),
        "jpeg_compression": (25, 7), "saturate": ((0.3, 0), (20, 0.2)),
    }  # fmt: skip
    assert set(known) == set(SUITE)
    for name, ends in known.items():
        levels = SUITE[name].constants["imagenet"]
        assert np.allclose(np.array([levels[0], levels[-1]], float), np.array(ends, float)), name


def test_pixelate_is_pillows_box(images):
    from PIL import Image

    for severity, factor in enumerate((0.95, 0.9, 0.85, 0.75, 0.65), 1):
        for image, ours in zip(images, corrupt(images, "pixelate", severity), strict=True):
            small = Image.fromarray(image).resize((int(27 * factor), int(20 * factor)), Image.Resampling.BOX)
            expected = np.asarray(small.resize((27, 20), Image.Resampling.BOX))
            assert np.abs(ours.astype(int) - expected).max() <= 1
            assert (ours != expected).mean() < 0.01


def test_motion_blur_spreads_a_point_along_its_direction():
    x = torch.zeros(2, 1, 31, 31)
    x[:, :, 15, 15] = 255
    out = _filters.motion_blur(x, torch.tensor([0.0, 90.0]), radius=3, sigma=1.5)
    taps = np.exp(-0.5 * (np.arange(7) / 1.5) ** 2)
    expected = np.floor(255 * taps / taps.sum() + 1e-3)
    assert out[0, 0, 15, 9:16].flip(0).tolist() == expected.tolist()  # a pixel sees those to its right
    assert out[1, 0, 9:16, 15].flip(0).tolist() == expected.tolist()
    assert out[0].count_nonzero() == out[1].count_nonzero() == (expected > 0).sum()


def test_glass_blur_is_the_sequential_scan():
    """The doubled pointers give what the scan pixel by pixel gives."""
    from pdeplus.corruptions.blur import _scan_sources

    n, h, w, reach = 3, 12, 15, 2
    sources = _scan_sources(draws(n), n, h, w, reach)
    offsets = draws(n).integers(-reach, reach, 2, h, w)
    for image in range(n):
        held = np.arange(h * w).reshape(h, w)
        for row in range(h - reach, reach, -1):
            for column in range(w - reach, reach, -1):
                if row < h and column < w:
                    down, across = offsets[image, :, row, column].tolist()
                    held[row, column] = held[row + down, column + across]
        assert np.array_equal(sources[image].view(h, w), held)


def test_brightness_and_saturation_are_hsvs():
    import colorsys

    pixels = [(200, 100, 50), (0, 0, 0), (90, 90, 90), (255, 255, 255), (10, 250, 251), (254, 1, 1)]
    x = np.array(pixels, np.uint8).reshape(1, 1, -1, 3)
    for name, severity, change in (
        ("brightness", 5, lambda h, s, v: (h, s, min(v + 0.3, 1))),
        ("saturate", 5, lambda h, s, v: (h, min(s * 2.5 + 0.2, 1), v)),
        ("saturate", 1, lambda h, s, v: (h, s * 0.3, v)),
    ):
        expected = [
            255 * np.array(colorsys.hsv_to_rgb(*change(*colorsys.rgb_to_hsv(*np.array(p) / 255)))) for p in pixels
        ]
        assert np.abs(corrupt(x, name, severity)[0, 0] - np.floor(np.array(expected) + 1e-6)).max() <= 1


def test_contrast_goes_to_each_channels_mean(images):
    mean = images.mean((1, 2), keepdims=True)
    expected = np.floor((images - mean) * 0.4 + mean)
    assert np.abs(corrupt(images, "contrast", 3) - expected).max() <= 1


def test_fog_keeps_the_brightest_value():
    clouds = SUITE["fog"].function(torch.zeros(5, 3, 32, 32), draws(5), 1.0, 2.0)
    assert torch.equal(clouds, torch.zeros_like(clouds))  # black stays black
    white = SUITE["fog"].function(grey(255, 5, 32), draws(5), 1.0, 2.0)
    assert float(white.amax()) == pytest.approx(255)
    assert float(white.amin()) == pytest.approx(255 / 2)


def test_defocus_of_one_pixel_is_the_kernel():
    x = torch.zeros(1, 3, 9, 9)
    x[..., 4, 4] = 255
    box = SUITE["defocus_blur"](x, draws(1), 5, "cifar")  # radius 1.5: all of 3×3
    assert torch.allclose(box[0, 0, 3:6, 3:6], torch.full((3, 3), 255 / 9), atol=0.01)


def test_the_affine_map_brings_shifted_points_back():
    shifts = torch.tensor([[[2, -1], [0, 3], [-2, 0]], [[-3, 1], [1, 1], [0, -2]]])
    rows, columns = _affine_coordinates(shifts.float(), 64, 64)
    corners = 32 + 21 * torch.tensor([[1, 1], [1, -1], [-1, -1]])  # x and y; a third of the side from the centre
    for image in range(2):
        for corner, shift in zip(corners, shifts[image], strict=True):
            x, y = (corner + shift).tolist()
            assert [float(columns[image, y, x]), float(rows[image, y, x])] == pytest.approx(corner.tolist(), abs=1e-3)


def test_the_smallest_plasma_by_hand():
    a, b, c, d = draws(3).uniform(-1, 1, 2, 2).double().view(3, 4).T
    cloud = torch.stack([torch.zeros_like(a), d / 2 + b, d / 2 + c, d], 1)  # corner, right, below, centre
    low, high = cloud.amin(1, keepdim=True), cloud.amax(1, keepdim=True)
    assert torch.allclose(plasma(draws(3), 2, 2, 2.0).view(3, 4).double(), (cloud - low) / (high - low), atol=1e-6)


def test_elastic_transform_moves_smoothly_and_only_so_far():
    columns = torch.arange(64.0).expand(4, 3, 64, 64).contiguous()
    moved = SUITE["elastic_transform"].function(columns, draws(4), 0, 0, 3.0)
    inner = (moved - columns)[..., 24:40, 24:40].abs()
    assert float(inner.mean()) > 0
    assert float(inner.max()) < 9


def test_spatter_colours():
    x = grey(128, 4, 32)
    mud = SUITE["spatter"](x, draws(4), 5, "cifar")
    covered = mud[:, 0] < 100
    assert 0 < float(covered.float().mean()) < 0.3
    assert torch.equal(SUITE["spatter"](x, draws(4), 5, "cifar"), mud)
    water = SUITE["spatter"](x, draws(4), 2, "cifar") - 128
    assert float(water.amin()) == 0
    wet = water[:, 0] > 1
    assert torch.allclose(water[:, 1][wet] / water[:, 0][wet], torch.tensor(238 / 175), atol=1e-3)


def test_edges_of_a_square():
    square = np.zeros((1, 12, 12))
    square[0, 3:9, 3:9] = 200
    edges = extra.canny(square)[0]
    assert edges[3:9, [2, 3]].any(1).all()
    assert not edges[5:7, 5:7].any()
    assert not edges[:2].any()
    assert not extra.canny(np.full((1, 12, 12), 77.0)).any()


def test_weak_edges_need_a_strong_one():
    step = np.zeros((2, 9, 9))
    step[:, :, 5:] = 20  # Sobel: 4 · 20 = 80, weak
    step[1, 4:, 5:] = 90
    assert not extra.canny(step[:1]).any()
    assert extra.canny(step)[1, 0, 4:6].any()  # weak itself, connected to the strong part
    assert not extra.canny(step)[0].any()


def test_chamfer_distance():
    edges = np.zeros((1, 20, 20), bool)
    edges[0, 10, 10] = True
    distance = extra.edge_distance(edges)[0]
    for dy, dx, expected in (
        (0, 5, 5),
        (3, 3, 4.2),
        (1, 2, 2.1969),
        (-4, 2, 4.3938),
        (2, -5, 2 * 2.1969 + 1),
        (0, 0, 0),
    ):
        assert distance[10 + dy, 10 + dx] == pytest.approx(expected, abs=1e-4)
