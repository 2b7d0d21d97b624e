"""Class folders of pictures: layouts, labels, streaming, and what is refused."""

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from support.data_files import DOMAINS, SHARED, WNIDS, make, pixels, write_class_folders, write_pictures

from pdeplus import load_config, resume, train
from pdeplus.data import _pictures
from pdeplus.data._reading import read_corrupted
from pdeplus.data.base import Images, preload, split
from pdeplus.data.image_folder import ImageFolder
from pdeplus.data.pacs import Pacs
from pdeplus.data.tiny_imagenet import TinyImagenet
from pdeplus.data.tiny_imagenet_c import TinyImagenetC
from pdeplus.errors import UserError


def keys(images: Images) -> set[bytes]:
    return {image.numpy().tobytes() for image in images.images}


def no_decoding(monkeypatch) -> None:
    def fail(path):
        raise AssertionError(f"{path} was decoded")

    monkeypatch.setattr(_pictures, "read_picture", fail)


def test_one_folder_is_cut_in_two_by_the_seed_and_no_picture_is_lost(tmp_path):
    write_class_folders(tmp_path, ("cat", "dog"), 10, 0)
    (tmp_path / "cat" / "notes.txt").write_text("no picture")
    (tmp_path / ".cache").mkdir()
    source = ImageFolder(root=str(tmp_path), held_out=0.3)
    train_images, test_images = source.train(), source.test()["test"]
    assert source.classes == ("cat", "dog")
    assert torch.bincount(train_images.labels).tolist() == [7, 7]
    assert torch.bincount(test_images.labels).tolist() == [3, 3]
    expected = {pixels(1000 * c + i, 64, 64, 3).transpose(2, 0, 1).tobytes(): c for c in (0, 1) for i in range(10)}
    for images in (train_images, test_images):
        for image, label in zip(images.images, images.labels, strict=True):
            assert expected.pop(image.numpy().tobytes()) == label
    assert not expected
    again = ImageFolder(root=str(tmp_path), held_out=0.3).test()["test"]
    assert torch.equal(again.images, test_images.images)
    assert keys(ImageFolder(root=str(tmp_path), held_out=0.3, seed=1).test()["test"]) != keys(test_images)


@pytest.mark.parametrize(
    ("train", "name"), [("train", "test"), ("train", "val"), ("Train", "Test"), ("training", "valid")]
)
def test_train_and_test_folders_are_used_as_they_are(tmp_path, train, name):
    write_class_folders(tmp_path / train, ("a", "b"), 3, 0)
    write_class_folders(tmp_path / name, ("a", "b"), 2, 1)
    source = ImageFolder(root=str(tmp_path))
    assert (len(source.train()), len(source.test()["test"])) == (6, 4)
    assert not keys(source.train()) & keys(source.test()["test"])


def test_a_class_may_be_called_train(tmp_path):
    write_class_folders(tmp_path, ("bus", "train"), 5, 0)
    assert ImageFolder(root=str(tmp_path)).classes == ("bus", "train")
    assert len(ImageFolder(root=str(tmp_path)).train()) == 8


def test_pictures_of_any_shape_become_squares(tmp_path):
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        for i in range(5):
            wide = np.zeros((20, 60, 3), np.uint8)
            wide[:, 20:40] = 10 * i + 5
            Image.fromarray(wide).save(tmp_path / name / f"{i}.png")
    images = ImageFolder(root=str(tmp_path), size=20).train().images
    assert images.shape == (8, 3, 20, 20)
    assert (images == images[:, :1, :1, :1]).all()
    assert (images > 0).all()


@pytest.mark.parametrize(
    ("spoil", "words"),
    [
        (lambda r: (r / "test" / "dog").rename(r / "test" / "wolf"), ["class 'wolf'"]),
        (lambda r: write_pictures(r / "test" / "wolf", 1, 9), ["test/wolf", "class 'wolf' is not in"]),
        (lambda r: [f.unlink() for f in (r / "test" / "dog").iterdir()], ["test/dog", "no picture"]),
        (lambda r: next((r / "test" / "dog").iterdir()).write_bytes(b""), ["test/dog", "is empty"]),
        (lambda r: next((r / "test" / "dog").iterdir()).write_bytes(b"GIF89a"), ["test/dog", "cannot be read"]),
    ],
)
def test_bad_folders_are_refused_in_one_line(tmp_path, spoil, words):
    for part in ("train", "test"):
        write_class_folders(tmp_path / part, ("cat", "dog"), 2, len(part))
    spoil(tmp_path)
    with pytest.raises(UserError) as refused:
        _ = ImageFolder(root=str(tmp_path)).test()["test"].images
    assert all(word in str(refused.value) for word in words), refused.value


