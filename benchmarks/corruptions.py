"""All 19 × 5 corruptions on one core, against the CPU time that the reference generator took for the same work."""

import time
import warnings
from collections.abc import Iterator
from functools import partial

from torch import Tensor

from pdeplus._lib.seeds import generator_for
from pdeplus.corruptions.base import SEVERITIES, Constants
from pdeplus.corruptions.suite import SUITE, corrupt
from pdeplus.data.synthetic import draw
from pdeplus.theory._numerics import one_thread

from ._results import Effort, Result, Row
from ._timing import take_turns

SCALES: tuple[tuple[Constants, int, int, float], ...] = (("cifar", 32, 500, 181.0), ("tiny", 64, 200, 564.6))
"""Side and number of images; of the reference (hendrycks/robustness at 8190fe32, one thread) CPU ms for all 19 × 5 of
an image, ImageMagick included."""


def measure(effort: Effort) -> Iterator[Result]:
    """A table for each scale."""
    for scale, size, images, reference in SCALES:
        yield _measure(scale, size, 4 if effort.quick else images, reference, effort.turns(3))


def _measure(scale: Constants, size: int, images: int, reference: float, rounds: int) -> Result:
    pixels = draw("photo", images, size, generator_for(0, "bench")).images.permute(0, 2, 3, 1).contiguous()
    arms = {name: partial(_all_severities, pixels, name, scale) for name in SUITE}
    with warnings.catch_warnings(), one_thread():
        warnings.simplefilter("ignore", UserWarning)  # made ice costs what pictures cost
        seconds = take_turns(arms, rounds, time.process_time)
    each = {name: 1000 * value / images for name, value in seconds.items()}
    total = sum(each.values())
    rows = [Row(name=k, figure=v, unit="ms/image", ratio=v / total, against="× all") for k, v in each.items()]
    rows.append(Row(name="reference generator", figure=reference, unit="ms/image"))
    faster, aim = reference / total, "≥ 20"
    rows.append(Row(name="all", figure=total, unit="ms/image", ratio=faster, against="= reference ÷ all", aim=aim))
    title = f"corruptions, scale {scale}, {size} px, {images} images, five severities of each, CPU time of one core"
    return Result(title=title, rows=tuple(rows), rounds=rounds)


def _all_severities(pixels: Tensor, name: str, scale: Constants) -> None:
    for severity in SEVERITIES:
        corrupt(pixels, name, severity, scale)
