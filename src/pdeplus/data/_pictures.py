"""Picture files of any common kind as plain RGB arrays.

What a viewer would show is what one gets: upright, in colour, the first frame. What cannot be shown is refused by name.
"""

import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any, Literal, TypeVar, final

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image, ImageOps
from torch import Tensor
from tqdm import tqdm

from .._lib.files import sum_of
from ..augment.base import check_pixels
from ..errors import UserError, reason_of

Result = TypeVar("Result")
Picture = NDArray[np.uint8]
"""H×W×3."""
SUFFIXES = (".avif", ".bmp", ".gif", ".jfif", ".jp2", ".jpeg", ".jpg", ".pgm", ".png", ".ppm", ".tif", ".tiff", ".webp")
"""What a picture's name ends with, in lower case; other files are no pictures."""


def picture_files(folder: str | Path) -> list[Path]:
    """All picture files in a folder and the folders in it, sorted by path; hidden ones are left out.

    The order depends on the names alone. Nothing is opened.
    """

    def fail(error: OSError) -> None:
        raise error

    found = list[Path]()
    for parent, folders, names in os.walk(folder, onerror=fail):
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

    def upright(image: Image.Image) -> Picture:
        ImageOps.exif_transpose(image, in_place=True)
        return np.array(as_rgb(image), dtype=np.uint8)

    return _opened(path, upright)


def _opened(path: str | Path, read: Callable[[Image.Image], Result]) -> Result:
    """What `read` makes of an opened picture, or one line that says why it cannot be used."""
    try:
        if not os.path.getsize(path):
            raise UserError("is empty")
        with Image.open(path) as image:
            if image.width * image.height > (Image.MAX_IMAGE_PIXELS or float("inf")):
                raise Image.DecompressionBombError
            return read(image)
    except UserError as error:
        raise UserError(f"{path} {error}") from error
    except FileNotFoundError as error:
        raise UserError(f"{path}: there is no such file") from error
    except Exception as error:  # Pillow's readers raise all kinds on broken files
        raise UserError(f"{path} cannot be read as a picture: {_reason(error)}") from error


IMAGES = "images must be bytes or floats in [0, 1], N×C×H×W, C×H×W, N×H×W×C or H×W×C with 1 or 3 channels"
Interpolation = Literal["bilinear", "bicubic"]
"""How pictures are resized, antialiased where they shrink."""


def fit_square(picture: Picture, size: int, crop: float = 1.0, interpolation: Interpolation = "bilinear") -> Picture:
    """The shorter side resized to size / crop, then the centre size×size of it."""
    if picture.shape[:2] == (size, size) and crop == 1:
        return picture
    method = Image.Resampling[interpolation.upper()]
    fitted = ImageOps.fit(Image.fromarray(picture), (size, size), method, bleed=(1 - crop) / 2)
    return np.array(fitted, dtype=np.uint8)


