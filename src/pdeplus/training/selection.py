"""Model selection that does not look at the test: validation images under the four corruptions no test has."""

from collections.abc import Sequence
from dataclasses import replace
from typing import cast

import torch
from torch import Tensor

from ..corruptions.base import SEVERITIES, apply_planes
from ..corruptions.extra import EXTRA
from ..data._pictures import Files
from ..data.base import Images

MOST = 2000
"""Validation images under corruption: one validation pass more an epoch is all that selection may cost."""


def shifted(validation: Images, seed: int) -> Images | None:
    """Validation images, each under one of the four validation corruptions at one severity, all in equal shares.

    Selection by them does not look at the test, which has none of the four. None for images that are neither grey nor
    in colour. The same images and seed give the same pixels; those of streamed files are made again in each epoch.
    """
    images = validation.take(torch.arange(min(len(validation), MOST)))
    if isinstance(images.stored, Files) and images.stored.kept is None:
        place_of = {row: place for place, row in enumerate(cast(list[int], images.stored.chosen.tolist()))}

        def change(pixels: Tensor, rows: Sequence[int]) -> Tensor:
            return _corrupted(pixels, [place_of[row] for row in rows], seed)

        return Images(replace(images.stored, change=change), images.labels)
    pixels = images.images
    return Images(_corrupted(pixels, range(len(pixels)), seed), images.labels) if pixels.shape[1] in (1, 3) else None


def _corrupted(pixels: Tensor, places: Sequence[int], seed: int) -> Tensor:
    """The images at these places among all, each under its corruption."""
    corrupted = torch.empty_like(pixels)
    tests = [(corruption, severity) for severity in SEVERITIES for corruption in EXTRA.values()]
    for i, (corruption, severity) in enumerate(tests):
        mine = [row for row, place in enumerate(places) if place % len(tests) == i]
        if mine:
            corrupted[mine] = apply_planes(corruption, pixels[mine], [places[row] for row in mine], severity, seed)
    return corrupted
