"""Synthetic frost changes images as much as the benchmark's pictures do, at every severity and size.

The mean absolute change is exact: over all pieces that can be cut, and over the grey levels of the images.
"""

import pickle
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from pdeplus.corruptions import weather
from pdeplus.corruptions.suite import SUITE

DATA = Path(__file__).parents[3] / "shared" / "data"
SIZES = {"cifar": 32, "tiny": 64, "imagenet": 224}
LEVELS = (13, 31, 44, 56, 66, 76, 85, 95, 104, 113, 122, 131, 141, 151, 162, 175, 188, 204, 224, 250)
"""The odd fortieths of the grey levels in CIFAR-10's test images."""
RECORDED = {
    "cifar": (30.45, 44.87, 49.53, 44.88, 43.33),
    "tiny": (44.84, 49.49, 47.43, 50.27, 53.06),
    "imagenet": (58.37, 67.75, 72.78, 69.18, 71.99),
}
"""Mean absolute change of those levels by the benchmark's pictures, severities 1 to 5."""

pytestmark = pytest.mark.filterwarnings("ignore:synthetic frost")


@pytest.fixture(autouse=True)
def no_old_pictures():
    weather._pictures.cache_clear()
    yield
    weather._pictures.cache_clear()


def shown(size: int, side: int) -> np.ndarray:
    """How often each row of a picture is in a piece: pieces begin at 0, …, size - side - 1, each as likely."""
    starts = range(max(size - side, 1))
    return sum(np.pad(np.ones(side), (start, size - side - start)) for start in starts) / (len(starts) * side)


def mean_changes(folder: Path | None, constants: str, levels: np.ndarray) -> list[float]:
    """The mean absolute change of images whose grey levels have the histograms `levels`, 3×256, by severity."""
    side, grey = SIZES[constants], np.arange(256.0)
    found = []
    for image, ice, zoom in SUITE["frost"].constants[constants]:
        out = np.floor(np.clip(image * grey[:, None] + ice * grey, 0, 255) + 1e-6)
        change, total = np.abs(out - grey[:, None]), 0.0
        pictures = weather._pictures(folder, zoom, side, side)
        for picture in pictures:
            share = np.outer(*(shown(size, side) for size in picture.shape[1:])).ravel()
            for pixels, histogram in zip(picture.long().numpy(), levels, strict=True):
                total += histogram @ change @ np.bincount(pixels.ravel(), share, 256)
        found.append(total / 3 / len(pictures))
    return found


def histograms(images: np.ndarray) -> np.ndarray:
    """Of each channel of N×H×W×3 bytes."""
    return np.stack([np.bincount(images[..., c].ravel(), minlength=256) / images[..., c].size for c in range(3)])


@pytest.mark.parametrize("constants", SIZES)
def test_synthetic_frost_is_as_strong_as_the_pictures(constants):
    levels = histograms(np.repeat(np.array(LEVELS, np.uint8), 3).reshape(-1, 1, 1, 3))
    assert mean_changes(None, constants, levels) == pytest.approx(RECORDED[constants], rel=0.02)


@pytest.mark.skipif(not (DATA / "frost").is_dir(), reason="no pictures of frost beside the project")
@pytest.mark.parametrize("constants", SIZES)
def test_the_numbers_are_those_of_the_pictures_and_real_images_agree(constants):
    levels = histograms(np.repeat(np.array(LEVELS, np.uint8), 3).reshape(-1, 1, 1, 3))
    assert mean_changes(DATA / "frost", constants, levels) == pytest.approx(RECORDED[constants], abs=0.006)
    real = histograms(real_images(constants))
    made, pictures = (mean_changes(folder, constants, real) for folder in (None, DATA / "frost"))
    assert made == pytest.approx(pictures, rel=0.02)


def real_images(constants: str) -> np.ndarray:
    """CIFAR-10's test images, or Tiny-ImageNet's in the size of the constants."""
    if constants == "cifar":
        rows = pickle.loads((DATA / "cifar-10-batches-py" / "test_batch").read_bytes(), encoding="bytes")[b"data"]
        return np.asarray(rows).reshape(-1, 3, 32, 32).transpose(0, 2, 3, 1)
    side = (SIZES[constants],) * 2
    paths = sorted((DATA / "tiny-imagenet-200").rglob("*.JPEG"))[::50]
    return np.stack([np.asarray(Image.open(path).convert("RGB").resize(side)) for path in paths])


def test_the_share_of_a_row_by_hand():
    assert shown(5, 3) == pytest.approx(np.array([1, 2, 2, 1, 0]) / 6)
    assert shown(3, 3) == pytest.approx(np.ones(3) / 3)
    black = torch.eye(256)[:1].expand(3, -1).numpy()  # an image of grey level 0 becomes the ice's share
    (first, *_) = mean_changes(None, "cifar", black)
    assert 0.2 * 80 < first < 0.2 * 220
