"""Model selection that does not look at the test: validation images under the four corruptions no test has."""

import torch

from ..corruptions.base import SEVERITIES, apply_planes
from ..corruptions.extra import EXTRA
from ..data.base import Images

MOST = 2000
"""Validation images under corruption: one validation pass more an epoch is all that selection may cost."""


def shifted(validation: Images, seed: int) -> Images | None:
    """Validation images, each under one of the four validation corruptions at one severity, all in equal shares.

    Selection by them does not look at the test, which has none of the four. None for images that are neither grey nor
    in colour. The same images and seed give the same pixels.
    """
    images = validation.take(torch.arange(min(len(validation), MOST)))
    pixels = images.images
    if pixels.shape[1] not in (1, 3):
        return None
    corrupted = pixels.clone()
    tests = [(corruption, severity) for severity in SEVERITIES for corruption in EXTRA.values()]
    for i, (corruption, severity) in enumerate(tests):
        places = range(i, len(pixels), len(tests))
        if places:
            mine = torch.tensor(places)
            corrupted[mine] = apply_planes(corruption, pixels[mine], places, severity, seed)
    return Images(corrupted, images.labels)
