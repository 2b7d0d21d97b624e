"""Picture files of any common kind as plain RGB arrays.

What a viewer would show is what one gets: upright, in colour, the first frame. What cannot be shown is refused by name.
"""

import os
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageOps

from .._errors import UserError

Picture = NDArray[np.uint8]
"""H×W×3."""

SUFFIXES = (".avif", ".bmp", ".gif", ".jfif", ".jp2", ".jpeg", ".jpg", ".pgm", ".png", ".ppm", ".tif", ".tiff", ".webp")
"""What a picture's name ends with, in lower case; other files are no pictures."""


def picture_files(folder: str | Path) -> list[Path]:
    """All picture files in a folder and the folders in it, sorted by path; hidden ones are left out.

    The order depends on the names alone. Nothing is opened.
    """
    found = list[Path]()
    for parent, folders, names in os.walk(folder, onerror=_raise):
        folders[:] = [name for name in folders if not name.startswith(".")]
        found += [Path(parent, name) for name in names if is_picture(name)]
    return sorted(found, key=lambda path: path.parts)


def is_picture(name: str) -> bool:
    """Whether a file of this name is taken for a picture."""
    return not name.startswith(".") and os.path.splitext(name)[1].lower() in SUFFIXES


def read_picture(path: str | Path) -> Picture:
    """A picture file as H×W×3 uint8, upright as its EXIF says.

    Grey and CMYK become RGB, 16-bit grey is scaled to 8 bits, transparency lies on white, of an animation the first
    frame counts. A file that is broken, empty or absurdly large (Pillow's limit) is refused by name.
    """
    try:
        if not os.path.getsize(path):
            raise UserError("is empty")
        with Image.open(path) as image:
            if image.width * image.height > (Image.MAX_IMAGE_PIXELS or float("inf")):
                raise Image.DecompressionBombError
            upright: Image.Image = image
            ImageOps.exif_transpose(upright, in_place=True)
            return np.array(_as_rgb(upright), dtype=np.uint8)
    except UserError as error:
        raise UserError(f"{path} {error}") from error
    except FileNotFoundError as error:
        raise UserError(f"{path}: there is no such file") from error
    except Exception as error:  # Pillow's readers raise all kinds on broken files
        raise UserError(f"{path} cannot be read as a picture: {_reason(error)}") from error


def fit_square(picture: Picture, size: int) -> Picture:
    """The shorter side resized to `size` (bilinear, antialiased when it shrinks), then the centre size×size of it."""
    if picture.shape[:2] == (size, size):
        return picture
    fitted = ImageOps.fit(Image.fromarray(picture), (size, size), Image.Resampling.BILINEAR)
    return np.array(fitted, dtype=np.uint8)


def _as_rgb(image: Image.Image) -> Image.Image:
    """The image in RGB as one would see it on white paper."""
    if image.mode.startswith("I"):
        return _from_16_bits(np.asarray(image)).convert("RGB")
    if image.mode == "F":
        raise UserError("has floating-point pixels, whose white is not known; save it with 8 or 16 bits")
    if image.mode in ("LA", "La", "PA", "RGBA", "RGBa") or "transparency" in image.info:
        shown = image.convert("RGBA")
        paper = Image.new("RGBA", shown.size, "white")
        return Image.alpha_composite(paper, shown).convert("RGB")
    return image.convert("RGB")


def _from_16_bits(values: NDArray[Any]) -> Image.Image:
    """Grey of 0..65535 as grey of 0..255, rounded to the nearest."""
    wide = values.astype(np.int64)
    if wide.min() < 0 or wide.max() > 65535:
        raise UserError("has pixels of more than 16 bits, whose white is not known; save it with 8 or 16 bits")
    return Image.fromarray(((wide * 255 + 32767) // 65535).astype(np.uint8))


def _reason(error: Exception) -> str:
    if isinstance(error, Image.DecompressionBombError | Image.DecompressionBombWarning):
        return "it has more pixels than Pillow's limit (PIL.Image.MAX_IMAGE_PIXELS); make it smaller"
    if isinstance(error, Image.UnidentifiedImageError):
        return "it is no picture, or of an unknown kind"
    return " ".join(str(error).split()) or type(error).__name__


def _raise(error: OSError) -> None:
    raise error
