"""Corruptions keep their contract: an image's result depends on its pixels, its seed and its place alone."""

from typing import get_args

import numpy as np
import pytest
import torch
from PIL import Image

import pdeplus as pp
from pdeplus.corruptions import weather
from pdeplus.corruptions.base import SEVERITIES, Constants
from pdeplus.corruptions.suite import KNOWN, corrupt
from pdeplus.errors import UserError

CONSTANTS = get_args(Constants)


@pytest.fixture(autouse=True)
def synthetic_frost(monkeypatch, recwarn):
    """The ice that every machine has."""
    monkeypatch.setattr("pdeplus.corruptions.weather.frost_folder", lambda: None)


def test_the_suite_is_the_published_one():
    assert pp.CORRUPTIONS == (
        "gaussian_noise", "shot_noise", "impulse_noise", "defocus_blur", "glass_blur", "motion_blur", "zoom_blur",
        "snow", "frost", "fog", "brightness", "contrast", "elastic_transform", "pixelate", "jpeg_compression",
    )  # fmt: skip
    assert pp.EXTRA_CORRUPTIONS == ("speckle_noise", "gaussian_blur", "spatter", "saturate")
    assert pp.CBAR == (
        "blue_noise_sample", "brownish_noise", "checkerboard_cutout", "sparkles", "inverse_sparkles", "lines",
        "pinch_and_twirl", "ripple", "circular_motion_blur", "transverse_chromatic_aberration",
    )  # fmt: skip
    assert len(KNOWN) == 29


@pytest.mark.parametrize("name", KNOWN)
@pytest.mark.parametrize("constants", CONSTANTS)
def test_contract(images, name, constants):
    for severity in SEVERITIES:
        before = images.copy()
        out = corrupt(images, name, severity, constants, seed=3)
        assert out.shape == images.shape
        assert out.dtype == np.uint8
        assert np.array_equal(images, before)
        assert (out != images).any()
        if KNOWN[name].seeded:
            assert (corrupt(images, name, severity, constants, seed=4) != out).any()
        else:
            assert np.array_equal(corrupt(images, name, severity, constants, seed=4), out)


@pytest.mark.parametrize("name", KNOWN)
@pytest.mark.parametrize("constants", CONSTANTS)
def test_an_image_does_not_depend_on_its_batch(images, name, constants):
    threads = torch.get_num_threads()
    for severity in SEVERITIES:
        whole = corrupt(images, name, severity, constants, seed=1, indices=range(10, 16))
        turned = corrupt(images[::-1].copy(), name, severity, constants, seed=1, indices=range(15, 9, -1))
        assert np.array_equal(turned[::-1], whole)
        torch.set_num_threads(1)
        alone = [corrupt(images[i : i + 1], name, severity, constants, seed=1, indices=[10 + i]) for i in range(6)]
        torch.set_num_threads(threads)
        assert np.array_equal(np.concatenate(alone), whole)


@pytest.mark.parametrize("name", KNOWN)
def test_any_size_from_one_pixel_on(name):
    for height, width in ((1, 1), (2, 3), (3, 70), (33, 8)):
        image = np.full((1, height, width, 3), 90, np.uint8)
        for severity in (1, 5):
            for constants in CONSTANTS:
                assert corrupt(image, name, severity, constants).shape == image.shape


def test_chunks_make_no_difference(monkeypatch, images):
    whole = {name: corrupt(images, name, 5) for name in KNOWN}
    monkeypatch.setattr("pdeplus.corruptions.base.VALUES_AT_ONCE", 1)
    for name, expected in whole.items():
        assert np.array_equal(corrupt(images, name, 5), expected)


def test_tensors_and_empty_batches(images):
    x = torch.from_numpy(images)
    assert torch.equal(corrupt(x, "fog", 2), torch.from_numpy(corrupt(images, "fog", 2)))
    assert corrupt(x.permute(0, 2, 1, 3), "zoom_blur", 2).shape == (6, 27, 20, 3)
    assert len(corrupt(images[:0], "snow", 2)) == 0
    frozen = images.copy()
    frozen.flags.writeable = False  # as np.asarray(PIL image) is
    assert np.array_equal(corrupt(frozen, "fog", 2), corrupt(images, "fog", 2))
    assert np.array_equal(corrupt(images[:, ::-1], "contrast", 2), corrupt(images, "contrast", 2)[:, ::-1])


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("fgo",), "corruption 'fgo' is not known; did you mean 'fog'"),
        (("ripples",), "corruption 'ripples' is not known; did you mean 'ripple'"),
        (("transverse_chromatic_abberation",), "did you mean 'transverse_chromatic_aberration'"),
        (("fog", 6), "severity=6 must be a whole number from 1 to 5"),
        (("fog", 0), "severity=0"),
        (("fog", 3, "cfar"), "constants='cfar' is not known; choose from cifar, tiny, imagenet"),
    ],
)
def test_wrong_arguments_are_named(images, arguments, message):
    with pytest.raises(UserError, match=message):
        corrupt(images, *arguments)


