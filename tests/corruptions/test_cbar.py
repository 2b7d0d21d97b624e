"""C̄'s corruptions follow their formulas: closed forms, scipy where it has the same, and the reference's statistics."""

import json
import math
import pickle
from pathlib import Path
from statistics import NormalDist

import numpy as np
import pytest
import torch
from scipy import ndimage

from pdeplus.corruptions import _splines, cbar
from pdeplus.corruptions.base import SEVERITIES, Draws
from pdeplus.corruptions.suite import TEN, corrupt

SHARED = Path(__file__).parents[3] / "shared"
GOLDEN = SHARED / "golden" / "cifar_cbar_sliceA.json"
CIFAR = SHARED / "data" / "cifar-10-batches-py" / "test_batch"
REFERENCE_NAMES = {"transverse_chromatic_aberration": "transverse_chromatic_abberation"}
LEVELS = {name: corruption.constants["cifar"] for name, corruption in TEN.items()}


def draws(n: int = 8, seed: int = 0) -> Draws:
    return Draws(seed, ("test",), range(n), torch.device("cpu"))


def grey(level: float, n: int = 8, size: int = 32) -> torch.Tensor:
    return torch.full((n, 3, size, size), float(level))


def textured(n: int = 8, size: int = 32) -> torch.Tensor:
    return torch.randint(0, 256, (n, 3, size, size), generator=torch.Generator().manual_seed(0)).float()


@pytest.mark.skipif(not (GOLDEN.exists() and CIFAR.exists()), reason="no golden files beside the project")
@pytest.mark.parametrize("name", TEN)
def test_statistics_are_the_references(name):
    rows = pickle.loads(CIFAR.read_bytes(), encoding="bytes")[b"data"][:64]
    clean = np.ascontiguousarray(rows.reshape(-1, 3, 32, 32).transpose(0, 2, 3, 1))
    golden = json.loads(GOLDEN.read_text())[REFERENCE_NAMES.get(name, name)]
    for severity in SEVERITIES:
        known = golden[str(severity)]
        out = np.stack([corrupt(clean, name, severity, seed=seed) for seed in range(3)]).astype(float)
        error = np.abs(out - clean).mean()
        tolerance = max(0.03 * known["mae"], 3 * known["mae_spread"])
        assert error == pytest.approx(known["mae"], abs=tolerance), f"{name} {severity}"
        psnr = 10 * np.log10(255**2 / np.square(out - clean).mean())
        assert psnr == pytest.approx(known["psnr"], abs=0.4), f"{name} {severity}"
        assert out.std() == pytest.approx(known["std"], abs=1), f"{name} {severity}"
        if not TEN[name].seeded:
            assert error == pytest.approx(known["mae"], rel=1e-3)
            assert out.mean() == pytest.approx(known["mean"], abs=0.01)


def test_every_size_has_the_same_levels():
    for corruption in TEN.values():
        assert corruption.constants["cifar"] == corruption.constants["tiny"] == corruption.constants["imagenet"]
        assert corruption.family == "cbar"


def test_blue_noise_blackens_the_share_below_its_threshold():
    x = grey(100, n=40)
    for severity, level in zip(SEVERITIES, LEVELS["blue_noise_sample"], strict=True):
        out = TEN["blue_noise_sample"](x, draws(40), severity, "cifar")
        assert set(out.unique().tolist()) == {0.0, 100.0}
        assert torch.equal(out[:, 0], out[:, 1])
        expected = NormalDist().cdf(0.3 * level - 2.5)
        assert float((out == 0).float().mean()) == pytest.approx(expected, rel=0.15)


def test_brownish_noise_has_its_deviation_in_every_channel():
    for severity, level in zip(SEVERITIES, LEVELS["brownish_noise"], strict=True):
        noise = TEN["brownish_noise"](grey(0), draws(), severity, "cifar")
        assert torch.allclose(noise.std((-2, -1), correction=0), torch.full((8, 3), 6.4 * level), rtol=1e-4)
        assert not torch.allclose(noise[:, 0], noise[:, 1])


@pytest.mark.parametrize(("h", "w"), [(32, 32), (31, 33), (20, 28)])
def test_coloured_noise_has_its_spectrum(h, w):
    strength = cbar.frequencies(h, w)
    assert float(strength.min()) <= 0.71  # zero, or half a step from it
    noise = cbar.coloured_noise(draws(400), 1, (strength - 6).abs().lt(1).double()).double()
    power = torch.fft.fftshift(torch.fft.fft2(noise).abs().square().mean((0, 1)))
    assert float(power[(strength - 6).abs() < 0.5].mean()) > 100 * float(power[(strength - 6).abs() > 3].mean())


