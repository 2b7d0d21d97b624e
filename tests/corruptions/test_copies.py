"""Corrupted copies: the published layouts, killed at any moment and resumed, and what is refused."""

import json
import os
import time
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from support.forkserver import finish, start

from pdeplus._lib.files import TEMPORARY
from pdeplus.corruptions import copies
from pdeplus.corruptions.copies import CorruptionPlan, corrupt_arrays, corrupt_folder, corrupt_labelled
from pdeplus.corruptions.suite import corrupt
from pdeplus.data._reading import corruption_names, read_corrupted
from pdeplus.data.base import Images
from pdeplus.errors import UserError


@pytest.fixture
def images() -> Images:
    random = np.random.default_rng(0)
    pixels = torch.from_numpy(random.integers(0, 256, (23, 3, 12, 12), dtype=np.uint8))
    return Images(pixels, torch.arange(23) % 4)


@pytest.fixture
def small_blocks(monkeypatch):
    monkeypatch.setattr(copies, "BLOCK_VALUES", 5 * 12 * 12 * 3)


def silent(n: int) -> None:
    pass


def expected_array(images: Images, name: str, seed: int = 0) -> np.ndarray:
    pixels = images.images.permute(0, 2, 3, 1).contiguous().numpy()
    return np.concatenate([corrupt(pixels, name, severity, "cifar", seed) for severity in range(1, 6)])


@pytest.mark.usefixtures("small_blocks")
@pytest.mark.parametrize("workers", [1, 3])
def test_arrays_are_the_published_layout(images, tmp_path, workers):
    done = []
    plan = CorruptionPlan(names=("fog", "snow"), constants="cifar", seed=7, workers=workers)
    corrupt_arrays(images, tmp_path / "C", plan, done.append)
    assert sum(done) == 2 * 5 * 23
    written = {p.name for p in (tmp_path / "C").iterdir()} - {"corruptions.json.lock"}
    assert written == {"corruptions.json", "fog.npy", "labels.npy", "snow.npy"}
    for name in plan.names:
        assert np.array_equal(np.load(tmp_path / "C" / f"{name}.npy"), expected_array(images, name, 7))
    assert np.load(tmp_path / "C" / "labels.npy").tolist() == images.labels.tolist() * 5
    assert json.loads((tmp_path / "C" / "corruptions.json").read_text())["scale"] == "cifar"  # as in older folders
    assert torch.get_num_threads() > 0


@pytest.mark.usefixtures("small_blocks")
@pytest.mark.parametrize("left", [0, 5, 128, 128 + 432 * 7 + 100, 128 + 432 * 60, 128 + 432 * 115])
def test_an_unfinished_array_goes_on(images, tmp_path, left):
    """Cut off anywhere: in the header, within an image, at the end."""
    plan = CorruptionPlan(names=("fog",), constants="cifar")
    corrupt_arrays(images, tmp_path, plan, silent)
    whole = (tmp_path / "fog.npy").read_bytes()
    (tmp_path / "fog.npy").unlink()
    (tmp_path / "fog.npy.part").write_bytes(whole[:left])
    done = []
    corrupt_arrays(images, tmp_path, plan, done.append)
    assert (tmp_path / "fog.npy").read_bytes() == whole
    assert not (tmp_path / "fog.npy.part").exists()
    assert sum(done) == 115


def test_what_is_there_is_not_made_again(images, tmp_path, monkeypatch):
    plan = CorruptionPlan(names=("contrast",), constants="cifar")
    corrupt_arrays(images, tmp_path, plan, silent)
    monkeypatch.setattr(copies, "corrupt", None)
    corrupt_arrays(images, tmp_path, plan, silent)


@pytest.mark.parametrize(
    ("change", "message"),
    [({"seed": 1}, "was made with seed=0, not 1"), ({"constants": "tiny"}, "was made with constants=cifar, not tiny")],
)
def test_other_settings_are_refused(images, tmp_path, change, message):
    settings = {"names": ("contrast",), "constants": "cifar", "seed": 0}
    corrupt_arrays(images, tmp_path, CorruptionPlan(**settings), silent)
    with pytest.raises(UserError, match=f"{message}; choose another --out"):
        corrupt_arrays(images, tmp_path, CorruptionPlan(**settings | change), silent)


def test_other_images_are_refused(images, tmp_path):
    plan = CorruptionPlan(names=("contrast",), constants="cifar")
    corrupt_arrays(images, tmp_path, plan, silent)
    with pytest.raises(UserError, match="was made with sha256="):
        corrupt_arrays(Images(255 - images.images, images.labels), tmp_path, plan, silent)
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis.txt").write_text("precious")
    with pytest.raises(UserError, match="holds other files; choose an empty folder"):
        corrupt_arrays(images, tmp_path / "mine", plan, silent)


