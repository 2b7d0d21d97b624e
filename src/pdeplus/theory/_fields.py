"""Fields evaluated with care: what is not finite is refused by name and place."""

from torch import Tensor

from .._errors import UserError
from ._plain import floats
from .problems import Problem


def drift_at(problem: Problem, x: Tensor, t: float) -> Tensor:
    """F(x, t), N×d, finite."""
    return _checked("drift", problem.drift(x, t), x, t, tuple(x.shape))


def scale_at(problem: Problem, x: Tensor, t: float) -> Tensor:
    """G(x, t), N, finite."""
    value = problem.scale(x, t)
    return _checked("scale", value.squeeze(-1) if value.ndim == 2 else value, x, t, (len(x),))


def terminal_at(problem: Problem, x: Tensor) -> Tensor:
    """o(x), N, finite."""
    return _checked("terminal", problem.terminal(x), x, 1.0, (len(x),))


def check_points(name: str, points: Tensor, dimension: int) -> None:
    """Refuse points that are not N×d and finite."""
    if points.ndim != 2 or points.shape[-1] != dimension or not len(points):
        raise UserError(f"{name} of shape {tuple(points.shape)} must be N×{dimension}, one row for each point")
    if not points.isfinite().all():
        raise UserError(f"{name} must be finite; remove the rows with nan or inf")


def _checked(name: str, value: Tensor, x: Tensor, t: float, shape: tuple[int, ...]) -> Tensor:
    if tuple(value.shape) != shape:
        raise UserError(f"{name} returned the shape {tuple(value.shape)} for {len(x)} points; it must be {shape}")
    if not value.sum().isfinite():  # one number to look at; it can only overflow where the values are absurd
        row = int((~value.isfinite()).reshape(len(x), -1).any(-1).int().argmax())
        place = ", ".join(f"{part:.4g}" for part in floats(x[row]))
        bad = floats(value.reshape(len(x), -1)[row])
        shown = next((part for part in bad if not abs(part) < float("inf")), bad[0])
        raise UserError(f"{name} returned {shown} at x=({place}), t={t:.4g}; it must be finite wherever it is asked")
    return value
