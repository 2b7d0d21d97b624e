"""Training a network and a Dataset that the user's own Python holds; what is wrong with them in one line."""

import gc
import os

import numpy as np
import pytest
import torch
from PIL import Image
from support.forkserver import CONTEXT
from torch import nn

import pdeplus as pp
from pdeplus.data._given import read_data

QUICK = ["train.epochs=1", "train.batch_size=16", "train.warmup=0"]


class Dots(torch.utils.data.Dataset):
    """Bright and dark images in a kind of the caller's choice."""

    def __init__(self, n=40, convert=lambda image: image, label=lambda y: y, size=16) -> None:
        self.n, self.convert, self.label, self.size = n, convert, label, size

    def __len__(self) -> int:
        return self.n

    def __getitem__(self, i: int):
        if i >= self.n:
            raise IndexError
        generator = np.random.default_rng(i)
        level = 60 if i % 2 else 190
        image = generator.integers(level - 50, level + 50, (self.size, self.size, 3)).astype(np.uint8)
        return self.convert(image), self.label(i % 2)


def network() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Conv2d(3, 8, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(8, 16, 3, padding=1), nn.ReLU(),
        nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(16, 2),
    )  # fmt: skip


def test_a_module_and_a_dataset_are_trained_tested_and_loaded_again(tmp_path):
    model, data = network(), Dots()
    before = [p.clone() for p in model.parameters()]
    run = pp.train(model=model, data=data, out=tmp_path / "run", settings=[*QUICK, "model.mean=[0.5,0.5,0.5]"
                   , "model.std=[0.25,0.25,0.25]", "train.precision=fp32"])  # fmt: skip
    assert all(torch.equal(a, b) for a, b in zip(before, model.parameters(), strict=True))  # it has trained a copy
    assert run.config.model.name.startswith("python:Sequential-")
    assert run.expects.classes == ("0", "1")
    (record,) = pp.evaluate(run, "clean")
    assert record.n == 8  # a fifth of each class
    x = torch.rand(2, 3, 16, 16)
    expected = pp.predict(run.model, x, samples=0)
    del run
    gc.collect()
    with pytest.raises(pp.UserError, match="was passed in Python and is .*; .* Run.load\\(folder, model=…\\)"):
        _ = pp.Run.load(tmp_path / "run").model
    again = pp.Run.load(tmp_path / "run", model=network(), data=data)
    assert torch.equal(pp.predict(again.model, x, samples=0), expected)
    assert len(again.metrics) == 1


RESUMED = [*QUICK, "train.epochs=2", "train.precision=fp32", "train.checkpoint_seconds=0"]


def train_and_die(folder, at: int) -> None:
    """In a process of its own: the training ends as if killed at a step."""
    pp.train(model=network(), data=Dots(), out=folder, settings=RESUMED, watch=lambda *a: a[0] == at and os._exit(3))


def test_a_run_with_a_given_model_and_data_is_resumed_in_another_process(tmp_path):
    whole = pp.train(model=network(), data=Dots(), out=tmp_path / "whole", settings=RESUMED)
    child = CONTEXT.Process(target=train_and_die, args=(tmp_path / "run", 2))
    child.start()
    child.join(120)
    assert child.exitcode == 3
    expected = whole.path.joinpath("model.safetensors").read_bytes()
    del whole
    gc.collect()
    with pytest.raises(pp.UserError, match=r"was passed in Python and is not available here; .* pp.resume with it"):
        pp.resume(tmp_path / "run")
    with pytest.raises(pp.UserError, match="images or labels differ from the run's"):
        pp.resume(tmp_path / "run", model=network(), data=Dots(60))
    run = pp.resume(tmp_path / "run", model=network(), data=Dots())
    assert len(run.metrics) == 2
    assert run.path.joinpath("model.safetensors").read_bytes() == expected


