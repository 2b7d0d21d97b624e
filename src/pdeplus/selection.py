"""Model selection that does not look at the test: validation images under the four corruptions no test has."""

import torch

from .corruptions.base import SEVERITIES
from .corruptions.suite import EXTRA_CORRUPTIONS
from .data.base import Images
from .suites import corrupted

MOST = 2000
"""Images; one validation pass more an epoch is all that selection may cost."""


def shifted(validation: Images, seed: int) -> Images | None:
    """Validation images, each under one of the four extra corruptions at one severity, all in equal shares.

    None for images that are neither grey nor in colour. The same images and seed give the same pixels.
    """
    images = validation.take(torch.arange(min(len(validation), MOST)))
    pixels = images.images
    if pixels.shape[1] not in (1, 3):
        return None
    made = pixels.clone()
    cells = [(name, severity) for severity in SEVERITIES for name in EXTRA_CORRUPTIONS]
    for i, (name, severity) in enumerate(cells):
        places = range(i, len(pixels), len(cells))
        if places:
            mine = torch.tensor(places)
            made[mine] = corrupted(pixels[mine], places, name=name, severity=severity, seed=seed)
    return Images(made, images.labels)
