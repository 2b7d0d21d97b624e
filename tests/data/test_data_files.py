"""Arrays in published formats: read exactly, or refused in one line; a pickle never runs."""

import gzip
import io
import pickle
import struct

import numpy as np
import pytest
import torch
from benchmarks.data import read_and_cut
from support.data_files import (
    SHARED,
    make,
    pixels,
    python2_pickle,
    write_cifar10,
    write_cifar100,
    write_corrupted,
    write_fashion_mnist,
)

from pdeplus.data._reading import corruption_names, read_corrupted, resize
from pdeplus.data.cifar10 import Cifar10, read_pickle
from pdeplus.data.cifar10_c import Cifar10C
from pdeplus.data.cifar100 import Cifar100
from pdeplus.data.fashion_mnist import FashionMnist
from pdeplus.errors import UserError
from pdeplus.training.config import load_config
from pdeplus.training.run_folder import build_method, build_network, expects_of

TEN = tuple("0123456789")


def refused(path, call) -> str:
    """The one line with which `call` is refused; it names the file."""
    with pytest.raises(UserError) as caught:
        call()
    text = " ".join(str(caught.value).split())
    assert str(path) in text
    return text


@pytest.mark.parametrize("protocol", [0, 1, 2, 3, 4, 5, "python 2"])
def test_pickles_of_every_protocol_give_the_same_arrays(tmp_path, protocol):
    entries = {"labels": [3, 1], "data": pixels(0, 2, 3072)}
    raw = python2_pickle(entries) if protocol == "python 2" else pickle.dumps(entries, protocol)
    (tmp_path / "x").write_bytes(raw)
    read = read_pickle(tmp_path / "x")
    assert read["labels"] == [3, 1]
    assert np.array_equal(read["data"], entries["data"])


def test_a_column_major_array_keeps_its_places(tmp_path):
    expected = np.asfortranarray(pixels(1, 3, 3072))
    (tmp_path / "x").write_bytes(pickle.dumps({"data": expected}, protocol=4))
    assert np.array_equal(read_pickle(tmp_path / "x")["data"], expected)


class Hostile:
    def __init__(self, function, *arguments):
        self.call = function, arguments

    def __reduce__(self):
        return self.call


@pytest.mark.parametrize("protocol", [0, 2, 4, 5])
@pytest.mark.parametrize("where", ["value", "key", "whole", "in an array"])
def test_a_hostile_pickle_never_runs(tmp_path, protocol, where):
    trace = tmp_path / "trace"
    bad = Hostile(exec, f"open({str(trace)!r}, 'w')")
    inside = np.array([bad], dtype=object)
    held = {"value": {"data": bad}, "key": {bad: 1}, "whole": bad, "in an array": {"data": inside}}[where]
    (tmp_path / "x").write_bytes(pickle.dumps(held, protocol))
    refused(tmp_path / "x", lambda: read_pickle(tmp_path / "x"))
    assert not trace.exists()


@pytest.mark.parametrize(
    "raw",
    [
        b"cos\nsystem\n(S'true'\ntR.",
        b"c__builtin__\neval\n(S'1'\ntR.",
        b"cnumpy.core.multiarray\nscalar\n(tR.",
        b"cnumpy\nload\n(S'/etc/passwd'\ntR.",
        b"\x80\x02cnumpy\ndtype\n)\x81.",  # makes an instance of what must be no class
        b"\x80\x02}(U\x04datacnumpy\nndarray\nJ\xff\xff\xff\x7f\x85Ru.",  # an array out of nothing
        b"(lp0\n.",
        b"",
        b"\x80\x02}(U\x04data",
        b"garbage",
        b"(" * 100_000,
        b"\x80\x02Nr\x00\xa3\xe1\x11.",  # says it has 300 million objects: the unpickler in C takes 5 GB for them
    ],
)
def test_damaged_and_crafted_pickles_are_refused(tmp_path, raw):
    (tmp_path / "x").write_bytes(raw)
    assert "damaged" in refused(tmp_path / "x", lambda: read_pickle(tmp_path / "x"))