def test_a_presets_name_is_a_config(tmp_path):
    settings = ["train.limit=60", "train.epochs=1", "model.width=4", "data.size=8", "method.name=erm"]
    run = pp.train("demo", tmp_path / "run", settings=settings)
    assert run.config.train.epochs == 1
    with pytest.raises(pp.UserError, match="preset 'dmo' is not known; did you mean 'demo'"):
        pp.train("dmo")
    with pytest.raises(pp.UserError, match="need a preset's name, not a Config"):
        pp.train(pp.Config(), settings=["train.epochs=1"])


@pytest.mark.parametrize(
    "convert",
    [
        lambda image: torch.from_numpy(image).permute(2, 0, 1),
        lambda image: torch.from_numpy(image).permute(2, 0, 1) / 255,
        Image.fromarray,
        lambda image: image / 255,
    ],
)
def test_every_kind_of_item_is_read_alike(convert):
    expected, found = read_data(Dots()), read_data(Dots(convert=convert))
    assert torch.equal(found.train().images, expected.train().images)
    assert expected.train().images.shape == (32, 3, 16, 16)
    assert torch.equal(found.test()["test"].labels, expected.test()["test"].labels)


def test_labels_may_be_names_and_items_mappings():
    named = read_data(Dots(label=lambda y: ("dog", "cat")[y]), test=Dots(8, label=lambda y: ("dog", "cat")[y]))
    assert named.classes == ("cat", "dog")
    assert named.train().labels[:2].tolist() == [1, 0]
    assert len(named.test()["test"]) == 8
    rows = [{"image": image, "label": np.int64(label)} for image, label in Dots()]
    assert read_data(rows).classes == ("0", "1")


@pytest.mark.parametrize(
    ("dataset", "message"),
    [
        (lambda: Dots(0), "data=Dots must be a dataset with a length above 0"),
        (lambda: iter(()), "must be a dataset with a length"),
        (
            lambda: Dots(convert=lambda image: image.astype(float) / 64 - 2),
            "leave the normalisation out of the dataset",
        ),
        (lambda: Dots(label=lambda y: 0), "data has images of one class only: 0; two or more are needed"),
        (lambda: Dots(label=lambda y: -y), "item 1 has the label -1"),
        (lambda: Dots(label=lambda y: 0.5), "item 0 has the label 0.5"),
        (lambda: [(np.zeros((8, 8, 3), np.uint8), 0), (np.zeros((9, 8, 3), np.uint8), 1)], "images of 3×8×8 and 3×9×8"),
        (lambda: [np.zeros((8, 8, 3), np.uint8)], "an item is a ndarray; a pair"),
        (lambda: [{"picture": 1}], "an item has picture; image and label are needed"),
    ],
)
def test_wrong_datasets_are_answered_in_one_line(dataset, message):
    with pytest.raises(pp.UserError, match=message):
        read_data(dataset())


def test_test_data_must_be_like_the_training_data():
    with pytest.raises(pp.UserError, match="test has images of 3×8×8 and data of 3×16×16"):
        read_data(Dots(), Dots(size=8))
    with pytest.raises(pp.UserError, match="test: item 0 has the label 2; known are 2: 0, 1"):
        read_data(Dots(), Dots(label=lambda y: 2))


def test_a_model_with_other_logits_is_refused_before_training(tmp_path):
    wrong = nn.Sequential(*list(network())[:-1], nn.Linear(16, 5))
    with pytest.raises(pp.UserError, match="5"):
        pp.train(model=wrong, data=Dots(), out=tmp_path / "run", settings=QUICK)
    assert not (tmp_path / "run").exists()


def test_an_unbatched_example_and_labels_of_text_are_answered_in_one_line():
    with pytest.raises(pp.UserError, match="example=3×8×8 is one image; give a batch"):
        pp.add_diffusion(network(), ["1"], torch.rand(3, 8, 8))
    with pytest.raises(pp.UserError, match="the network cannot take the example, 2×4×8×8: .* channels"):
        pp.add_diffusion(network(), "auto", torch.rand(2, 4, 8, 8))
    with pytest.raises(pp.UserError, match="must be numbers, not <U3; number the names"):
        pp.evaluate(network(), data=(torch.rand(2, 3, 8, 8), ["cat", "dog"]))
