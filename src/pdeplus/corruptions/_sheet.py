"""A contact sheet: one image under every corruption at every severity."""

from pathlib import Path
from typing import Any

import numpy as np

from .base import SEVERITIES, Scale
from .suite import SUITE, corrupt


def draw_sheet(image: np.ndarray, path: str | Path, *, scale: Scale, seed: int = 0) -> None:
    """Write a picture of H×W×3 grey levels under all 19 × 5 corruptions."""
    from matplotlib.figure import Figure

    half = (len(SUITE) + 1) // 2
    columns = 1 + len(SEVERITIES)
    figure = Figure(figsize=(2 * columns * 0.95 + 0.4, half * 0.98 + 0.5), layout="constrained")
    halves: Any = figure.subfigures(1, 2, wspace=0.03)
    for part, names in zip(halves, (list(SUITE)[:half], list(SUITE)[half:]), strict=True):
        axes = part.subplots(half, columns)
        for axis in axes.flat:
            axis.set_axis_off()
        for row, name in zip(axes, names, strict=False):
            _show_row(row, image, name, scale, seed)
        for axis, title in zip(axes[0], ("clean", *SEVERITIES), strict=True):
            axis.set_title(str(title), fontsize=9)
    figure.savefig(path, dpi=110)


def _show_row(row: Any, image: np.ndarray, name: str, scale: Scale, seed: int) -> None:
    row[0].imshow(image)
    for axis, severity in zip(row[1:], SEVERITIES, strict=True):
        axis.imshow(corrupt(image[None], name, severity, scale, seed)[0])
    label = name.replace("_", "\n") + ("\n(extra)" if SUITE[name].extra else "")
    row[0].text(-0.08, 0.5, label, transform=row[0].transAxes, ha="right", va="center", fontsize=7)
