"""A few test images with what a model says of them, for the report."""

import base64
import io
import json
from pathlib import Path
from typing import Any, final

from PIL import Image
from torch import Tensor

from ._checkpoint import write_file
from .data.base import Images

FILE = "samples.json"
SEVERITIES = (0, 3)
"""Shown are clean images and those in the middle of the range."""


@final
class SampleGrid:
    """Collects the first image of each test set and the first that was taken for something else.

    Written into a folder beside the records as they come; without a folder it does nothing, nor with
    images that are neither grey nor in colour.
    """

    def __init__(self, folder: Path | None, classes: tuple[str, ...] = (), about: str = "") -> None:
        self._path = folder / FILE if folder is not None else None
        self._classes, self._about = classes, about
        self._images = list[dict[str, Any]]()

    def add(self, corruption: str, severity: int, batch: Images, probabilities: Tensor) -> None:
        """Look at the first batch of a test set."""
        if self._path is None or severity not in SEVERITIES or batch.images.shape[1] not in (1, 3):
            return
        confidence, predicted = probabilities.max(-1)
        wrong = [int(i) for i in (predicted != batch.labels).nonzero()[:1]]
        for i in dict.fromkeys([0, *wrong]):
            self._images.append(
                {
                    "corruption": corruption,
                    "severity": severity,
                    "index": i,
                    "label": self._name(int(batch.labels[i])),
                    "prediction": self._name(int(predicted[i])),
                    "confidence": round(float(confidence[i]), 4),
                    "png": _png(batch.images[i]),
                }
            )

    def write(self) -> None:
        """Add what was collected to what this evaluation left earlier; what others left makes room."""
        if self._path is None or not self._images:
            return
        cells = {(image["corruption"], image["severity"]) for image in self._images}
        earlier = read_samples(self._path, self._about)
        kept = [image for image in earlier if (image["corruption"], image["severity"]) not in cells]
        write_file(self._path, json.dumps({"about": self._about, "images": [*kept, *self._images]}).encode())
        self._images.clear()

    def _name(self, label: int) -> str:
        return self._classes[label] if label < len(self._classes) else str(label)


def read_samples(path: Path, about: str) -> list[dict[str, Any]]:
    """What a file holds of samples of that evaluation; a missing or damaged one holds nothing."""
    try:
        content = json.loads(path.read_bytes())
        return list(content["images"]) if content["about"] == about else []
    except (OSError, ValueError, LookupError, TypeError):
        return []


def _png(pixels: Tensor) -> str:
    """uint8 C×H×W as PNG, base64."""
    array = pixels.permute(1, 2, 0).contiguous().numpy()
    buffer = io.BytesIO()
    Image.fromarray(array[..., 0] if array.shape[-1] == 1 else array).save(buffer, "PNG")
    return base64.b64encode(buffer.getvalue()).decode()