def test_a_pickle_cannot_change_how_the_next_one_is_read(tmp_path):
    sly = b"\x80\x02cnumpy\ndtype\n}(U\x04codeU\x02f8ub0}."  # sets an attribute on what it was given
    (tmp_path / "sly").write_bytes(sly)
    read_pickle(tmp_path / "sly")
    (tmp_path / "x").write_bytes(python2_pickle({"data": pixels(0, 2, 3072)}))
    assert np.array_equal(read_pickle(tmp_path / "x")["data"], pixels(0, 2, 3072))


def test_cifar10_is_read_in_order_and_channel_by_channel(tmp_path):
    write_cifar10(tmp_path / "cifar-10-batches-py", each=20)
    train, test = Cifar10(root=str(tmp_path)).train(), Cifar10(root=str(tmp_path)).test()["clean"]
    assert train.labels.tolist() == [n % 10 for n in range(20)] * 5
    rows = np.concatenate([pixels(i, 20, 3072) for i in range(5)])
    assert np.array_equal(train.images.numpy(), rows.reshape(100, 3, 32, 32))
    assert np.array_equal(test.images.numpy(), pixels(5, 20, 3072).reshape(20, 3, 32, 32))


def test_a_missing_training_file_is_told(tmp_path, caplog):
    write_cifar10(tmp_path / "cifar-10-batches-py")
    (tmp_path / "cifar-10-batches-py" / "data_batch_3").unlink()
    assert len(Cifar10(root=str(tmp_path)).train()) == 80
    assert "4 of its 5 training files" in caplog.text


@pytest.mark.parametrize(
    ("entries", "word"),
    [
        ({"labels": [0, 10], "data": pixels(0, 2, 3072)}, "label 10 at 1"),
        ({"labels": [-1, 0], "data": pixels(0, 2, 3072)}, "label -1 at 0"),
        ({"labels": [0], "data": pixels(0, 2, 3072)}, "2 images but 1 labels"),
        ({"labels": [0, 1], "data": pixels(0, 2, 3071)}, "3071"),
        ({"labels": ["cat", "dog"], "data": pixels(0, 2, 3072)}, "whole numbers"),
        ({"labels": [0, 1]}, "no 'data'"),
        ({"data": pixels(0, 2, 3072)}, "'labels'"),
    ],
)
def test_bad_cifar_files_are_refused(tmp_path, entries, word):
    folder = tmp_path / "cifar-10-batches-py"
    write_cifar10(folder)
    (folder / "data_batch_2").write_bytes(python2_pickle(entries))
    assert word in refused(folder / "data_batch_2", Cifar10(root=str(tmp_path)).train)


def test_floats_in_a_cifar_file_are_refused(tmp_path):
    write_cifar100(tmp_path / "cifar-100-python")
    entries = {"fine_labels": [0, 1], "data": np.zeros((2, 3072))}
    (tmp_path / "cifar-100-python" / "train").write_bytes(pickle.dumps(entries, 4))
    assert "uint8" in refused("train", Cifar100(root=str(tmp_path)).train)


def test_a_severity_is_its_fifth_of_the_array(tmp_path):
    write_cifar10(tmp_path / "cifar-10-batches-py")
    write_corrupted(tmp_path / "CIFAR-10-C", 10, 20)
    tests = Cifar10C(root=str(tmp_path)).test()
    assert list(tests) == ["clean", *(f"{name}/{k}" for name in ("fog", "snow") for k in range(1, 6))]
    whole = pixels(101, 100, 32, 32, 3).transpose(0, 3, 1, 2)
    for severity in range(1, 6):
        images = tests[f"snow/{severity}"]
        assert np.array_equal(images.images.numpy(), whole[20 * (severity - 1) : 20 * severity])
        assert images.labels.tolist() == [n % 10 for n in range(20)]
    assert np.array_equal(tests["clean"].images.numpy(), pixels(5, 20, 3072).reshape(20, 3, 32, 32))
    assert corruption_names(tmp_path / "CIFAR-10-C") == ["fog", "snow"]