def test_constants_have_an_older_name(images):
    by_place, default = corrupt(images, "contrast", 3, "tiny"), corrupt(images, "contrast", 3)
    for names in ({"constants": "tiny"}, {"scale": "tiny"}, {"constants": "tiny", "scale": "tiny"}):
        assert np.array_equal(pp.corrupt(images, "contrast", 3, **names), by_place)
    for names in ({"constants": "cifar"}, {"scale": "cifar"}):
        assert np.array_equal(pp.corrupt(images, "contrast", 3, **names), default)
    assert not np.array_equal(by_place, default)
    with pytest.raises(UserError, match="^constants='tiny' and scale='cifar' differ; scale is the older name of"):
        pp.corrupt(images, "contrast", constants="tiny", scale="cifar")
    for name in ("constants", "scale"):
        with pytest.raises(UserError, match="constants='cfar' is not known; choose from cifar, tiny, imagenet"):
            pp.corrupt(images, "contrast", **{name: "cfar"})


def test_whole_numbers_of_any_kind_mean_the_same(images):
    expected = corrupt(images[:3], "snow", 3, seed=1, indices=[5, 6, 7])
    for indices in (torch.tensor([5, 6, 7]), np.array([5, 6, 7]), range(5, 8)):
        assert np.array_equal(corrupt(images[:3], "snow", np.int64(3), seed=torch.tensor(1), indices=indices), expected)
    for wrong in ({"seed": 1.0}, {"seed": None}, {"severity": 3.0}, {"indices": [0.0, 1.0, 2.0]}):
        with pytest.raises(UserError, match="must be a whole number"):
            corrupt(images[:3], "snow", **wrong)


@pytest.mark.parametrize(
    ("wrong", "which"),
    [
        (np.zeros((2, 8, 8, 4), np.uint8), "not uint8 2×8×8×4"),
        (np.zeros((8, 8), np.uint8), "not uint8 8×8"),
        (np.zeros((2, 8, 8, 3), np.int64), "not int64 2×8×8×3"),
        (np.array(["fog"]), "not <U3"),
        (torch.zeros(2, 5, 8, 8), "not float32 2×5×8×8"),
        (torch.zeros(2, 3, 0, 8), "not float32 2×3×0×8"),
    ],
)
def test_wrong_images_are_named(wrong, which):
    with pytest.raises(UserError, match=f"images must be bytes or floats .*, {which}"):
        corrupt(wrong, "fog")


def test_indices_are_as_many_as_images():
    with pytest.raises(UserError, match="2 images need as many indices, not 1"):
        corrupt(np.zeros((2, 8, 8, 3), np.uint8), "fog", indices=[1])


def test_synthetic_frost_says_so(images):
    weather._pictures.cache_clear()
    with pytest.warns(
        UserWarning,
        match="synthetic frost stands in for the benchmark's pictures.*pip install --no-deps imagecorruptions",
    ):
        corrupt(images, "frost", 1)


def test_ice_from_a_folder(images, tmp_path, monkeypatch):
    monkeypatch.undo()
    monkeypatch.setenv("PDEPLUS_FROST", str(tmp_path))
    with pytest.raises(UserError, match="has no frost pictures"):
        corrupt(images, "frost", 1)
    for i in range(6):
        Image.new("RGB", (300, 200), (40 * i, 100, 200)).save(tmp_path / f"ice {i}.png")
    black = np.zeros((100, 32, 32, 3), np.uint8)
    out = corrupt(black, "frost", 2)[:, 0, 0]
    assert set(out[:, 0].tolist()) == {int(0.3 * 40 * i + 1e-6) for i in range(5)}  # the sixth is never used
    assert set(out[:, 1].tolist()) == {30}
    (tmp_path / "ice 0.png").write_bytes(b"no picture")
    weather._pictures.cache_clear()
    with pytest.raises(UserError, match="ice 0.png cannot be read as a picture"):
        corrupt(images, "frost", 1)
