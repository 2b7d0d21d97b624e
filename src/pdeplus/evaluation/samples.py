"""Sample images of an evaluation, to look at: some of each corruption, and those that it made wrong."""

import base64
import io
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from PIL import Image
from torch import Tensor

from .._lib.files import write_file
from .records import Record
from .test_sets import TestSet

SAMPLES_FILE = "samples.json"
THUMBNAIL = 96
"""Side in pixels above which a sample is kept smaller."""


def shown_severities(sets: Sequence[TestSet]) -> tuple[int, ...]:
    """Samples are clean ones and those in the middle of the range of severities."""
    found = sorted({test.severity for test in sets if test.severity})
    return (0, found[len(found) // 2]) if found else (0,)


def samples_of(
    test: TestSet,
    x: Tensor,
    probabilities: Tensor,
    labels: Tensor,
    classes: Sequence[str],
    clean: tuple[TestSet, Record] | None,
) -> list[dict[str, Any]]:
    """The first image of the first batch `x`, the first in it that was taken for something else, and the worst flip.

    That is the image that was right when clean and is now wrong with the most confidence; its clean version comes with
    it. None of images that are neither grey nor in colour.
    """
    if x.shape[1] not in (1, 3):
        return []
    confidence, predicted = probabilities.max(-1)
    wrong = predicted != labels
    chosen = dict.fromkeys([0, *(int(i) for i in wrong[: len(x)].nonzero()[:1])])
    images: dict[int, tuple[Tensor, Tensor | None]] = {i: (x[i], None) for i in chosen}
    if clean is not None and len(clean[1].right) == len(labels):
        flipped = wrong & torch.from_numpy(clean[1].right)
        if flipped.any():
            i = int((confidence * flipped).argmax())
            before, same = (one.read().take(torch.tensor([i])) for one in (clean[0], test))
            images[i] = (same.floats() if test.change is None else test.change(same, [i]))[0], before.floats()[0]
    return [
        {
            "corruption": test.corruption,
            "severity": test.severity,
            "index": i,
            "label": _name(labels[i], classes),
            "prediction": _name(predicted[i], classes),
            "confidence": round(float(confidence[i]), 4),
            "png": _png(image),
            "before": "" if before is None else _png(before),
        }
        for i, (image, before) in images.items()
    ]


def add_samples(path: Path, about: str, samples: list[dict[str, Any]]) -> None:
    """Add to the samples that this evaluation left in the file; those of another, or damaged ones, are replaced."""
    try:
        content = json.loads(path.read_bytes())
        earlier = list[dict[str, Any]](content["images"]) if content["about"] == about else []
    except (OSError, ValueError, LookupError, TypeError, RecursionError):
        earlier = []
    new = {(image["corruption"], image["severity"]) for image in samples}
    kept = [image for image in earlier if (image["corruption"], image["severity"]) not in new]
    write_file(path, json.dumps({"about": about, "images": [*kept, *samples]}).encode())


def _name(label: Tensor, classes: Sequence[str]) -> str:
    return classes[int(label)].partition(", ")[0] if label < len(classes) else str(int(label))


def _png(image: Tensor) -> str:
    """Floats C×H×W in [0, 1] as PNG, base64; a large image becomes smaller."""
    array = image.mul(255).round().to(torch.uint8).permute(1, 2, 0).contiguous().numpy()
    picture = Image.fromarray(array[..., 0] if array.shape[-1] == 1 else array)
    picture.thumbnail((THUMBNAIL, THUMBNAIL), Image.Resampling.BICUBIC)
    buffer = io.BytesIO()
    picture.save(buffer, "PNG")
    return base64.b64encode(buffer.getvalue()).decode()