@pytest.mark.parametrize(
    ("array", "word"),
    [
        (np.zeros((100, 32, 32, 3), np.float32), "float32"),
        (np.zeros((100, 32, 32), np.uint8), "(100, 32, 32)"),
        (np.zeros((100, 3, 32, 32), np.uint8), "N×H×W×3"),
        (np.zeros((99, 32, 32, 3), np.uint8), "99 images"),
        (np.zeros((50, 32, 32, 3), np.uint8), "50 images for 100 labels"),
        (np.array([Hostile(exec, "1 / 0")], dtype=object), "cannot be read"),
    ],
)
def test_bad_corrupted_arrays_are_refused(tmp_path, array, word):
    folder = tmp_path / "C"
    write_corrupted(folder, 10, 20)
    np.save(folder / "fog.npy", array, allow_pickle=True)
    assert word in refused(folder / "fog.npy", lambda: read_corrupted(folder, "fog", 1, classes=TEN))


def test_bad_corrupted_labels_names_and_severities_are_refused(tmp_path):
    folder = tmp_path / "C"
    write_corrupted(folder, 10, 20)
    assert "haze" in refused(folder, lambda: read_corrupted(folder, "haze", 1, classes=TEN))
    with pytest.raises(UserError, match="severity=6"):
        read_corrupted(folder, "fog", 6, classes=TEN)
    assert "label 9 at 9" in refused("labels.npy", lambda: read_corrupted(folder, "fog", 1, classes=TEN[:9]))
    (folder / "fog.npy").write_bytes((folder / "fog.npy").read_bytes()[:1000])
    assert "cannot be read" in refused(folder / "fog.npy", lambda: read_corrupted(folder, "fog", 1, classes=TEN))
    np.savez(folder / "snow.npz", a=np.zeros(3))
    (folder / "snow.npz").replace(folder / "snow.npy")
    assert "is an archive" in refused(folder / "snow.npy", lambda: read_corrupted(folder, "snow", 1, classes=TEN))
    (folder / "snow.npy").write_bytes(b"")
    assert "cannot be read" in refused(folder / "snow.npy", lambda: read_corrupted(folder, "snow", 1, classes=TEN))
    np.save(folder / "fog.npy", pixels(0, 100, 32, 32, 3))
    np.save(folder / "labels.npy", np.uint8(3))
    assert "0 dimensions" in refused("labels.npy", lambda: read_corrupted(folder, "fog", 1, classes=TEN))
    (folder / "labels.npy").unlink()
    assert "no such file" in refused("labels.npy", lambda: read_corrupted(folder, "fog", 1, classes=TEN))


@pytest.mark.parametrize("compressed", [True, False])
def test_fashion_mnist_is_read_exactly(tmp_path, compressed):
    write_fashion_mnist(tmp_path / "fashion-mnist", compressed)
    train = FashionMnist(root=str(tmp_path)).train()
    assert np.array_equal(train.images.numpy(), np.repeat(pixels(0, 40, 28, 28)[:, None], 3, 1))
    assert train.labels.tolist() == [k % 10 for k in range(40)]
    assert FashionMnist(root=str(tmp_path), size=32, channels=1).train().images.shape == (40, 1, 32, 32)


@pytest.mark.parametrize(
    ("raw", "word"),
    [
        (struct.pack(">4I", 0x803, 40, 28, 28) + bytes(100), "does not hold"),
        (struct.pack(">4I", 0x803, 1, 2, 2) + bytes(5), "does not hold"),
        (struct.pack(">4I", 0xD03, 40, 28, 28), "not an idx file"),
        (struct.pack(">4I", 0x803, 2**31, 2**31, 28), "impossible"),
        (b"", "not an idx file"),
        (struct.pack(">4I", 0x803, 1, 2, 2) + bytes(4), "40 labels for 1 images"),
    ],
)
def test_bad_idx_files_are_refused(tmp_path, raw, word):
    write_fashion_mnist(tmp_path / "fashion-mnist")
    path = tmp_path / "fashion-mnist" / "train-images-idx3-ubyte.gz"
    path.write_bytes(gzip.compress(raw))
    assert word in refused("train-", FashionMnist(root=str(tmp_path)).train)


