"""`pdeplus corrupt`: a source by its name or its folder, corrupted into files or onto a contact sheet."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, final

from . import _registry
from ._errors import UserError
from ._progress import counting_bar
from .config import insert
from .corruptions._frost import describe_frost
from .corruptions._sheet import draw_sheet
from .corruptions.base import SEVERITIES, Scale
from .corruptions.suite import SUITE
from .data._pictures import Picture, picture_files, read_picture
from .data.base import Images, Source
from .generate import Layout, Recipe, corrupt_arrays, corrupt_folder, corrupt_labelled, fitting_scale, pixels

SHEETS = (".png", ".jpg", ".jpeg", ".pdf", ".svg", ".webp")


def corrupt_source(
    source: str,
    options: Sequence[str],
    out: str,
    *,
    names: Sequence[str] | None,
    severities: Sequence[int] | None,
    scale: Scale | None,
    seed: int,
    layout: Layout | None,
    workers: int,
) -> str:
    """Write the corrupted copies and say what was written; None stands for all, or for what suits the images."""
    found = _find(source, options)
    if isinstance(found, Path) and layout == "npy":
        raise UserError("--layout npy is for data sets; a folder of pictures becomes folders of pictures")
    recipe = Recipe(
        names=tuple(dict.fromkeys(names or SUITE)),
        severities=tuple(sorted(set(severities or SEVERITIES))),
        scale=scale or fitting_scale(*_first_picture(found).shape[:2]),
        seed=seed,
        workers=workers,
    )
    count = len(picture_files(found)) if isinstance(found, Path) else len(found.images)
    with counting_bar("corrupting", count * len(recipe.cells), " images") as watch:
        if isinstance(found, Path):
            corrupt_folder(found, Path(out), recipe, watch)
        elif (layout or ("npy" if recipe.scale == "cifar" else "folders")) == "npy":
            corrupt_arrays(found.images, Path(out), recipe, watch)
        else:
            corrupt_labelled(found.images, found.folders, Path(out), recipe, watch)
    frost = f"; frost: {describe_frost()}" if "frost" in recipe.names else ""
    return f"{out}: {count} images × {len(recipe.cells)} corruptions, scale {recipe.scale}, seed {seed}{frost}"


def sheet_of(source: str, options: Sequence[str], path: str, *, scale: Scale | None, seed: int) -> str:
    """Draw the source's first image under every corruption and say where."""
    if not path.lower().endswith(SHEETS):
        raise UserError(f"--sheet {path} must end with one of {', '.join(SHEETS)}")
    image = _first_picture(_find(source, options))
    draw_sheet(image, path, scale=scale or fitting_scale(*image.shape[:2]), seed=seed)
    return f"{path}; frost: {describe_frost()}"


@final
@dataclass(frozen=True)
class _TestSet:
    """A data set's own test images and the names of its classes' folders."""

    images: Images
    folders: tuple[str, ...]


def _find(source: str, options: Sequence[str]) -> _TestSet | Path:
    """The data set of this name, or the folder of pictures."""
    if Path(source).is_dir() and source not in _registry.names("data"):
        if options:
            raise UserError(f"{options[0]}: a folder of pictures takes no options")
        return Path(source)
    if "/" in source or "\\" in source:
        raise UserError(f"{source}: {'this is no folder' if Path(source).exists() else 'there is no such folder'}")
    tables = dict[str, Any]()
    for option in options:
        insert(tables, option.removeprefix("data."))
    data: Source = _registry.build("data", source, tables)
    images = next(iter(data.test().values()))
    if pixels(images, [0]).shape[-1] != 3:
        raise UserError("corruptions need images of three channels; add channels=3")
    return _TestSet(images, data.class_folders)


def _first_picture(found: _TestSet | Path) -> Picture:
    if isinstance(found, _TestSet):
        return pixels(found.images, [0])[0]
    files = picture_files(found)
    if not files:
        raise UserError(f"{found} holds no pictures")
    return read_picture(files[0])