@pytest.mark.parametrize("memory_gb", [0, 1])
def test_all_broken_pictures_are_named_before_training(tmp_path, memory_gb):
    write_class_folders(tmp_path / "pictures", ("a", "b"), 20, 0)
    paths = sorted((tmp_path / "pictures" / "a").iterdir())
    for path in paths[:12]:
        path.write_bytes(b"")
    paths[12].write_bytes(b"no picture")
    options = [f"data.root={tmp_path / 'pictures'}", "data.size=8", "model.width=2", f"data.memory_gb={memory_gb}"]
    options += ["data.name=image_folder", "data.held_out=0.05"]
    with pytest.raises(UserError) as refused:
        train(load_config("demo", options), tmp_path / "run")
    told = str(refused.value)
    found = [path.name for path in paths[:13] if f"{path.name} is empty" in told or f"{path.name} cannot" in told]
    count = int(told.partition(" pictures cannot be used, repair or remove them: ")[0])
    assert len(found) == 10
    assert told.endswith(f"; and {count - 10} more")
    assert 10 < count <= 13  # of which some are held out
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("memory_gb", [0, 1])
def test_broken_pictures_of_both_parts_are_named_at_once(tmp_path, memory_gb):
    write_class_folders(tmp_path / "train", ("a", "b"), 5, 0)
    write_class_folders(tmp_path / "test", ("a", "b"), 1, 0)
    for path in (tmp_path / "train").rglob("*.png"):
        path.write_bytes(b"")
    options = ["data.name=image_folder", f"data.root={tmp_path}", "data.size=32", f"data.memory_gb={memory_gb}"]
    with pytest.raises(UserError, match="^10 pictures cannot be used"):
        train(load_config("demo", options), tmp_path / "run")


def test_a_folder_that_changes_during_training_is_noticed(tmp_path):
    write_class_folders(tmp_path / "pictures", ("a", "b"), 12, 0)
    options = ["data.name=image_folder", f"data.root={tmp_path / 'pictures'}", "data.size=8", "data.memory_gb=0"]
    options += ["model.width=2", "method.name=erm", "train.batch_size=4", "train.epochs=2"]
    paths = sorted((tmp_path / "pictures").glob("*/*.png"))
    kept = [path.read_bytes() for path in paths]

    def spoil(step, steps, progress, logs):
        if progress.history:
            for path in paths:
                path.write_bytes(kept[0] + b"more")

    with pytest.raises(UserError, match="has changed since the folder.*then continue with: pdeplus train --resume"):
        train(load_config("demo", options), tmp_path / "run", watch=spoil)
    with pytest.raises(UserError, match="pictures of image_folder have changed since the run began"):
        resume(tmp_path / "run")
    for path, content in zip(paths, kept, strict=True):
        path.write_bytes(content)
    moved = tmp_path / "pictures" / "a" / "new.png"
    moved.write_bytes(kept[0])
    with pytest.raises(UserError, match="put them back as they were"):
        resume(tmp_path / "run")
    moved.unlink()
    assert len(resume(tmp_path / "run").metrics) == 2


@pytest.mark.parametrize(("name", "told"), [("wolf", "class 'wolf' is not in"), (None, "no folder for class 'dog'")])
def test_classes_of_the_test_are_compared_before_training(tmp_path, name, told):
    for part in ("train", "test"):
        write_class_folders(tmp_path / part, ("cat", "dog", "eel"), 2, len(part))
    shutil.rmtree(tmp_path / "test" / "dog")
    if name:
        write_pictures(tmp_path / "test" / name, 1, 9)
    with pytest.raises(UserError, match=told):
        ImageFolder(root=str(tmp_path)).train()


