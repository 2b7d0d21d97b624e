"""`pdeplus corrupt` as a user meets it."""

import errno
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from support.commands import answer


@pytest.fixture(autouse=True)
def pictures(tmp_path, monkeypatch):
    """A folder to work in, which holds a folder of pictures."""
    monkeypatch.chdir(tmp_path)
    folder = tmp_path / "my pictures"
    (folder / "größe").mkdir(parents=True)
    random = np.random.default_rng(0)
    for name, size in (("a.png", (20, 30)), ("größe/b c.jpg", (64, 40)), ("größe/d.bmp", (9, 9))):
        Image.fromarray(random.integers(0, 256, (*size, 3), dtype=np.uint8)).save(folder / name)
    return folder


def test_a_folder_and_a_data_set_with_the_constants_that_suit_their_size(capsys, tmp_path):
    code, out, err = answer(capsys, "corrupt", "my pictures", "--out", "out", "--corruption", "fog", "--severity", "1")
    assert (code, err) == (0, "")
    assert out == "out: 3 images × 1 corruption, cifar constants, seed 0\n"
    words = ["digits", "size=64", "--corruption", "contrast", "--severity", "1", "--out", "digits_c", "--seed", "3"]
    code, out, err = answer(capsys, "corrupt", *words)
    assert (code, err) == (0, "")
    assert out == "digits_c: 500 images × 1 corruption, tiny constants, seed 3\n"
    assert len(list((tmp_path / "digits_c" / "contrast" / "1").rglob("*.png"))) == 500


@pytest.mark.parametrize("flag", ["--constants", "--scale"])
def test_constants_by_both_spellings(capsys, tmp_path, flag):
    words = ["my pictures", "--out", "out", "--corruption", "frost", "--severity", "1", flag, "tiny"]
    code, out, err = answer(capsys, "corrupt", *words)
    assert (code, err) == (0, "")
    assert out.startswith("out: 3 images × 1 corruption, tiny constants, seed 0; frost: ")
    assert '"tiny"' in (tmp_path / "out" / "corruptions.json").read_text()


def test_the_sheet_is_a_picture(capsys, tmp_path):
    code, out, err = answer(capsys, "corrupt", "my pictures", "--sheet", "sheet.png")
    assert (code, err) == (0, "")
    assert out.startswith("sheet.png; frost: ")
    with Image.open(tmp_path / "sheet.png") as sheet:
        assert min(sheet.size) > 500


def test_a_sheet_is_whole_or_the_one_before(capsys, tmp_path, monkeypatch):
    def full(figure, path, **_):
        Path(path).write_bytes(b"half")
        raise OSError(errno.ENOSPC, "No space left on device")

    (tmp_path / "sheet.png").write_bytes(b"before")
    monkeypatch.setattr("matplotlib.figure.Figure.savefig", full)
    code, _, err = answer(capsys, "corrupt", "my pictures", "--sheet", "sheet.png")
    assert (code, err) == (2, "pdeplus: sheet.png cannot be written: No space left on device\n")
    assert {path.name for path in tmp_path.iterdir()} == {"my pictures", "sheet.png"}
    assert (tmp_path / "sheet.png").read_bytes() == b"before"


def test_cbar_by_its_suite(capsys, tmp_path):
    code, out, err = answer(capsys, "corrupt", "my pictures", "--suite", "cbar", "--severity", "3", "--out", "c")
    assert (code, err) == (0, "")
    assert out == "c: 3 images × 10 corruptions, cifar constants, seed 0\n"
    assert len(list((tmp_path / "c").rglob("*.png"))) == 30
    code, out, err = answer(capsys, "corrupt", "my pictures", "--suite", "cbar", "--sheet", "sheet.png")
    assert (code, out, err) == (0, "sheet.png\n", "")
    code, out, err = answer(capsys, "list", "corruptions")
    assert "\nripple                          cbar                Waves along both axes.\n" in out


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (
            ["cifar11", "--out", "out"],
            "'cifar11' is no folder here; a data set of this name is not known; did you mean 'cifar10",
        ),
        (["./nowhere", "--out", "out"], "nowhere: there is no such folder"),
        (["my pictures", "size=3", "--out", "out"], "size=3: a folder of pictures takes no options"),
        (["my pictures", "--out", "out", "--layout", "npy"], "--layout npy is for data sets"),
        (["digits", "size=x", "--out", "out"], "data.size='x' must be a whole number"),
        (["digits", "channels=1", "--out", "out"], "three channels; add channels=3"),
        (["digits", "--out", "out", "--corruption", "fgo"], "corruption 'fgo' is not known; did you mean 'fog'"),
        (["digits", "--out", "out", "--severity", "3", "9"], "severity=9 must be a whole number from 1 to 5"),
        (["digits", "data.size=16", "--out", "out", "--severity", "0", "3"], "severity=0 must be a whole number"),
        (["digits", "--out", "out", "--severity", "3"], "an array holds all five severities"),
        (["digits", "--out", "out", "--workers", "-1"], "workers=-1 must be at least 0"),
        (["digits", "--out", "out", "--scale", "huge"], "argument --scale: invalid choice: 'huge'"),
        (["digits"], "corrupt needs either --out DIR or --sheet FILE"),
        (["digits", "--sheet", "s.xyz"], "--sheet s.xyz must end with one of .png"),
        (["digits", "--sheet", "s.png", "--severity", "3"], "--sheet shows a whole suite"),
    ],
)
def test_mistakes_cost_one_line_and_exit_code_2(capsys, tmp_path, words, message):
    code, out, err = answer(capsys, "corrupt", *words)
    assert (code, out) == (2, "")
    assert err.startswith("pdeplus: ")
    assert err.count("\n") == 1
    assert message in err
    assert not (tmp_path / "out").exists()