def test_a_cut_or_false_gzip_is_refused(tmp_path):
    write_fashion_mnist(tmp_path / "fashion-mnist")
    path = tmp_path / "fashion-mnist" / "train-labels-idx1-ubyte.gz"
    for raw in (path.read_bytes()[:-12], b"not gzip"):
        path.write_bytes(raw)
        assert "cannot be read" in refused(path, FashionMnist(root=str(tmp_path)).train)


def test_resize_keeps_means_and_leaves_the_own_size_alone():
    images = torch.from_numpy(pixels(3, 5, 3, 32, 32))
    assert resize(images, 32) is images
    flat = torch.full((2, 3, 32, 32), 77, dtype=torch.uint8)
    assert (resize(flat, 20) == 77).all()
    assert (resize(flat, 50) == 77).all()
    stripes = torch.zeros(1, 1, 32, 32, dtype=torch.uint8)
    stripes[..., ::2] = 100
    assert (resize(stripes, 8)[..., 1:-1] == 50).all()  # antialiased


def test_the_benchmark_reads_every_image(tmp_path):
    write_cifar10(tmp_path / "cifar-10-batches-py", 30)
    assert read_and_cut(str(tmp_path)) == 6 * 30


def test_a_network_is_built_for_the_data_sets_size_and_classes(tmp_path):
    write_cifar100(tmp_path / "cifar-100-python")
    source = Cifar100(root=str(tmp_path), size=16)
    config = load_config("erm", ["model.width=2"])
    network = build_network(config, build_method(config), expects_of(source, source.train()))
    assert network(source.train().take(torch.arange(3)).floats()).shape == (3, 100)


@pytest.mark.skipif(not SHARED.is_dir(), reason="the real data is not on this machine")
def test_real_cifar(caplog):
    ten = Cifar10(root=str(SHARED))
    train, test = ten.train(), ten.test()["clean"]
    assert (len(train), len(test)) == (10_000, 10_000)
    assert torch.bincount(test.labels).tolist() == [1000] * 10
    means = test.images.double().mean((0, 2, 3))
    assert torch.allclose(means, torch.tensor([126.024, 123.708, 114.854]).double(), atol=1e-3)
    assert train.labels[:5].tolist() == [6, 9, 9, 4, 1]  # frog, truck, truck, deer, automobile
    with (SHARED / "cifar-100-python" / "train").open("rb") as stream:
        plain = pickle.load(io.BytesIO(stream.read()), encoding="bytes")
    hundred = Cifar100(root=str(SHARED)).train()
    fine = plain.get(b"fine_labels", plain.get("fine_labels"))
    data = plain.get(b"data", plain.get("data"))
    assert hundred.labels.tolist() == list(fine)
    assert np.array_equal(hundred.images.numpy().reshape(len(fine), 3072), data)
    meta = read_pickle(SHARED / "cifar-100-python" / "meta")
    assert tuple(name.decode() for name in meta["fine_label_names"]) == Cifar100().classes


def test_a_corrupted_set_finds_its_clean_one_from_within(tmp_path, monkeypatch):
    make("cifar10_c", tmp_path)
    monkeypatch.chdir(tmp_path / "CIFAR-10-C")
    assert len(Cifar10C(root=".").test()["clean"])
    monkeypatch.chdir(tmp_path)
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "CIFAR-10-C").rename(tmp_path / "elsewhere" / "set")
    (tmp_path / "CIFAR-10-C").symlink_to(tmp_path / "elsewhere" / "set")
    assert len(Cifar10C(root=str(tmp_path)).test()["clean"])