def test_a_checkerboard_cuts_its_share():
    x = torch.full((300, 3, 32, 32), 50.0)
    for severity, level in zip(SEVERITIES, LEVELS["checkerboard_cutout"], strict=True):
        out = TEN["checkerboard_cutout"](x, draws(300), severity, "cifar")
        assert set(out.unique().tolist()) == {50.0, 128.0}
        assert float((out == 128).float().mean()) == pytest.approx(level / 20, rel=0.1)
    assert torch.equal(TEN["checkerboard_cutout"].function(x, draws(300), 0), x)
    whole = TEN["checkerboard_cutout"].function(x, draws(300), 10)  # every second cell
    assert float((whole == 128).float().mean()) == pytest.approx(0.5, abs=0.02)


def test_starlight_is_the_formula():
    x = torch.zeros(1, 3, 21, 21)
    centre, lengths = torch.tensor([[10 / 21, 10 / 21]]), torch.full((1, 200), 3.0)
    light = cbar.starlight(x, centre, torch.tensor([4]), lengths, exponent=0.5)[0, 0]
    assert float(light[10, 10]) == 1
    assert float(light[10, 18]) == pytest.approx(0.75 * 3 / 8, rel=1e-4)  # on a ray
    assert float(light[16, 16]) == pytest.approx(3 / math.sqrt(72), rel=1e-4)  # halfway between two
    lengths[0, 1] = 6
    light = cbar.starlight(x, centre, torch.tensor([4]), lengths, exponent=0.5)[0, 0]
    assert float(light[16, 16]) == pytest.approx(4.5 / math.sqrt(72), rel=1e-4)


def test_sparkles_only_brighten_and_their_inverse_whitens_what_is_far():
    x = textured()
    for name in ("sparkles", "inverse_sparkles"):
        assert float((TEN[name](x, draws(), 5, "cifar") - x).min()) >= -1e-3
        assert torch.allclose(TEN[name](grey(255), draws(), 5, "cifar"), grey(255))
    stars = TEN["sparkles"](grey(0, n=50), draws(50), 1, "cifar")
    assert float(stars.amax((1, 2, 3)).min()) > 250
    around = TEN["inverse_sparkles"](grey(0, n=50), draws(50), 5, "cifar")
    assert float(around.amin((1, 2, 3)).max()) < 1  # black at the centre
    assert float(around[:, :, 0, 0].mean()) > 128


def test_a_line_covers_by_distance():
    x = torch.zeros(1, 3, 16, 16)

    def cover(*ends: float) -> torch.Tensor:
        start, end = torch.tensor([ends]).double().view(2, 1, 2)
        return cbar.covered(x, start, end)[0, 0]

    across = cover(5, -20, 5, 20)
    assert torch.equal(across, torch.zeros(16, 16).index_fill(0, torch.tensor([5]), 1))
    diagonal = cover(0, 0, 15, 15)
    assert torch.allclose(diagonal.diagonal(), torch.ones(16))
    assert torch.allclose(diagonal.diagonal(1)[1:-1], torch.full((13,), 1 - math.sqrt(0.5)))
    assert float(diagonal.diagonal(2).max()) == 0
    assert cover(5, 2, 5, 9)[5].tolist() == [0, 0] + [1] * 8 + [0] * 6


def test_lines_have_their_number_and_grey(monkeypatch):
    counts, original = [], cbar.covered
    monkeypatch.setattr(cbar, "covered", lambda *given: (counts.append(1), original(*given))[1])
    for severity, expected in zip(SEVERITIES, (1, 3, 4, 6, 8), strict=True):
        counts.clear()
        out = TEN["lines"](grey(0), draws(), severity, "cifar")
        assert len(counts) == expected
        assert float(out.min()) == 0
        assert 120 < float(out.max()) <= 128
    assert torch.equal(TEN["lines"](grey(128), draws(), 5, "cifar"), grey(128))
    counts.clear()
    TEN["lines"](grey(0, size=4), draws(), 1, "cifar")
    assert len(counts) == 1


