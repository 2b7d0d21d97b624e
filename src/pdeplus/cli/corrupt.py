"""Corrupt a data set's test images or a folder of pictures, into files or onto one sheet; interrupted work resumes.

pdeplus corrupt cifar10 --out CIFAR-10-C
pdeplus corrupt my_pictures --out my_pictures_c --corruption fog snow --severity 3
pdeplus corrupt my_pictures --sheet sheet.png
pdeplus corrupt cifar10 --suite cbar --out CIFAR-10-C-bar
"""

import argparse
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import final

from .._lib import registry
from .._lib.files import aside
from .._lib.long_work import counting_bar
from .._lib.registry import require
from ..corruptions.base import SEVERITIES, Constants, fitting_constants
from ..corruptions.copies import CorruptionPlan, Layout, corrupt_arrays, corrupt_folder, corrupt_labelled, pixels
from ..corruptions.suite import KNOWN, NAMES, CorruptedSuite, corrupt
from ..corruptions.weather import describe_frost
from ..data._pictures import Picture, picture_files, read_picture
from ..data.base import Images
from ..errors import UserError, counted
from .base import add_choice, build_data

SHEETS = (".png", ".jpg", ".jpeg", ".pdf", ".svg", ".webp")


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("source", help="data set (see: pdeplus data list) or a folder of pictures")
    parser.add_argument("overrides", nargs="*", metavar="KEY=VALUE", help="the data set's options, e.g. size=64")
    parser.add_argument("--out", metavar="DIR", help="folder for the corrupted images")
    whole = "which corruptions: the fifteen common ones, these and four for validation (default), or the ten of C̄"
    add_choice(parser, "--suite", CorruptedSuite, default="all_corruptions", help=whole)
    parser.add_argument("--corruption", nargs="+", metavar="NAME", help="names of some corruptions instead")
    parser.add_argument("--severity", nargs="+", type=int, metavar="N", help="severities, 1 to 5 (default: all)")
    whose = "the benchmark whose constants to use (default: by the images' size)"
    add_choice(parser, "--constants", Constants, old="--scale", help=whose)
    parser.add_argument("--seed", type=int, default=0, metavar="N", help="seed of all randomness (default: 0)")
    layout = "how to store a data set (default: npy with the constants of cifar, else folders)"
    add_choice(parser, "--layout", Layout, help=layout)
    parser.add_argument("--workers", type=int, default=0, metavar="N", help="threads (default: one per core)")
    parser.add_argument("--sheet", metavar="FILE", help="instead draw the first image under every corruption")


def run(options: argparse.Namespace) -> None:
    """Write the corrupted images or the sheet, and print what was written."""
    if (options.out is None) == (options.sheet is None):
        raise UserError("corrupt needs either --out DIR or --sheet FILE")
    if options.sheet is not None and not options.sheet.lower().endswith(SHEETS):
        raise UserError(f"--sheet {options.sheet} must end with one of {', '.join(SHEETS)}")
    if options.sheet is not None and (options.corruption or options.severity or options.layout):
        raise UserError("--sheet shows a whole suite: leave out --corruption, --severity and --layout")
    warnings.filterwarnings("ignore", "synthetic frost stands in", UserWarning)  # the last line of the output says it
    found = _find(options.source, options.overrides)
    if isinstance(found, Path):
        files = picture_files(found)
        if not files:
            raise UserError(f"{found} holds no pictures")
        first = read_picture(files[0])
    else:
        first = pixels(found.images, [0])[0]
    constants = options.constants or fitting_constants(*first.shape[:2])
    if options.sheet is not None:
        names = NAMES[options.suite]
        draw_sheet(first, options.sheet, names, constants, options.seed)
        print(options.sheet + _frost(names))
        return
    plan = CorruptionPlan(
        names=tuple(dict.fromkeys(options.corruption or NAMES[options.suite])),
        severities=tuple(sorted(set(options.severity or SEVERITIES))),
        constants=constants,
        seed=options.seed,
        workers=options.workers,
    )
    count = _write(found, Path(options.out), plan, options.layout)
    about = (
        f"{counted(count, 'image')} × {counted(len(plan.cells), 'corruption')}, {constants} constants, seed {plan.seed}"
    )
    print(f"{options.out}: {about}{_frost(plan.names)}")


def _frost(names: Sequence[str]) -> str:
    return f"; frost: {describe_frost()}" if "frost" in names else ""


@final
@dataclass(frozen=True)
class _TestSet:
    """A data set's own test images and the names of its classes' folders."""

    images: Images
    folders: tuple[str, ...]


def _find(source: str, settings: Sequence[str]) -> _TestSet | Path:
    """The data set of this name, or the folder of pictures."""
    if Path(source).is_dir() and source not in registry.names("data"):
        if settings:
            raise UserError(f"{settings[0]}: a folder of pictures takes no options")
        return Path(source)
    if "/" in source or "\\" in source:
        raise UserError(f"{source}: {'this is not a folder' if Path(source).exists() else 'there is no such folder'}")
    data = build_data(source, settings)
    images = next(iter(data.test().values()))
    if pixels(images, [0]).shape[-1] != 3:
        raise UserError("corruptions need images of three channels; add channels=3")
    return _TestSet(images, data.class_folders)


def _write(found: _TestSet | Path, out: Path, plan: CorruptionPlan, layout: Layout | None) -> int:
    """Write the corrupted copies; returns the number of clean images."""
    if isinstance(found, Path) and layout == "npy":
        raise UserError("--layout npy is for data sets; a folder of pictures becomes folders of pictures")
    count = len(picture_files(found)) if isinstance(found, Path) else len(found.images)
    with counting_bar("corrupting", count * len(plan.cells), " images") as watch:
        if isinstance(found, Path):
            corrupt_folder(found, out, plan, watch)
        elif (layout or ("npy" if plan.constants == "cifar" else "folders")) == "npy":
            corrupt_arrays(found.images, out, plan, watch)
        else:
            corrupt_labelled(found.images, found.folders, out, plan, watch)
    return count


def draw_sheet(image: Picture, path: str, names: Sequence[str], constants: Constants, seed: int) -> None:
    """Draw a picture of H×W×3 grey levels under these corruptions at every severity."""
    (drawing,) = require("matplotlib.figure", purpose="a contact sheet", extra="plots")
    half = (len(names) + 1) // 2
    columns = 1 + len(SEVERITIES)
    figure = drawing.Figure(figsize=(2 * columns * 0.95 + 0.4, half * 0.98 + 0.5), layout="constrained")
    halves = figure.subfigures(1, 2, wspace=0.03)
    for part, shown in zip(halves, (names[:half], names[half:]), strict=True):
        axes = part.subplots(half, columns)
        for axis in axes.flat:
            axis.set_axis_off()
        for row, name in zip(axes, shown, strict=False):
            row[0].imshow(image)
            label = name.replace("_", "\n") + ("\n(extra)" if KNOWN[name].extra else "")
            row[0].text(-0.08, 0.5, label, transform=row[0].transAxes, ha="right", va="center", fontsize=7)
            for axis, severity in zip(row[1:], SEVERITIES, strict=True):
                axis.imshow(corrupt(image[None], name, severity, constants, seed)[0])
        for axis, title in zip(axes[0], ("clean", *SEVERITIES), strict=True):
            axis.set_title(str(title), fontsize=9)
    with aside(Path(path)) as written:
        figure.savefig(written, format=Path(path).suffix[1:].lower(), dpi=110)