def test_one_folder_holds_one_set(images, pictures, tmp_path):
    plan = CorruptionPlan(names=("contrast",), constants="cifar")
    corrupt_arrays(images, tmp_path / "out", plan, silent)
    with pytest.raises(UserError, match="was made with layout=npy, not folders"):
        corrupt_labelled(images, "abcd", tmp_path / "out", plan, silent)
    corrupt_folder(pictures, tmp_path / "mirror", plan, silent)
    (tmp_path / "other").mkdir()
    Image.new("RGB", (5, 5)).save(tmp_path / "other" / "a.png")
    with pytest.raises(UserError, match="was made with folder=.*my pictures, not .*other"):
        corrupt_folder(tmp_path / "other", tmp_path / "mirror", plan, silent)


def test_changed_pixels_are_noticed_wherever_they_are(images, tmp_path):
    plan = CorruptionPlan(names=("contrast",), constants="cifar")
    corrupt_arrays(images, tmp_path, plan, silent)
    changed = images.images.clone()
    changed[22, 0, 0, 0] ^= 1
    with pytest.raises(UserError, match="was made with sha256="):
        corrupt_arrays(Images(changed, images.labels), tmp_path, plan, silent)


def test_an_unfinished_set_is_not_read(images, tmp_path):
    def stop(n: int) -> None:
        raise KeyboardInterrupt

    plan = CorruptionPlan(names=("contrast", "fog"), constants="cifar")
    with pytest.raises(KeyboardInterrupt):
        corrupt_arrays(images, tmp_path, plan, stop)
    with pytest.raises(UserError, match="is unfinished \\(contrast is missing\\); repeat the same pdeplus corrupt"):
        corruption_names(tmp_path)
    corrupt_arrays(images, tmp_path, plan, silent)
    assert corruption_names(tmp_path) == ["contrast", "fog"]
    read = read_corrupted(tmp_path, "fog", 2, classes="abcd")
    assert np.array_equal(read.images.permute(0, 2, 3, 1), expected_array(images, "fog")[23:46])


def test_a_kill_before_the_first_manifest_is_whole(images, tmp_path):
    (tmp_path / "corruptions.json.tmp").write_bytes(b"{")
    (tmp_path / f"{TEMPORARY}0123").write_bytes(b"{")
    corrupt_arrays(images, tmp_path, CorruptionPlan(names=("contrast",), constants="cifar"), silent)
    (tmp_path / "corruptions.json").write_bytes(b"{")
    with pytest.raises(UserError, match="corruptions.json is damaged"):
        corrupt_arrays(images, tmp_path, CorruptionPlan(names=("contrast",), constants="cifar"), silent)


def test_a_folder_in_use_is_refused(images, tmp_path):
    plan = CorruptionPlan(names=("contrast",), constants="cifar")

    def meanwhile(n: int) -> None:
        with pytest.raises(UserError, match="is being written by another process"):
            corrupt_arrays(images, tmp_path, plan, silent)

    corrupt_arrays(images, tmp_path, plan, meanwhile)


def test_labelled_folders(images, tmp_path):
    folders = ("a b", "ä", "c", "d")
    plan = CorruptionPlan(names=("fog",), severities=(2, 4), constants="cifar", seed=1)
    corrupt_labelled(images, folders, tmp_path / "C", plan, silent)
    made = sorted((tmp_path / "C" / "fog").rglob("*.png"))
    assert len(made) == 2 * 23
    fifth = np.asarray(Image.open(tmp_path / "C" / "fog" / "4" / "ä" / "05.png"))
    assert np.array_equal(fifth, expected_array(images, "fog", 1)[3 * 23 + 5])


@pytest.fixture
def pictures(tmp_path) -> Path:
    folder = tmp_path / "my pictures"
    (folder / "größe").mkdir(parents=True)
    random = np.random.default_rng(0)
    for name, size in (("a.png", (20, 30)), ("größe/b c.jpg", (64, 40)), ("größe/d.bmp", (9, 9))):
        Image.fromarray(random.integers(0, 256, (*size, 3), dtype=np.uint8)).save(folder / name)
    (folder / "notes.txt").write_text("not a picture")
    return folder


def contents(folder: Path) -> dict[str, bytes]:
    return {str(p.relative_to(folder)): p.read_bytes() for p in sorted(folder.rglob("*.png"))}


