"""Corruptions of every kind of image, and as transforms of torchvision, loaders and datasets."""

import numpy as np
import pytest
import torch
from PIL import Image
from support.peers import peer
from torch.utils.data import DataLoader

import pdeplus as pp


@pytest.fixture
def clean(images) -> np.ndarray:
    return images[:2]


def test_every_kind_of_image_gets_the_same_corruption_and_stays_its_kind(clean):
    expected = pp.corrupt(clean, "snow", 3, seed=1)
    planes, as_planes = torch.from_numpy(clean).permute(0, 3, 1, 2), torch.from_numpy(expected).permute(0, 3, 1, 2)
    assert torch.equal(pp.corrupt(planes, "snow", 3, seed=1), as_planes)
    for dtype in (torch.float32, torch.float64):
        out = pp.corrupt(planes.to(dtype) / 255, "snow", 3, seed=1)
        assert out.dtype == dtype
        torch.testing.assert_close(out, as_planes.to(dtype) / 255)
    assert np.array_equal(pp.corrupt(clean[0], "snow", 3, seed=1), expected[0])
    assert torch.equal(pp.corrupt(planes[0], "snow", 3, seed=1), as_planes[0])
    np.testing.assert_allclose(pp.corrupt(clean / 255, "snow", 3, seed=1), expected / 255)
    picture = pp.corrupt(Image.fromarray(clean[0]), "snow", 3, seed=1)
    assert isinstance(picture, Image.Image)
    assert np.array_equal(np.asarray(picture), expected[0])


def test_grey_images_stay_grey(clean):
    grey = torch.from_numpy(clean[:, None, :, :, 0])
    out = pp.corrupt(grey, "contrast", 3)
    colour = pp.corrupt(grey.expand(-1, 3, -1, -1).contiguous(), "contrast", 3)
    assert out.shape == grey.shape
    assert torch.equal(out, colour.float().mean(1, keepdim=True).round().to(torch.uint8))
    assert pp.corrupt(Image.fromarray(clean[0, :, :, 0]), "fog", 1).mode == "L"


@pytest.mark.parametrize(("size", "fitting"), [(32, "cifar"), (64, "tiny"), (160, "imagenet")])
def test_constants_follow_the_size_unless_named(size, fitting):
    image = torch.rand(1, 3, size, size)
    by_size = pp.corrupt(image, "gaussian_noise", 3)
    for name in ("cifar", "tiny", "imagenet"):
        assert torch.equal(by_size, pp.corrupt(image, "gaussian_noise", 3, name)) == (name == fitting)
    assert torch.equal(pp.Corrupt("jpeg_compression")(image), pp.corrupt(image, "jpeg_compression", 3, fitting))


def test_normalised_images_are_refused():
    with pytest.raises(
        pp.UserError, match=r"images must be in \[0, 1\], and these lie between -2 and 2; corrupt images"
    ):
        pp.corrupt(torch.linspace(-2, 2, 192).view(3, 8, 8), "fog")


def test_a_transform_depends_on_pixels_and_seed_and_not_on_order(clean):
    fog = pp.Corrupt("fog", severity=2, seed=3)
    one, two = (fog(image) for image in clean)
    assert np.array_equal(fog(clean[::-1].copy()), np.stack([two, one]))
    assert not np.array_equal(pp.Corrupt("fog", severity=2, seed=4)(clean[0]), one)
    by_place = pp.corrupt(clean, "fog", 2, seed=3, indices=[7, 8])
    assert np.array_equal(fog(clean[1], index=8), by_place[1])
    assert np.array_equal(fog(clean, index=[7, 8]), by_place)
    assert pp.Corrupt("fog")(clean[0], "label")[1] == "label"


def test_random_corruption_draws_among_names_and_severities(clean):
    image, names = clean[0], ("contrast", "brightness")
    choice = pp.RandomCorruption(names, (1, 5))
    allowed = {pp.corrupt(image, name, severity).tobytes() for name in names for severity in (1, 5)}
    assert {choice(image).tobytes() for _ in range(40)} == allowed
    torch.manual_seed(1)
    first = pp.RandomCorruption()(clean)
    torch.manual_seed(1)
    assert np.array_equal(pp.RandomCorruption()(clean), first)
    seeded = pp.RandomCorruption(seed=2)
    assert np.array_equal(seeded(clean), np.stack([seeded(image) for image in clean]))
    assert np.array_equal(pp.RandomCorruption(p=0.0)(clean), clean)
    kept = sum(np.array_equal(pp.RandomCorruption(("contrast",), (5,), p=0.25)(image), image) for _ in range(100))
    assert 60 <= kept <= 90
    before = clean.copy()
    choice(clean)
    assert np.array_equal(clean, before)
    assert pp.RandomCorruption().names == pp.EXTRA_CORRUPTIONS


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: pp.Corrupt("fgo"), "did you mean 'fog'"),
        (lambda: pp.Corrupt("fog", 6), "severity=6 must be"),
        (lambda: pp.RandomCorruption("fog"), "needs a list of names"),
        (lambda: pp.RandomCorruption(["fog"], p=2), "p between 0 and 1"),
        (lambda: pp.RandomCorruption(["fgo"]), "did you mean 'fog'"),
        (lambda: pp.RandomCorruption(["fog"], [0]), "severity=0 must be"),
    ],
)
def test_wrong_transforms_are_refused_when_they_are_made(make, message):
    with pytest.raises(pp.UserError, match=message):
        make()


class Pictures(torch.utils.data.Dataset):
    def __init__(self, images, transform) -> None:
        self.images, self.transform = images, transform

    def __len__(self) -> int:
        return len(self.images)

    def __getitem__(self, place: int):
        return self.transform(Image.fromarray(self.images[place]), place)


def test_in_torchvisions_pipelines_and_loaders(images):
    v2 = peer("torchvision.transforms.v2")
    tensors = peer("torchvision.tv_tensors")
    steps = [v2.ToImage(), pp.Corrupt("gaussian_noise", 3), v2.ToDtype(torch.float32, scale=True)]
    found = list(DataLoader(Pictures(images, v2.Compose(steps)), 4))
    whole = torch.cat([batch for batch, _ in found])
    expected = pp.Corrupt("gaussian_noise", 3)(images)
    assert torch.equal((whole * 255).round().byte(), torch.from_numpy(expected).permute(0, 3, 1, 2))
    assert torch.cat([labels for _, labels in found]).tolist() == list(range(len(images)))
    image = tensors.Image(torch.from_numpy(images[0]).permute(2, 0, 1))
    assert isinstance(pp.Corrupt("fog")(image), tensors.Image)
    assert isinstance(pp.RandomCorruption()(image), tensors.Image)


def test_in_datasets_map(images, tmp_path, monkeypatch):
    monkeypatch.setenv("HF_HOME", str(tmp_path))
    datasets = peer("datasets")
    rows = datasets.Dataset.from_dict({"image": [Image.fromarray(image) for image in images]})
    fog = pp.Corrupt("fog", severity=3, seed=5)
    foggy = rows.map(lambda row, i: {"image": fog(row["image"], index=i)}, with_indices=True)
    expected = pp.corrupt(images, "fog", 3, seed=5)
    for row, image in zip(foggy, expected, strict=True):
        assert np.array_equal(np.asarray(row["image"]), image)
