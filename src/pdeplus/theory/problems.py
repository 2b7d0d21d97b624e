"""Terminal-value problems ∂u/∂t + F·∇u + ½G²Δu = 0, u(x, 1) = o(x), some whose solution is known, and small tools.

With a matrix G, d×m, the last term is ½ tr(G Gᵀ ∇²u): a single column v smooths along v alone (ours).
The closed forms follow from the law of x(1) along dx = F dt + G dB, each stated where it is used.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, cast, final

import torch
from torch import Tensor

from ..errors import UserError

Field = Callable[[Tensor, float], Tensor]
"""A function of points, N×d, and a time."""


@final
@dataclass(frozen=True, kw_only=True)
class Problem:
    """What TE_AdaDiff needs to be solved backward from t = 1 to t = 0.

    Args:
        dimension: d, of a point.
        drift: F(x, t), N×d.
        scale: G(x, t), N or N×1, or a matrix for each point, N×d×m; only G Gᵀ matters.
        terminal: o(x), N.
        solution: u(x, t), N, where it is known.
        bounds: of o, where they are known; u keeps them, being an average of o.
    """

    dimension: int
    drift: Field
    scale: Field
    terminal: Callable[[Tensor], Tensor]
    solution: Field | None = None
    bounds: tuple[float, float] | None = None


def constant(*, drift: Sequence[float] = (1.0,), scale: float = 0.4, width: float = 0.5) -> Problem:
    """Constant F and G with the terminal value exp(-|x|²/2w²); its dimension is that of `drift`.

    x(1) given x(t) = x is normal with mean x + (1-t)F and variance (1-t)G².
    """
    _check_positive(width=width)
    velocity = torch.tensor(drift, dtype=torch.float64)
    return Problem(
        dimension=len(drift),
        drift=lambda x, t: velocity.to(x).expand_as(x),
        scale=everywhere(scale),
        terminal=lambda x: bump_expectation(x, 0.0, width),
        solution=lambda x, t: bump_expectation(x + (1 - t) * velocity, (1 - t) * scale**2, width),
        bounds=(0.0, 1.0),
    )


def directed(
    *, drift: Sequence[float] = (0.8, -0.4), columns: Sequence[Sequence[float]] = ((0.5, 0.3),), width: float = 0.5
) -> Problem:
    """Constant F and a constant matrix G with these columns, and the terminal value exp(-|x|²/2w²).

    x(1) given x(t) = x is normal with mean m = x + (1-t)F and covariance S = (1-t) G Gᵀ, so that u is
    w^d det(w²I + S)^{-1/2} exp(-mᵀ(w²I + S)⁻¹m / 2). One column smooths along itself and nowhere else.
    """
    _check_positive(width=width)
    velocity, matrix = torch.tensor(drift, dtype=torch.float64), torch.tensor(columns, dtype=torch.float64).T
    linalg: Any = torch.linalg  # its types are loose

    def solution(x: Tensor, t: float) -> Tensor:
        total = width**2 * torch.eye(len(drift), dtype=torch.float64) + (1 - t) * matrix @ matrix.T
        mean = x.double() + (1 - t) * velocity
        away = (mean @ linalg.inv(total) * mean).sum(-1)
        return width ** len(drift) * linalg.det(total).rsqrt() * (-away / 2).exp()

    return Problem(
        dimension=len(drift),
        drift=lambda x, t: velocity.to(x).expand_as(x),
        scale=lambda x, t: matrix.to(x).expand(len(x), *matrix.shape),
        terminal=lambda x: bump_expectation(x, 0.0, width),
        solution=solution,
        bounds=(0.0, 1.0),
    )


def sheared(*, rate: float = 0.5, shear: float = 0.8, share: float = 0.6) -> Problem:
    """F = Ax with A = (-κ a; 0 -κ), G = s·v(x) with v = (y, x), one column, and the terminal value |x|².

    u = xᵀP(t)x with P(1) = I and -P' = AᵀP + PA + s² JPJ, since ½ tr(G Gᵀ ∇²u) = s² vᵀPv and v = Jx, J = (0 1; 1 0).
    A diffusion that depends on the place, as the way to a twin does: linear drift, quadratic terminal value.
    """
    flow = torch.tensor([[-rate, shear], [0.0, -rate]], dtype=torch.float64)
    swap = torch.tensor([[0.0, 1.0], [1.0, 0.0]], dtype=torch.float64)
    eye = torch.eye(2, dtype=torch.float64)
    # vec(P)' = -K vec(P) for row-major vec, in which AXB becomes (A ⊗ Bᵀ) vec(X)
    turned = flow.T.contiguous()
    change = torch.kron(turned, eye) + torch.kron(eye, turned) + share**2 * torch.kron(swap, swap)

    def solution(x: Tensor, t: float) -> Tensor:
        form = (torch.matrix_exp((1 - t) * change) @ eye.reshape(-1)).reshape(2, 2)
        return (x.double() @ form * x.double()).sum(-1)

    return Problem(
        dimension=2,
        drift=lambda x, t: x @ flow.T.to(x),
        scale=lambda x, t: share * (x @ swap.to(x))[:, :, None],
        terminal=lambda x: x.square().sum(-1),
        solution=solution,
    )


def ornstein_uhlenbeck(
    *, dimension: int = 1, rate: float = 1.0, turn: float = 0.0, scale: float = 0.4, width: float = 0.5
) -> Problem:
    """F = -κx, in the plane also turning about 0, with constant G and the terminal value exp(-|x|²/2w²).

    x(1) given x(t) = x is normal with mean e^{-κ(1-t)}x, turned by ω(1-t), and variance G²(1 - e^{-2κ(1-t)})/2κ.
    The rate κ may be negative: the field then spreads. The turn ω is in radians, and 0 unless d is 2.
    """
    _check_positive(width=width)
    if turn and dimension != 2:
        raise UserError(f"turn={turn:g} needs dimension=2, not {dimension}; leave it at 0")

    def solution(x: Tensor, t: float) -> Tensor:
        left, angle = 1 - t, turn * (1 - t)
        turned = math.cos(angle) * x + math.sin(angle) * _quarter_turn(x) if turn else x
        return bump_expectation(math.exp(-rate * left) * turned, scale**2 * decayed_time(rate, left), width)

    return Problem(
        dimension=dimension,
        drift=lambda x, t: turn * _quarter_turn(x) - rate * x if turn else -rate * x,
        scale=everywhere(scale),
        terminal=lambda x: bump_expectation(x, 0.0, width),
        solution=solution,
        bounds=(0.0, 1.0),
    )


def geometric(*, dimension: int = 1, rate: float = 0.2, scale: float = 0.4) -> Problem:
    """F = μx, G = s|x|, terminal value |x|²: u = |x|² e^{(2μ + d s²)(1-t)}.

    Put it into the equation: F·∇u = 2μu and ½G²Δu = ½s²|x|²·2d e^{…} = d s² u, so ∂u/∂t = -(2μ + d s²)u.
    """

    def solution(x: Tensor, t: float) -> Tensor:
        return x.square().sum(-1) * math.exp((2 * rate + dimension * scale**2) * (1 - t))

    return Problem(
        dimension=dimension,
        drift=lambda x, t: rate * x,
        scale=lambda x, t: scale * lengths(x),
        terminal=lambda x: solution(x, 1.0),
        solution=solution,
    )


def stretched(*, rate: float = 0.5, scale: float = 0.3, width: float = 0.5) -> Problem:
    """A G that grows with |x| on the whole line and a bounded terminal value: the problem `constant` in y = asinh x.

    Itô's formula for x = sinh y with dy = a dt + s dB gives F = a√(1+x²) + ½s²x and G = s√(1+x²), so u is that of
    `constant` at asinh x.
    """
    straight = constant(drift=(rate,), scale=scale, width=width)
    return Problem(
        dimension=1,
        drift=lambda x, t: rate * (1 + x.square()).sqrt() + scale**2 / 2 * x,
        scale=lambda x, t: scale * (1 + x.square()).sqrt().squeeze(-1),
        terminal=lambda x: straight.terminal(x.asinh()),
        solution=lambda x, t: exact(straight, x.asinh(), t),
        bounds=(0.0, 1.0),
    )


def benes(*, speed: float = 1.0, scale: float = 0.3) -> Problem:
    """F = B tanh(Bx/s²), G = s, terminal value sign(x): a drift bounded by B that divides the line within s²/B.

    With h = cosh(Bx/s²) the drift is s²∇log h, and ½s²Δh = (B²/2s²)h: by Doob's transform x(1) is a mixture of
    N(x ± B(1-t), s²(1-t)) with the weights (1 ± tanh(Bx/s²))/2.
    """
    _check_positive(speed=speed, scale=scale)

    def solution(x: Tensor, t: float) -> Tensor:
        y, left = x.squeeze(-1), 1 - t
        spread = scale * math.sqrt(2 * left)
        lean = (speed / scale**2 * y).tanh()
        up, down = ((y + way * speed * left).div(spread).erf() for way in (1, -1))
        return (1 + lean) / 2 * up + (1 - lean) / 2 * down if left else y.sign()

    return Problem(
        dimension=1,
        drift=lambda x, t: speed * (speed / scale**2 * x).tanh(),
        scale=everywhere(scale),
        terminal=lambda x: x.squeeze(-1).sign(),
        solution=solution,
        bounds=(-1.0, 1.0),
    )


def bump_expectation(mean: Tensor, variance: float, width: float) -> Tensor:
    """E exp(-|y|²/2w²) for y normal with a mean, N×d, and one variance in every direction, N."""
    total = width**2 + variance
    return (width**2 / total) ** (mean.shape[-1] / 2) * (-mean.square().sum(-1) / (2 * total)).exp()


def decayed_time(rate: float, time: float) -> float:
    """∫₀^time e^{-2κs} ds, for any rate κ."""
    return -math.expm1(-2 * rate * time) / (2 * rate) if rate else time


def everywhere(value: float) -> Field:
    """The same value at all points and times."""
    return lambda x, t: x.new_full((len(x),), value)


def _quarter_turn(x: Tensor) -> Tensor:
    return torch.stack([-x[:, 1], x[:, 0]], -1)


def _check_positive(**values: float) -> None:
    for name, value in values.items():
        if not value > 0:
            raise UserError(f"{name}={value:g} must be above 0")


def exact(problem: Problem, x: Tensor, t: float = 0.0) -> Tensor:
    """u(x, t), N, of a problem that has a closed form."""
    assert problem.solution is not None
    return problem.solution(x, t)


def drift_at(problem: Problem, x: Tensor, t: float) -> Tensor:
    """F(x, t), N×d, finite."""
    return _checked("drift", problem.drift(x, t), x, t, tuple(x.shape))


def scale_at(problem: Problem, x: Tensor, t: float) -> Tensor:
    """G(x, t), N, or N×d×m where it is a matrix; finite."""
    value = problem.scale(x, t)
    if value.ndim == 3:
        return _checked("scale", value, x, t, (*x.shape, value.shape[2]))
    return _checked("scale", value.squeeze(-1) if value.ndim == 2 else value, x, t, (len(x),))


def terminal_at(problem: Problem, x: Tensor) -> Tensor:
    """o(x), N, finite."""
    return _checked("terminal", problem.terminal(x), x, 1.0, (len(x),))


def _checked(name: str, value: Tensor, x: Tensor, t: float, shape: tuple[int, ...]) -> Tensor:
    if tuple(value.shape) != shape:
        raise UserError(f"{name} returned the shape {tuple(value.shape)} for {len(x)} points; it must be {shape}")
    if not value.sum().isfinite():  # one number to look at; it can only overflow where the values are absurd
        row = int((~value.isfinite()).reshape(len(x), -1).any(-1).int().argmax())
        place = ", ".join(f"{part:.4g}" for part in listed(x[row]))
        bad = listed(value.reshape(len(x), -1)[row])
        shown = next((part for part in bad if not abs(part) < math.inf), bad[0])
        raise UserError(f"{name} returned {shown} at x=({place}), t={t:.4g}; it must be finite everywhere")
    return value


def listed(x: Tensor) -> list[Any]:
    """A tensor as Python's numbers, in lists within lists where it has several dimensions."""
    return cast(list[Any], x.tolist())


def lengths(x: Tensor, dim: int = -1) -> Tensor:
    """Lengths of the vectors along a dimension."""
    linalg: Any = torch.linalg  # its types are loose
    return cast(Tensor, linalg.vector_norm(x, dim=dim))