def test_a_class_missing_in_test_is_named(tmp_path):
    write_class_folders(tmp_path / "train", ("cat", "dog", "eel"), 2, 0)
    write_class_folders(tmp_path / "test", ("cat", "dog"), 2, 1)
    with pytest.raises(UserError, match="no folder for class 'eel'"):
        ImageFolder(root=str(tmp_path)).test()


def test_one_class_no_class_and_no_folder_are_refused(tmp_path):
    write_pictures(tmp_path / "one" / "cat", 3, 0)
    with pytest.raises(UserError, match="only 'cat'"):
        _ = ImageFolder(root=str(tmp_path / "one")).classes
    with pytest.raises(UserError, match="it has none"):
        ImageFolder(root=str(tmp_path / "one" / "cat")).train()
    with pytest.raises(UserError, match="there is no such folder"):
        ImageFolder(root=str(tmp_path / "nowhere")).train()
    with pytest.raises(UserError, match="held_out=1.5"):
        ImageFolder(root=str(tmp_path), held_out=1.5)


def test_splitting_decodes_nothing_and_what_fits_is_decoded_once(tmp_path, monkeypatch):
    write_class_folders(tmp_path, ("a", "b"), 10, 0)
    with monkeypatch.context() as patched:
        no_decoding(patched)
        parts = split(ImageFolder(root=str(tmp_path)), validation=0.25, limit=12, seed=0)
        assert len(parts.train) + len(parts.validation) == 12
    preload(parts.train)
    no_decoding(monkeypatch)
    assert parts.train.floats().shape == (len(parts.train), 3, 64, 64)
    with pytest.raises(AssertionError, match="was decoded"):
        parts.validation.floats()  # it shares the room, not the contents


def test_streamed_batches_are_those_of_memory_in_any_order_and_are_not_kept(tmp_path, monkeypatch):
    write_class_folders(tmp_path, ("a", "b"), 20, 0)
    kept = ImageFolder(root=str(tmp_path)).train()
    streamed = ImageFolder(root=str(tmp_path), memory_gb=0).train()
    order = torch.randperm(32, generator=torch.Generator().manual_seed(0)).split(5)
    for indices, one, other in zip(order, kept.batches(order), streamed.batches(order), strict=True):
        assert torch.equal(one.images, other.images)
        assert torch.equal(one.images, kept.images[indices])
        assert torch.equal(other.labels, kept.labels[indices])
    no_decoding(monkeypatch)
    assert len(list(kept.batches(order))) == 7
    with pytest.raises(AssertionError, match="was decoded"):
        next(streamed.batches(order))


def test_a_broken_picture_in_a_stream_is_named_when_it_comes(tmp_path):
    write_class_folders(tmp_path, ("a", "b"), 5, 0)
    images = ImageFolder(root=str(tmp_path), memory_gb=0).train()
    bad = Path(images.stored.paths[int(images.stored.chosen[-1])])
    bad.write_bytes(b"broken")
    coming = images.batches(torch.arange(len(images)).split(1))
    for _ in range(len(images) - 1):
        next(coming)
    with pytest.raises(UserError, match=bad.name):
        next(coming)


def test_training_is_the_same_to_the_bit_from_memory_and_from_disk(tmp_path):
    write_class_folders(tmp_path / "pictures", ("a", "b"), 12, 0)
    options = [
        "data.name=image_folder",
        f"data.root={tmp_path / 'pictures'}",
        "data.size=8",
        "model.width=2",
        "train.epochs=1",
        "train.batch_size=4",
        "method.name=erm",
    ]
    runs = [train(load_config("demo", [*options, f"data.memory_gb={gb}"]), tmp_path / str(gb)) for gb in (1, 0)]
    weights = [(run.path / "model.safetensors").read_bytes() for run in runs]
    assert weights[0] == weights[1]
    assert [json.dumps(r["validation/nll"]) for r in runs[0].metrics] == [
        json.dumps(r["validation/nll"]) for r in runs[1].metrics
    ]


