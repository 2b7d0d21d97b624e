"""Picture files of every kind: what a viewer would show, or one line that names the file."""

import struct
import zlib

import numpy as np
import pytest
from PIL import Image
from support.data_files import pixels

from pdeplus.data._pictures import fit_square, picture_files, read_picture
from pdeplus.errors import UserError


def png(width: int, height: int, bits: int, colour: int, raw: bytes) -> bytes:
    """A PNG file made by hand: Pillow writes no 16-bit colours and no absurd sizes."""

    def chunk(kind: bytes, body: bytes) -> bytes:
        return struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))

    header = struct.pack(">IIBBBBB", width, height, bits, colour, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", zlib.compress(raw)) + chunk(b"IEND", b"")


def test_plain_rgb_comes_back_to_the_bit(tmp_path):
    expected = pixels(0, 5, 7, 3)
    Image.fromarray(expected).save(tmp_path / "ein Bild é.png")
    assert np.array_equal(read_picture(tmp_path / "ein Bild é.png"), expected)


@pytest.mark.parametrize("suffix", [".png", ".tif", ".pgm"])
def test_16_bit_grey_is_scaled_and_not_clipped(tmp_path, suffix):
    values = np.array([[0, 65535, 257 * 100], [257 * 100 + 128, 257 * 100 + 129, 300]], dtype=np.uint16)
    if suffix == ".pgm":
        (tmp_path / "x.pgm").write_bytes(b"P5 3 2 65535\n" + values.astype(">u2").tobytes())
    else:
        Image.fromarray(values).save(tmp_path / f"x{suffix}")
    shown = read_picture(tmp_path / f"x{suffix}")
    assert shown[..., 0].tolist() == [[0, 255, 100], [100, 101, 1]]  # the nearest multiple of 257
    assert (shown == shown[..., :1]).all()


def test_16_bit_colour_is_scaled(tmp_path):
    row = b"\0" + np.array([0, 65535, 257 * 100], ">u2").tobytes()
    (tmp_path / "x.png").write_bytes(png(1, 1, 16, 2, row))
    assert read_picture(tmp_path / "x.png").tolist() == [[[0, 255, 100]]]


@pytest.mark.parametrize(
    ("mode", "colour", "expected"),
    [
        ("L", 77, (77, 77, 77)),
        ("1", 1, (255, 255, 255)),
        ("LA", (0, 0), (255, 255, 255)),
        ("RGBA", (255, 0, 0, 51), (255, 204, 204)),  # a fifth of red on white
        ("RGBA", (9, 8, 7, 255), (9, 8, 7)),
    ],
)
def test_other_modes_become_rgb_on_white(tmp_path, mode, colour, expected):
    Image.new(mode, (3, 2), colour).save(tmp_path / "x.png")
    assert (read_picture(tmp_path / "x.png") == expected).all()


def test_palette_and_its_transparency(tmp_path):
    picture = Image.new("P", (2, 2), 1)
    picture.putpalette([0, 0, 0, 10, 20, 30])
    picture.save(tmp_path / "plain.png")
    picture.save(tmp_path / "clear.png", transparency=1)
    assert (read_picture(tmp_path / "plain.png") == (10, 20, 30)).all()
    assert (read_picture(tmp_path / "clear.png") == 255).all()


def test_cmyk_is_not_inverted(tmp_path):
    Image.new("RGB", (16, 16), (200, 30, 90)).convert("CMYK").save(tmp_path / "x.jpg", quality=95)
    assert np.abs(read_picture(tmp_path / "x.jpg").astype(int) - (200, 30, 90)).max() <= 3


@pytest.mark.parametrize(("orientation", "turns"), [(1, 0), (3, 2), (6, -1), (8, 1)])
def test_exif_orientation_is_applied(tmp_path, orientation, turns):
    expected, exif = pixels(1, 4, 6, 3), Image.Exif()
    exif[0x0112] = orientation
    Image.fromarray(expected).save(tmp_path / "x.png", exif=exif)
    assert np.array_equal(read_picture(tmp_path / "x.png"), np.rot90(expected, turns))


@pytest.mark.parametrize("suffix", [".gif", ".webp", ".png"])
def test_of_an_animation_the_first_frame_counts(tmp_path, suffix):
    frames = [Image.new("RGB", (4, 4), colour) for colour in ("red", "blue")]
    frames[0].save(tmp_path / f"x{suffix}", save_all=True, append_images=frames[1:], lossless=True)
    assert (read_picture(tmp_path / f"x{suffix}") == (255, 0, 0)).all()


def _half_a_jpeg(path):
    Image.fromarray(pixels(2, 40, 40, 3)).save(path, "JPEG")
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


@pytest.mark.parametrize(
    ("write", "word"),
    [
        (lambda path: path.write_bytes(b""), "is empty"),
        (lambda path: path.write_bytes(b"not a picture"), "no picture"),
        (lambda path: path.write_bytes(png(60_000, 60_000, 8, 2, b"\0")), "more pixels"),
        (lambda path: path.write_bytes(png(8, 8, 8, 2, b"\0")), "cannot be read"),
        (_half_a_jpeg, "truncated"),
        (lambda path: Image.fromarray(np.zeros((2, 2), np.float32)).save(path, "TIFF"), "floating-point"),
        (lambda path: Image.fromarray(np.full((2, 2), 70_000, np.int32)).save(path, "TIFF"), "more than 16 bits"),
        (lambda path: None, "no such file"),
        (lambda path: path.mkdir(), "cannot be read"),
    ],
)
def test_what_cannot_be_shown_is_refused_by_name(tmp_path, write, word):
    path = tmp_path / "the picture.png"
    write(path)
    with pytest.raises(UserError, match=word) as refused:
        read_picture(path)
    assert "the picture.png" in str(refused.value)
    assert "\n" not in str(refused.value)


def test_picture_files_are_found_by_suffix_in_order_and_hidden_ones_left_out(tmp_path):
    names = ["b/2.JPG", "b/10.jpeg", "a é/x y.png", "z.webp", ".hidden.png", ".git/x.png", "notes.txt", "b/Thumbs.db"]
    for name in names:
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).touch()
    found = [str(path.relative_to(tmp_path)) for path in picture_files(tmp_path)]
    assert found == ["a é/x y.png", "b/10.jpeg", "b/2.JPG", "z.webp"]


def test_fit_square_takes_the_centre_and_keeps_means():
    wide = np.zeros((10, 30, 3), np.uint8)
    wide[:, 10:20] = 200
    assert (fit_square(wide, 10) == 200).all()
    assert (fit_square(wide, 4)[:, 1:3] == 200).all()  # at the edge its neighbours shine in: resized, then cropped
    assert fit_square(wide.transpose(1, 0, 2), 5).shape == (5, 5, 3)
    halves = np.zeros((8, 8, 3), np.uint8)
    halves[:, ::2] = 100
    assert (fit_square(halves, 1) == 50).all()  # antialiased: the mean, not a sample
