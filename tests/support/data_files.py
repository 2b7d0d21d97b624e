"""Small data sets in the original file formats, made on the spot, each with an exact answer."""

import gzip
import io
import pickle
import struct
import tarfile
import zipfile
from pathlib import Path

import numpy as np
from PIL import Image

SHARED = Path(__file__).parents[3] / "shared" / "data"
"""Real data, where the machine has it."""
DOMAINS = ("photo", "art_painting", "cartoon", "sketch")
WNIDS = ("n01443537", "n01629819", "n02085620")


def pixels(seed: int, *shape: int) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, 256, shape, dtype=np.uint8)


def python2_pickle(entries: dict[str, object]) -> bytes:
    """A dictionary as Python 2 pickled it with protocol 2: byte strings, numpy's old module names."""

    def text(value: bytes) -> bytes:
        short = len(value) < 256
        return (b"U" + bytes([len(value)]) if short else b"T" + struct.pack("<i", len(value))) + value

    def encode(value: object) -> bytes:
        if isinstance(value, str):
            return text(value.encode("latin1"))
        if isinstance(value, int):
            return b"J" + struct.pack("<i", value)
        if isinstance(value, list):
            return b"](" + b"".join(map(encode, value)) + b"e"
        assert isinstance(value, np.ndarray)
        made = b"cnumpy.core.multiarray\n_reconstruct\ncnumpy\nndarray\nK\x00\x85U\x01b\x87R"
        kind = b"cnumpy\ndtype\nU\x02u1K\x00K\x01\x87R(K\x03U\x01|NNNJ\xff\xff\xff\xffJ\xff\xff\xff\xffK\x00tb"
        shape = b"".join(map(encode, value.shape)) + (b"\x86" if value.ndim == 2 else b"\x85")
        return made + b"(K\x01" + shape + kind + b"\x89" + text(value.tobytes()) + b"tb"

    return b"\x80\x02}(" + b"".join(encode(key) + encode(value) for key, value in entries.items()) + b"u."


def write_cifar10(folder: Path, each: int = 20) -> None:
    """Five training files and a test file; images and labels follow from the file's number."""
    folder.mkdir(parents=True)
    for i, name in enumerate([f"data_batch_{k}" for k in range(1, 6)] + ["test_batch"]):
        entries = {"batch_label": name, "labels": [n % 10 for n in range(each)], "data": pixels(i, each, 3072)}
        (folder / name).write_bytes(python2_pickle(entries))


def write_cifar100(folder: Path) -> None:
    folder.mkdir(parents=True)
    for i, (name, n) in enumerate((("train", 200), ("test", 100))):
        fine = [k % 100 for k in range(n)]
        entries = {b"fine_labels": fine, b"coarse_labels": [0] * n, b"data": pixels(i, n, 3072)}
        (folder / name).write_bytes(pickle.dumps(entries, protocol=2))
    (folder / "meta").write_bytes(pickle.dumps({}))


def write_corrupted(folder: Path, classes: int, each: int, names: tuple[str, ...] = ("fog", "snow")) -> None:
    folder.mkdir(parents=True)
    np.save(folder / "labels.npy", np.tile(np.arange(each) % classes, 5))
    for i, name in enumerate(names):
        np.save(folder / f"{name}.npy", pixels(100 + i, 5 * each, 32, 32, 3))


def write_fashion_mnist(folder: Path, compressed: bool = True) -> None:
    folder.mkdir(parents=True)
    for i, (part, n) in enumerate((("train", 40), ("t10k", 20))):
        images = struct.pack(">4I", 0x803, n, 28, 28) + pixels(i, n, 28, 28).tobytes()
        labels = struct.pack(">2I", 0x801, n) + bytes(k % 10 for k in range(n))
        for name, raw in ((f"{part}-images-idx3-ubyte", images), (f"{part}-labels-idx1-ubyte", labels)):
            if compressed:
                (folder / f"{name}.gz").write_bytes(gzip.compress(raw))
            else:
                (folder / name).write_bytes(raw)


def write_pictures(folder: Path, n: int, seed: int, size: tuple[int, int] = (64, 64), suffix: str = ".png") -> None:
    folder.mkdir(parents=True)
    for i in range(n):
        Image.fromarray(pixels(1000 * seed + i, *size, 3)).save(folder / f"{folder.name}_{i}{suffix}")


def write_class_folders(folder: Path, classes: tuple[str, ...], n: int, seed: int, suffix: str = ".png") -> None:
    for i, name in enumerate(classes):
        write_pictures(folder / name, n, 50 * seed + i, suffix=suffix)


def write_tiny_imagenet(folder: Path) -> None:
    for i, wnid in enumerate(WNIDS):
        write_pictures(folder / "train" / wnid / "images", 4, i, suffix=".JPEG")
        (folder / "train" / wnid / f"{wnid}_boxes.txt").write_text("images_0.JPEG\t0\t0\t63\t63\n")
    write_pictures(folder / "val" / "images", 7, 90, suffix=".JPEG")
    given = [(f"images_{k}.JPEG", WNIDS[(2 * k) % 3]) for k in range(6)] + [("images_6.JPEG", "n99999999")]
    rows = "".join(f"{file}\t{wnid}\t0\t32\t44\t62\n" for file, wnid in given)
    (folder / "val" / "val_annotations.txt").write_text(rows)
    (folder / "words.txt").write_text("n01443537\tgoldfish, Carassius auratus\nn02085620\tChihuahua\n")


def make(name: str, root: Path) -> dict[str, object]:
    """Make the named data set in `root`; returns the options that read it."""
    options: dict[str, object] = {"root": str(root)}
    if name in ("clothes", "digits", "synthetic"):
        return {}
    if name.startswith("cifar10_") or name == "cifar10":
        write_cifar10(root / "cifar-10-batches-py")
    if name == "cifar10_c":
        write_corrupted(root / "CIFAR-10-C", 10, 20)
    if name.startswith("cifar100"):
        write_cifar100(root / "cifar-100-python")
    if name == "cifar100_c":
        write_corrupted(root / "CIFAR-100-C", 100, 100)
    if name == "fashion_mnist":
        write_fashion_mnist(root / "fashion-mnist")
    if name.startswith("tiny_imagenet"):
        write_tiny_imagenet(root / "tiny-imagenet-200")
    if name == "tiny_imagenet_c":
        for severity in range(1, 6):
            write_class_folders(root / "Tiny-ImageNet-C" / "fog" / str(severity), WNIDS, 2, severity, ".JPEG")
    if name == "pacs":
        for i, domain in enumerate(DOMAINS):
            write_class_folders(root / "PACS" / domain, ("dog", "house"), 5, i)
        options["size"] = 32
    if name == "image_folder":
        write_class_folders(root, ("a cat", "ein Hündchen"), 6, 0)
    return options


def tar_of(entries: dict[str, bytes], mode: str = "w:gz") -> bytes:
    """An archive of these files."""
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode=mode) as archive:
        for name, body in entries.items():
            info = tarfile.TarInfo(name)
            info.size = len(body)
            archive.addfile(info, io.BytesIO(body))
    return out.getvalue()


def zip_of(entries: dict[str, bytes]) -> bytes:
    """An archive of these files."""
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, body in entries.items():
            archive.writestr(name, body)
    return out.getvalue()
