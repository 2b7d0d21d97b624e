"""Data sets, splits and batches."""

import importlib
import sys

import pytest
import torch
from support import data_files

from pdeplus._lib import registry
from pdeplus._lib.seeds import derive, generator_for
from pdeplus.data.base import Images, epoch_batches, split
from pdeplus.data.clothes import Clothes
from pdeplus.data.digits import Digits
from pdeplus.data.fashion_mnist import MEAN
from pdeplus.data.synthetic import STYLES, Synthetic
from pdeplus.errors import UserError
from pdeplus.training.config import load_config, to_tables


@pytest.mark.parametrize("name", registry.names("data"))
def test_contract(name, tmp_path):
    source = registry.build("data", name, data_files.make(name, tmp_path))
    train, tests = source.train(), source.test()
    for images in (train, *tests.values()):
        assert images.images.dtype == torch.uint8
        assert images.images.ndim == 4
        assert len(images.images) == len(images.labels)
        assert images.labels.unique().tolist() == list(range(len(source.classes)))
        assert images.images.float().std() > 20  # something is on them
    assert torch.equal(train.images, source.train().images)
    key = {image.numpy().tobytes() for image in train.images}
    overlap = sum(image.numpy().tobytes() in key for image in next(iter(tests.values())).images)
    assert overlap == 0
    view = source.transform(train.take(torch.arange(4)).floats(), torch.Generator().manual_seed(0))
    assert view.shape == (4, *train.images.shape[1:])


@pytest.mark.parametrize("name", sorted(set(registry.names("data")) - {"clothes", "digits", "synthetic"}))
def test_missing_data_costs_one_line_with_the_way_out(name, tmp_path, monkeypatch):
    monkeypatch.setenv("PDEPLUS_DATA", str(tmp_path))
    with pytest.raises(UserError) as refused:
        registry.build("data", name, {}).train()
    assert ("data.root is not set" if name == "image_folder" else f"pdeplus data get {name}") in str(refused.value)


@pytest.mark.parametrize("name", ["cifar10", "cifar10_c", "fashion_mnist", "tiny_imagenet", "pacs"])
def test_the_root_may_be_the_data_sets_own_folder_or_come_from_the_environment(name, tmp_path, monkeypatch):
    options = data_files.make(name, tmp_path)
    expected = registry.build("data", name, options).train()
    folder = importlib.import_module(f"pdeplus.data.{name}").ORIGIN.folder
    own = registry.build("data", name, options | {"root": str(tmp_path / folder)}).train()
    assert torch.equal(own.images, expected.images)
    monkeypatch.setenv("PDEPLUS_DATA", str(tmp_path))
    assert torch.equal(registry.build("data", name, options | {"root": ""}).train().images, expected.images)


def test_presets_load_without_their_data(tmp_path, monkeypatch):
    monkeypatch.setenv("PDEPLUS_DATA", str(tmp_path))
    for preset in ("erm", "paper", "authors", "pde_plus"):
        config = load_config(preset)
        assert config.data.name == "cifar10"
        assert to_tables(config)["data"] == {"name": "cifar10", "root": "", "size": 32}


def test_digits_are_the_bundled_ones_at_any_size():
    source = Digits(size=24, channels=1)
    assert len(source.train()) + len(source.test()["clean"]) == 1797
    assert source.train().images.shape[1:] == (1, 24, 24)


def test_digits_without_scikit_learn_cost_one_line(monkeypatch):
    for name in ("sklearn", "sklearn.datasets"):
        monkeypatch.setitem(sys.modules, name, None)
    config = load_config("demo")  # a config may name them all the same
    with pytest.raises(UserError, match=r"^data set digits needs sklearn\S*: pip install 'pdeplus\[digits\]'$"):
        registry.build("data", config.data.name, config.data.options).train()


def test_synthetic_styles_share_classes_but_not_looks():
    tests = Synthetic(style="sketch").test()
    assert next(iter(tests)) == "sketch"
    assert set(tests) == set(STYLES)
    brightness = {style: images.images.float().mean().item() for style, images in tests.items()}
    assert brightness["sketch"] > 200 > brightness["photo"]


def test_split_is_stratified_seeded_and_disjoint():
    labels = torch.arange(1000) % 7
    marked = Images(torch.arange(1000).view(-1, 1, 1, 1), labels)

    class Marked(Digits):  # type: ignore[misc]
        def train(self):
            return marked

    parts = split(Marked(), validation=0.2, limit=0, seed=3)
    train, held = set(parts.train.images.flatten().tolist()), set(parts.validation.images.flatten().tolist())
    assert not train & held
    assert train | held == set(range(1000))
    assert parts.train.labels[:50].unique().numel() == 7  # shuffled, not sorted by class
    counts = torch.bincount(parts.validation.labels)
    assert counts.min() >= 28
    assert counts.max() <= 29
    again = split(Marked(), validation=0.2, limit=0, seed=3)
    assert torch.equal(again.train.images, parts.train.images)
    assert set(split(Marked(), validation=0.2, limit=0, seed=4).validation.images.flatten().tolist()) != held
    small = split(Marked(), validation=0.2, limit=140, seed=3)
    assert len(small.train) + len(small.validation) == pytest.approx(140, abs=4)


def test_split_refuses_a_class_of_one():
    class Lonely(Digits):  # type: ignore[misc]
        def train(self):
            return Images(torch.zeros(5, 1, 8, 8, dtype=torch.uint8), torch.tensor([0, 0, 0, 0, 1]))

    with pytest.raises(UserError, match="class '1' has 1 image to train on; a validation split needs 2 of each"):
        split(Lonely(), validation=0.2, limit=0, seed=0)


def test_every_index_once_per_epoch_in_a_new_seeded_order():
    epochs = [epoch_batches(101, batch_size=10, epoch=e, seed=5) for e in range(3)]
    for batches in epochs:
        assert sorted(torch.cat(batches).tolist()) == list(range(101))
        assert min(map(len, batches)) >= 2  # the last one joined the batch before it
    assert not torch.equal(torch.cat(epochs[0]), torch.cat(epochs[1]))
    assert torch.equal(torch.cat(epochs[1]), torch.cat(epoch_batches(101, batch_size=10, epoch=1, seed=5)))
    fixed = [epoch_batches(50, batch_size=10, epoch=e, seed=5, reshuffle=False) for e in (0, 7)]
    assert torch.equal(torch.cat(fixed[0]), torch.cat(fixed[1]))


def test_seeds_depend_on_every_part():
    assert len({derive(0), derive(1), derive(0, "a"), derive(0, "b"), derive(0, "a", 1), derive(0, "a", 11)}) == 6
    assert torch.rand(3, generator=generator_for(1, "x")).equal(torch.rand(3, generator=generator_for(1, "x")))


def test_the_clothes_that_ship_are_as_many_of_each_class():
    source = Clothes()
    train, test = source.train(), source.test()["clean"]
    assert train.labels.bincount().tolist() == [700] * 10
    assert test.labels.bincount().tolist() == [100] * 10
    assert train.images.shape == (7000, 3, 28, 28)
    assert abs(float(train.images.float().mean()) - MEAN) < 1  # of the 60,000 that they are drawn from
    seen = {image.numpy().tobytes() for image in train.images}
    assert not any(image.numpy().tobytes() in seen for image in test.images)
    assert Clothes(size=32, channels=1).test()["clean"].images.shape == (1000, 1, 32, 32)
