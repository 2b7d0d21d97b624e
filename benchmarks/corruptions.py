"""All 19 × 5 corruptions and C̄'s 10 × 5 on one core, against the CPU time recorded of their reference generators."""

import time
import warnings
from collections.abc import Iterator
from functools import partial

from torch import Tensor

from pdeplus._lib.environment import one_thread
from pdeplus._lib.seeds import generator_for
from pdeplus.corruptions.base import SEVERITIES, Constants
from pdeplus.corruptions.suite import CBAR, SUITE, corrupt
from pdeplus.data.synthetic import draw

from .results import Effort, Result, take_turns

SIZES: tuple[tuple[Constants, int, int, float], ...] = (("cifar", 32, 500, 181.0), ("tiny", 64, 200, 564.6))
"""Constants, side and number of images; CPU ms that the reference (hendrycks/robustness at 8190fe32, one thread,
ImageMagick included) took for all 19 × 5 of an image."""
CBAR_REFERENCE = 698.6
"""CPU ms that C̄'s reference (facebookresearch/augmentation-corruption, one thread) took for all 10 × 5 of an image of
32 pixels: a recorded figure, of 64 CIFAR-10 images, three seeds."""
ALL, REFERENCE = "all", "reference generator"

WORK = "five severities of each, CPU time of one core"


def measure(effort: Effort) -> Iterator[Result]:
    """A table for each size."""
    rounds = effort.turns(3)
    for constants, size, usual, reference in SIZES:
        images = 4 if effort.quick else usual
        each = _each(tuple(SUITE), constants, size, images, rounds)
        figures = each | {ALL: sum(each.values()), REFERENCE: reference}
        title = f"corruptions, {constants}, {size} px, {images} images, {WORK}"
        yield Result(title, figures, "ms/image", ALL, {REFERENCE: "≥ 20"}, rounds)
    images = 4 if effort.quick else 500
    each = _each(CBAR, "cifar", 32, images, rounds)
    figures = each | {ALL: sum(each.values()), f"{REFERENCE} (recorded)": CBAR_REFERENCE}
    title = f"C̄, 32 px, {images} images, {WORK}"
    yield Result(title, figures, "ms/image", ALL, {f"{REFERENCE} (recorded)": "≥ 50"}, rounds)


def _each(names: tuple[str, ...], constants: Constants, size: int, images: int, rounds: int) -> dict[str, float]:
    """Milliseconds for an image of each corruption at all severities."""
    pixels = draw("photo", images, size, generator_for(0, "bench")).images.permute(0, 2, 3, 1).contiguous()
    arms = {name: partial(_all_severities, pixels, name, constants) for name in names}
    with warnings.catch_warnings(), one_thread():
        warnings.simplefilter("ignore", UserWarning)  # synthetic frost costs what pictures cost
        seconds = take_turns(arms, rounds, time.process_time)
    return {name: 1000 * value / images for name, value in seconds.items()}


def _all_severities(pixels: Tensor, name: str, constants: Constants) -> None:
    for severity in SEVERITIES:
        corrupt(pixels, name, severity, constants)