def as_rgb(image: Image.Image) -> Image.Image:
    """The image in RGB as one would see it on white paper."""
    if image.mode.startswith("I"):
        wide = np.asarray(image).astype(np.int64)
        if wide.min() < 0 or wide.max() > 65535:
            raise UserError("has pixels of more than 16 bits, whose white is not known; save it with 8 or 16 bits")
        return Image.fromarray(((wide * 255 + 32767) // 65535).astype(np.uint8)).convert("RGB")
    if image.mode == "F":
        raise UserError("has floating-point pixels, whose white is not known; save it with 8 or 16 bits")
    if image.mode in ("LA", "La", "PA", "RGBA", "RGBa") or "transparency" in image.info:
        shown = image.convert("RGBA")
        paper = Image.new("RGBA", shown.size, "white")
        return Image.alpha_composite(paper, shown).convert("RGB")
    return image.convert("RGB")


def _reason(error: Exception) -> str:
    if isinstance(error, Image.DecompressionBombError | Image.DecompressionBombWarning):
        return "it has more pixels than Pillow's limit (PIL.Image.MAX_IMAGE_PIXELS); make it smaller"
    if isinstance(error, Image.UnidentifiedImageError):
        return "it is no picture, or of an unknown kind"
    return reason_of(error)


def as_bytes(given: Any, normalised: str) -> tuple[Tensor, Callable[[Tensor], Any]]:
    """Images of any kind as uint8 N×H×W×C, a copy, and what makes the given kind of such a tensor again.

    They are bytes or floats in [0, 1]: a PIL picture, an array (N×)H×W×C, or a tensor, also (N×)C×H×W, with one channel
    or three. `normalised` says what to do where they are not in [0, 1].
    """
    if isinstance(given, Image.Image):
        rgb = torch.from_numpy(np.array(as_rgb(given), dtype=np.uint8))
        grey = given.mode == "L"
        return rgb[None], lambda out: Image.fromarray(out[0].numpy()).convert("L" if grey else "RGB")
    if isinstance(given, Tensor):
        x, first = given.detach(), given.ndim in (3, 4) and given.shape[-3] in (1, 3) and given.shape[-1] != 3
        back: Callable[[Tensor], Any] = lambda out: out.as_subclass(type(given))  # noqa: E731
    else:
        array = np.asarray(given)
        if array.dtype.kind not in "biuf":
            raise UserError(f"{IMAGES}, not {array.dtype}")
        x, first = torch.from_numpy(np.array(array, order="C")), False
        back = lambda out: out.numpy()  # noqa: E731
    x = x.as_subclass(Tensor)
    if x.ndim not in (3, 4) or not (x.dtype == torch.uint8 or x.is_floating_point()) or 0 in x.shape[-3:]:
        raise UserError(f"{IMAGES}, not {_described(x)}")
    pixels = x.movedim(-3, -1) if first else x
    if pixels.shape[-1] not in (1, 3):
        raise UserError(f"{IMAGES}, not {_described(x)}")
    if x.is_floating_point():
        check_pixels(x, way_out=normalised)
        pixels = pixels.float().mul(255).round_().clamp_(0, 255).to(torch.uint8)
    one = x.ndim == 3

    def as_given(out: Tensor) -> Any:
        out = out[0] if one else out
        out = out.movedim(-1, -3).contiguous() if first else out
        return back(out.to(x.dtype).div_(255) if x.is_floating_point() else out)

    pixels = pixels[None] if one else pixels
    return pixels.clone(memory_format=torch.contiguous_format), as_given


def _described(x: Tensor) -> str:
    return f"{str(x.dtype).removeprefix('torch.')} {'×'.join(map(str, x.shape))}"


NAMED = 10
"""Pictures that a message names."""
MEMORY_GB = 2.0
"""What decoded pictures may take before they are streamed from disk instead."""


@final
@dataclass(frozen=True)
class Files:
    """Some of a list of picture files, as images of one size.

    Picking decodes nothing. All picks from one list share what is decoded already.
    """

    paths: Sequence[str]
    size: int
    """Side of the images; a picture's centre square is resized to it."""
    chosen: Tensor
    """Which of the paths, in which order."""
    kept: tuple[Tensor, Tensor] | None
    """Room for the images of all paths, and which of them are decoded; None for those that do not fit into memory."""
    crop: float = 1.0
    """Share of the centre square that an image shows."""
    interpolation: Interpolation = "bilinear"
    bytes: Sequence[int] = ()
    """Of each file when they were listed: one that has another number now has changed since."""
    change: Callable[[Tensor, Sequence[int]], Tensor] | None = None
    """What is done to images that are streamed, which it is given with their rows in the list."""

    @staticmethod
    def open(
        paths: Sequence[str | Path],
        size: int,
        memory_gb: float = MEMORY_GB,
        crop: float = 1.0,
        interpolation: Interpolation = "bilinear",
    ) -> "Files":
        """All of these files; their images are kept in memory once decoded if all together take `memory_gb` or less."""
        n, kept, names = len(paths), None, [str(path) for path in paths]
        if 3 * size * size * n <= memory_gb * 1e9:
            kept = torch.empty((n, 3, size, size), dtype=torch.uint8), torch.zeros(n, dtype=torch.bool)
        return Files(names, size, torch.arange(n), kept, crop, interpolation, [os.path.getsize(name) for name in names])

    def __len__(self) -> int:
        return len(self.chosen)

    def __getitem__(self, indices: Tensor) -> "Files":
        return replace(self, chosen=self.chosen[indices])

    def read(self) -> Tensor:
        """The images as uint8 N×3×size×size, decoded by several threads."""
        if self.kept is None:
            out = torch.empty((len(self), 3, self.size, self.size), dtype=torch.uint8)
            rows = [int(row) for row in self.chosen]
            refuse(self._decode(rows, out, range(len(self))))
            return out if self.change is None else self.change(out, rows)
        refuse(self._keep(self.kept, progress=False))
        return self.kept[0][self.chosen]

    def preload(self) -> list[str]:
        """Decode what memory is to hold, and open what is streamed; says of each that cannot be read why."""
        if self.kept is not None:
            return self._keep(self.kept, progress=True)

        def look(row: int) -> None:
            _opened(self.paths[row], lambda image: None)

        return _each(look, [int(row) for row in self.chosen], progress=True)

    def _keep(self, kept: tuple[Tensor, Tensor], *, progress: bool) -> list[str]:
        """Decode those that are not in memory yet."""
        images, known = kept
        missing = [int(row) for row in self.chosen[~known[self.chosen]]]
        failed = self._decode(missing, images, missing, progress=progress)
        known[missing] = not failed
        return failed

    def fingerprint(self) -> str:
        """A checksum of the names, within their folder, and the sizes of all files of the list."""
        above = len(os.path.commonpath(self.paths)) if self.paths else 0
        told = (f"{path[above:]} {size}\n" for path, size in zip(self.paths, self.bytes, strict=True))
        return sum_of("".join(told).encode(errors="surrogateescape"))

    def _decode(self, rows: Sequence[int], out: Tensor, places: Sequence[int], progress: bool = False) -> list[str]:
        """Put the images of these files into their places; says why of each that cannot be read."""

        def fill(row: int, place: int) -> None:
            if self.bytes and os.path.exists(self.paths[row]) and os.path.getsize(self.paths[row]) != self.bytes[row]:
                raise UserError(
                    f"{self.paths[row]} has changed since the folder was read; leave it alone while it is in use"
                )
            picture = read_picture(self.paths[row])
            out[place] = torch.from_numpy(fit_square(picture, self.size, self.crop, self.interpolation)).permute(
                2, 0, 1
            )

        return _each(fill, rows, places, progress=progress)


def _each(work: Callable[..., None], *arguments: Sequence[int], progress: bool) -> list[str]:
    """Do the work for each in several threads; of each that fails, in order, the reason."""

    def attempt(*one: int) -> str:
        try:
            work(*one)
        except UserError as error:
            return str(error)
        return ""

    done, quiet = _pool().map(attempt, *arguments), None if progress else True
    return [told for told in tqdm(done, "reading pictures", len(arguments[0]), leave=False, disable=quiet) if told]


def refuse(failed: Sequence[str]) -> None:
    """One error for all pictures that cannot be used, if there are any."""
    if len(failed) == 1:
        raise UserError(failed[0])
    if failed:
        more = f"; and {len(failed) - NAMED} more" if len(failed) > NAMED else ""
        raise UserError(
            f"{len(failed)} pictures cannot be used, repair or remove them: {'; '.join(failed[:NAMED])}{more}"
        )


@cache
def _pool() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(min(os.cpu_count() or 1, 16), thread_name_prefix="pictures")
