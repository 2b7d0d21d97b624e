"""`pdeplus corrupt`: a source by its name or its folder, corrupted into files or onto a contact sheet."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, final

import numpy as np

from .._lib import registry
from .._lib.extras import require
from .._lib.progress import counting_bar
from ..corruptions._frost import describe_frost
from ..corruptions.base import SEVERITIES, Constants, fitting_constants
from ..corruptions.copies import (
    CorruptionPlan,
    Layout,
    corrupt_arrays,
    corrupt_folder,
    corrupt_labelled,
    pixels,
)
from ..corruptions.suite import SUITE, corrupt
from ..data._pictures import Picture, picture_files, read_picture
from ..data.base import Images, Source
from ..errors import UserError
from ..training.config import insert

SHEETS = (".png", ".jpg", ".jpeg", ".pdf", ".svg", ".webp")


def corrupt_source(
    source: str,
    options: Sequence[str],
    out: str,
    *,
    names: Sequence[str] | None,
    severities: Sequence[int] | None,
    constants: Constants | None,
    seed: int,
    layout: Layout | None,
    workers: int,
) -> str:
    """Write the corrupted copies and say what was written; None stands for all, or for what suits the images."""
    found = _find(source, options)
    if isinstance(found, Path) and layout == "npy":
        raise UserError("--layout npy is for data sets; a folder of pictures becomes folders of pictures")
    plan = CorruptionPlan(
        names=tuple(dict.fromkeys(names or SUITE)),
        severities=tuple(sorted(set(severities or SEVERITIES))),
        constants=constants or fitting_constants(*_first_picture(found).shape[:2]),
        seed=seed,
        workers=workers,
    )
    count = len(picture_files(found)) if isinstance(found, Path) else len(found.images)
    with counting_bar("corrupting", count * len(plan.cells), " images") as watch:
        if isinstance(found, Path):
            corrupt_folder(found, Path(out), plan, watch)
        elif (layout or ("npy" if plan.constants == "cifar" else "folders")) == "npy":
            corrupt_arrays(found.images, Path(out), plan, watch)
        else:
            corrupt_labelled(found.images, found.folders, Path(out), plan, watch)
    frost = f"; frost: {describe_frost()}" if "frost" in plan.names else ""
    return f"{out}: {count} images × {len(plan.cells)} corruptions, scale {plan.constants}, seed {seed}{frost}"


def sheet_of(source: str, options: Sequence[str], path: str, *, constants: Constants | None, seed: int) -> str:
    """Draw the source's first image under every corruption and say where."""
    if not path.lower().endswith(SHEETS):
        raise UserError(f"--sheet {path} must end with one of {', '.join(SHEETS)}")
    image = _first_picture(_find(source, options))
    draw_sheet(image, path, constants=constants or fitting_constants(*image.shape[:2]), seed=seed)
    return f"{path}; frost: {describe_frost()}"


@final
@dataclass(frozen=True)
class _TestSet:
    """A data set's own test images and the names of its classes' folders."""

    images: Images
    folders: tuple[str, ...]


def _find(source: str, options: Sequence[str]) -> _TestSet | Path:
    """The data set of this name, or the folder of pictures."""
    if Path(source).is_dir() and source not in registry.names("data"):
        if options:
            raise UserError(f"{options[0]}: a folder of pictures takes no options")
        return Path(source)
    if "/" in source or "\\" in source:
        raise UserError(f"{source}: {'this is no folder' if Path(source).exists() else 'there is no such folder'}")
    tables = dict[str, Any]()
    for option in options:
        insert(tables, option.removeprefix("data."))
    data: Source = registry.build("data", source, tables)
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


def draw_sheet(image: np.ndarray, path: str | Path, *, constants: Constants, seed: int = 0) -> None:
    """Write a picture of H×W×3 grey levels under all 19 × 5 corruptions."""
    (drawing,) = require("matplotlib.figure", purpose="a contact sheet", extra="plots")
    half = (len(SUITE) + 1) // 2
    columns = 1 + len(SEVERITIES)
    figure = drawing.Figure(figsize=(2 * columns * 0.95 + 0.4, half * 0.98 + 0.5), layout="constrained")
    halves = figure.subfigures(1, 2, wspace=0.03)
    for part, names in zip(halves, (list(SUITE)[:half], list(SUITE)[half:]), strict=True):
        axes = part.subplots(half, columns)
        for axis in axes.flat:
            axis.set_axis_off()
        for row, name in zip(axes, names, strict=False):
            _show_row(row, image, name, constants, seed)
        for axis, title in zip(axes[0], ("clean", *SEVERITIES), strict=True):
            axis.set_title(str(title), fontsize=9)
    figure.savefig(path, dpi=110)


def _show_row(row: Any, image: np.ndarray, name: str, constants: Constants, seed: int) -> None:
    row[0].imshow(image)
    for axis, severity in zip(row[1:], SEVERITIES, strict=True):
        axis.imshow(corrupt(image[None], name, severity, constants, seed)[0])
    label = name.replace("_", "\n") + ("\n(extra)" if SUITE[name].extra else "")
    row[0].text(-0.08, 0.5, label, transform=row[0].transAxes, ha="right", va="center", fontsize=7)