def test_pinch_and_twirl_fixes_centres_and_what_is_outside():
    x = textured(n=4)
    out = TEN["pinch_and_twirl"](x, draws(4), 5, "cifar")
    place = torch.arange(32)
    middle = (place // 10).clamp(max=2) * 10 + 5.0
    distance = torch.hypot((place - middle)[:, None], place - middle)
    fixed = (distance >= 5) | (distance == 0)
    assert int((distance == 0).sum()) == 9
    assert torch.allclose(out[..., fixed], x[..., fixed], atol=0.05)
    assert float((out - x)[..., ~fixed].abs().mean()) > 20
    rings = (
        distance.clamp(max=5).expand(4, 3, 32, 32) * 40
    )  # a twirl changes nothing, a pinch shows what is further out
    pinched = TEN["pinch_and_twirl"](rings, draws(4), 1, "cifar")
    assert torch.allclose(pinched, TEN["pinch_and_twirl"](rings, draws(4, seed=1), 1, "cifar"), atol=6)
    stretched = 40 * 2 * math.sin(math.pi / 2 * 0.4) ** -0.32
    assert float(pinched[0, 0, 5, 7]) == pytest.approx(stretched, abs=6)  # which the pixels' grid blurs


def test_ripples_of_no_height_are_none_and_others_move_by_it():
    x = textured()
    assert torch.allclose(TEN["ripple"].function(x, draws(), 0), x, atol=1e-2)
    ramp = torch.arange(32.0).expand(8, 3, 32, 32)
    for severity, level in zip(SEVERITIES, LEVELS["ripple"], strict=True):
        moved = (TEN["ripple"](ramp, draws(), severity, "cifar") - ramp)[..., 2:-2, 2:-2]
        height = level * 0.025 * 32 / 10
        assert 0.9 * height < float(moved.abs().max()) <= height + 1e-3
        assert torch.allclose(moved, moved[..., :1, :], atol=1e-3)  # a wave along each axis of its own


def test_circular_blur_is_scipys_rotations_and_keeps_rings(monkeypatch):
    x = textured(n=1, size=20)[..., :17]
    angles = np.linspace(-1, 1, 21)
    weights = np.exp(-2 * angles**2)
    planes = x[0].double().numpy()
    turned = [[ndimage.rotate(plane, 6.6 * angle, reshape=False, order=3) for plane in planes] for angle in angles]
    expected = np.average(turned, axis=0, weights=weights)
    ours = TEN["circular_motion_blur"](x, draws(1), 3, "cifar")[0]
    assert np.allclose(ours, expected, atol=1e-3)
    monkeypatch.setattr(_splines, "DENSE", 0)  # as for large images
    assert np.allclose(TEN["circular_motion_blur"](x, draws(1), 3, "cifar")[0], expected, atol=1e-2)
    monkeypatch.undo()
    place = torch.arange(32) - 15.5
    distance = torch.hypot(place[:, None], place)
    rings = (100 + 80 * torch.cos(distance / 3)).expand(1, 3, 32, 32)
    blurred = TEN["circular_motion_blur"](rings, draws(1), 5, "cifar")
    assert torch.allclose(blurred[..., distance < 14], rings[..., distance < 14], atol=0.5)
    assert float(blurred[0, 0, 0, 0]) < float(rings[0, 0, 0, 0]) / 2  # black turns in


def test_enlarging_is_scipys_zoom():
    line = np.random.default_rng(0).random(32)
    for factor in (1.0, 1.025, 1.05, 1.125, 1.25, 1.5):
        zoomed = ndimage.zoom(line, factor, order=3, prefilter=False)
        trim = (len(zoomed) - 32) // 2
        assert np.allclose(_splines.enlarging_matrix(32, factor) @ line, zoomed[trim : trim + 32])


def test_chromatic_aberration_keeps_plain_images_and_enlarges_two_channels():
    plain = np.full((4, 32, 32, 3), (10, 100, 200), np.uint8)
    assert np.array_equal(corrupt(plain, "transverse_chromatic_aberration", 5), plain)
    ramp = (4 * torch.arange(32.0) - 62).expand(60, 3, 32, 32)
    slopes = (
        TEN["transverse_chromatic_aberration"](ramp, draws(60), 5, "cifar").diff(dim=-1)[..., 10:22].mean((2, 3)) / 4
    )
    expected = [31 / 47, 31 / 39, 1.0]
    assert torch.allclose(slopes.sort(1).values, torch.tensor(expected).expand(60, 3), atol=1e-3)
    assert len({tuple(order) for order in slopes.argsort(1).tolist()}) == 6