def test_a_folder_is_mirrored(pictures, tmp_path):
    plan = CorruptionPlan(names=("gaussian_noise", "fog"), severities=(3,), constants="tiny")
    corrupt_folder(pictures, tmp_path / "out", plan, silent)
    made = contents(tmp_path / "out")
    assert set(made) == {f"{name}/3/{p}.png" for name in plan.names for p in ("a", "größe/b c", "größe/d")}
    (pictures / "a.png").unlink()  # a picture's result does not depend on the others
    Image.new("RGB", (5, 5)).save(pictures / "0.png")
    corrupt_folder(pictures, tmp_path / "again", plan, silent)
    again = contents(tmp_path / "again")
    assert {k: again[k] for k in set(made) & set(again)} == {k: made[k] for k in made if not k.endswith("/a.png")}


def test_a_changed_picture_is_done_again(pictures, tmp_path):
    plan = CorruptionPlan(names=("contrast",), severities=(3,), constants="cifar")
    corrupt_folder(pictures, tmp_path / "out", plan, silent)
    Image.new("RGB", (7, 7), (9, 9, 9)).save(pictures / "a.png")
    later = time.time() + 5
    os.utime(pictures / "a.png", (later, later))
    corrupt_folder(pictures, tmp_path / "out", plan, silent)
    with Image.open(tmp_path / "out" / "contrast" / "3" / "a.png") as image:
        assert image.size == (7, 7)


def test_names_of_any_bytes_and_length(tmp_path):
    folder = tmp_path / "odd"
    folder.mkdir()
    image = Image.new("RGB", (5, 5), (1, 2, 3))
    image.save(folder / ("n" * 250 + ".png"))
    with open(os.fsencode(folder) + b"/x\xe9.png", "wb") as file:
        image.save(file, "PNG")
    corrupt_folder(folder, tmp_path / "out", CorruptionPlan(names=("fog",), severities=(1,), constants="cifar"), silent)
    assert len(list((tmp_path / "out" / "fog" / "1").iterdir())) == 2


def test_a_half_mirrored_folder_goes_on(pictures, tmp_path):
    plan = CorruptionPlan(names=("fog", "snow"), severities=(1, 2), constants="cifar")
    corrupt_folder(pictures, tmp_path / "out", plan, silent)
    made = contents(tmp_path / "out")
    (tmp_path / "out" / "fog" / "2" / "a.png").unlink()
    (tmp_path / "out" / "snow" / "1" / "größe" / "d.png").write_bytes(b"")  # as after a power cut
    (tmp_path / "out" / "snow" / "2" / "a.png.tmp").write_bytes(b"half")
    corrupt_folder(pictures, tmp_path / "out", plan, silent)
    assert contents(tmp_path / "out") == made


def test_what_a_folder_may_not_be(pictures, tmp_path):
    plan = CorruptionPlan(names=("fog",), constants="cifar")
    with pytest.raises(UserError, match="lies in .*my pictures; the corrupted pictures need a folder of their own"):
        corrupt_folder(pictures, pictures / "out", plan, silent)
    Image.new("RGB", (5, 5)).save(pictures / "a.gif")
    with pytest.raises(UserError, match=r"a\.gif and .*a\.png would both become a\.png; rename one"):
        corrupt_folder(pictures, tmp_path / "out", plan, silent)
    (pictures / "a.gif").write_bytes(b"broken")
    (pictures / "a.png").unlink()
    with pytest.raises(UserError, match=r"a\.gif cannot be read as a picture"):
        corrupt_folder(pictures, tmp_path / "out", plan, silent)
    (tmp_path / "empty").mkdir()
    with pytest.raises(UserError, match="empty holds no pictures"):
        corrupt_folder(tmp_path / "empty", tmp_path / "out2", plan, silent)


def test_killed_and_called_again(tmp_path):
    """A real process, killed in the middle of an array; what it ends with are the bytes of an undisturbed one."""
    command = ["corrupt", "digits", "--corruption", "shot_noise", "contrast", "--out"]
    finish(start(*command, "whole", cwd=tmp_path), tmp_path)
    part = tmp_path / "killed" / "shot_noise.npy.part"
    process = start(*command, "killed", cwd=tmp_path)
    deadline = time.monotonic() + 200
    while (
        process.exitcode is None and time.monotonic() < deadline and not (part.exists() and part.stat().st_size > 10**6)
    ):
        time.sleep(0.001)
    process.kill()
    process.join()
    assert part.exists()
    finish(start(*command, "killed", cwd=tmp_path), tmp_path)
    for path in (tmp_path / "whole").iterdir():
        assert (tmp_path / "killed" / path.name).read_bytes() == path.read_bytes()
    assert json.loads((tmp_path / "killed" / "corruptions.json").read_text())["images"] == 500
