"""Two fits by least squares."""

from collections.abc import Sequence

import numpy as np


def exponent(x: Sequence[float], y: Sequence[float]) -> float:
    """The b of y = a · xᵇ, fitted to logarithms."""
    return line(np.log(x).tolist(), np.log(y).tolist())[1]


def line(x: Sequence[float], y: Sequence[float]) -> tuple[float, float]:
    """The a and b of y = a + b · x."""
    slope, offset = np.polyfit(x, y, 1)
    return float(offset), float(slope)