def test_a_broken_picture_is_met_before_a_run_folder_is_made(tmp_path):
    write_class_folders(tmp_path / "pictures", ("a", "b"), 12, 0)
    for path in (tmp_path / "pictures" / "a").iterdir():
        if path.name != "a_0.png":
            path.write_bytes(b"broken")
    options = ["data.name=image_folder", f"data.root={tmp_path / 'pictures'}", "data.size=8", "model.width=2"]
    with pytest.raises(UserError, match="cannot be read as a picture"):
        train(load_config("demo", options), tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_tiny_imagenet_takes_labels_from_the_annotations(tmp_path):
    make("tiny_imagenet", tmp_path)
    source = TinyImagenet(root=str(tmp_path))
    assert source.classes == ("goldfish, Carassius auratus", "n01629819", "Chihuahua")
    assert torch.bincount(source.train().labels).tolist() == [4, 4, 4]
    test = source.test()["clean"]
    assert test.labels.tolist() == [0, 2, 1, 0, 2, 1]  # the seventh is of a class that is not here
    folder = tmp_path / "tiny-imagenet-200"
    first = np.asarray(Image.open(folder / "val" / "images" / "images_1.JPEG")).transpose(2, 0, 1)
    assert np.array_equal(test.images[1].numpy(), first)
    (folder / "val" / "images" / "images_3.JPEG").unlink()
    with pytest.raises(UserError, match="images_3.JPEG is missing"):
        source.test()


@pytest.mark.parametrize(
    ("text", "word"), [("nonsense\n", "line 1"), ("../../x.png\tn01443537\n", "line 1"), ("", "no image of class")]
)
def test_bad_annotations_are_refused(tmp_path, text, word):
    make("tiny_imagenet", tmp_path)
    (tmp_path / "tiny-imagenet-200" / "val" / "val_annotations.txt").write_text(text)
    with pytest.raises(UserError, match=word):
        TinyImagenet(root=str(tmp_path)).test()


def test_tiny_imagenet_c_labels_by_the_clean_sets_classes(tmp_path):
    make("tiny_imagenet_c", tmp_path)
    tests = TinyImagenetC(root=str(tmp_path)).test()
    assert list(tests) == ["clean", *(f"fog/{k}" for k in range(1, 6))]
    images = tests["fog/2"]
    assert images.labels.tolist() == [0, 0, 1, 1, 2, 2]
    folder = tmp_path / "Tiny-ImageNet-C"
    picture = np.asarray(Image.open(folder / "fog" / "2" / WNIDS[1] / f"{WNIDS[1]}_0.JPEG"))
    assert np.array_equal(images.images[2].numpy(), picture.transpose(2, 0, 1))
    same = read_corrupted(folder, "fog", 2, classes=WNIDS, size=64)
    assert torch.equal(same.images, images.images)


def test_pacs_learns_from_one_domain_and_tests_on_all(tmp_path):
    make("pacs", tmp_path)
    source = Pacs(root=str(tmp_path), size=64, source="cartoon", held_out=0.2)
    tests = source.test()
    assert list(tests) == ["cartoon", "photo", "art_painting", "sketch"]
    assert {name: len(images) for name, images in tests.items()} == dict.fromkeys(DOMAINS, 10) | {"cartoon": 2}
    assert torch.bincount(source.train().labels).tolist() == [4, 4]
    assert not keys(source.train()) & keys(tests["cartoon"])
    with pytest.raises(UserError, match="another domain"):
        Pacs(source="photo", guidance_domain="photo")


@pytest.mark.skipif(not SHARED.is_dir(), reason="the real data is not on this machine")
def test_real_pictures():
    tiny = TinyImagenet(root=str(SHARED), size=32)
    assert len(tiny.classes) == 20
    assert torch.bincount(tiny.train().labels).tolist() == [200] * 20
    test = tiny.test()["clean"]
    assert torch.bincount(test.labels).tolist() == [50] * 20
    row = (SHARED / "tiny-imagenet-200/val/val_annotations.txt").read_text().split("\t", 2)
    assert sorted(p.name for p in (SHARED / "tiny-imagenet-200/train").iterdir())[test.labels[0]] == row[1]
    pacs = Pacs(root=str(SHARED / "pacs-64"), size=64, source="sketch")
    sizes = {name: len(images) for name, images in pacs.test().items()}
    assert {k: v for k, v in sizes.items() if k != "sketch"} == {"photo": 1670, "art_painting": 2048, "cartoon": 2344}
    assert sizes["sketch"] + len(pacs.train()) == 3929
    few = pacs.train().take(torch.arange(0, 3000, 60))
    assert few.images.float().mean() > 200  # black lines on white paper
