"""AugMix (Hendrycks et al., 2020): a random convex mixture of random chains of simple operations."""

from dataclasses import dataclass
from typing import Literal, final

import torch
from torch import Tensor

from .._errors import UserError
from ._operations import GEOMETRY, OVERLAPPING, TONE, affine
from .base import Augmentor, uniform


@final
@dataclass(frozen=True, kw_only=True)
class AugMix(Augmentor):
    """AugMix with fixed parameters; see `augmix`."""

    severity: float = 3
    """Strength of each operation is drawn from U(0.1, severity); 10 is its full range."""
    width: int = 3
    """Number of chains."""
    depth: int = 0
    """Operations in a chain; 0 draws 1, 2 or 3."""
    operations: Literal[9, 13] = 9
    """9, none of which is a test corruption, or 13 with colour, contrast, brightness and sharpness."""

    def __post_init__(self) -> None:
        _check(self.severity, self.width, self.depth)

    def __call__(self, x: Tensor, generator: torch.Generator | None = None) -> Tensor:
        return augmix(x, self.severity, self.width, generator, depth=self.depth, operations=self.operations)


def augmix(
    x: Tensor,
    severity: float = 3,
    width: int = 3,
    generator: torch.Generator | None = None,
    *,
    depth: int = 0,
    operations: Literal[9, 13] = 9,
) -> Tensor:
    """(1 - m) x + m Σ_i w_i chain_i(x), with w ~ Dirichlet(1, …, 1), m ~ Beta(1, 1) and one draw per image.

    Args:
        x: float B×C×H×W in [0, 1].
        severity: strengths are drawn from U(0.1, severity); 10 is the full range.
        width: number of chains.
        generator: source of all randomness, on the device of `x`.
        depth: operations in a chain; 0 draws 1, 2 or 3 for each chain.
        operations: 9, or 13 with the four that coincide with test corruptions.
    """
    _check(severity, width, depth)
    n = len(x)
    grey = x * 255
    chains = grey.repeat(width, 1, 1, 1)
    depths = torch.full((width * n,), depth) if depth else _integers(1, 4, width * n, x, generator)
    for d in range(int(depths.max()) if n else 0):
        chosen = (depths > d).nonzero().squeeze(1)
        chains[chosen] = _one_operation_each(chains[chosen], severity, operations, generator)
    exponential = -torch.log1p(-uniform(width * n, 0, 1, x, generator)).clamp(max=-1e-9).view(width, n)
    weights = exponential / exponential.sum(0)
    mixture = (chains.view(width, n, *x.shape[1:]) * weights.view(width, n, 1, 1, 1)).sum(0)
    m = uniform(n, 0, 1, x, generator).view(n, 1, 1, 1)
    return (torch.lerp(grey, mixture, m) / 255).clamp(0, 1).to(x.dtype)


def _check(severity: float, width: int, depth: int) -> None:
    if not 0.1 <= severity <= 10:
        raise UserError(f"severity={severity} must lie between 0.1 and 10")
    if width < 1 or depth < 0:
        raise UserError(f"width={width} must be at least 1 and depth={depth} at least 0")


def _one_operation_each(x: Tensor, severity: float, operations: int, generator: torch.Generator | None) -> Tensor:
    """Apply to each image an operation of its own; images with the same one go together."""
    n, size = len(x), x.shape[-1]
    level = uniform(n, 0.1, severity, x, generator)
    sign = torch.where(uniform(n, 0, 1, x, generator) < 0.5, -1.0, 1.0)
    which = _integers(0, operations, n, x, generator)
    out = torch.empty_like(x)
    first_tone = len(GEOMETRY)
    moved = (which < first_tone).nonzero().squeeze(1)
    if len(moved):
        matrices = torch.stack([make(level * sign, size) for make in GEOMETRY])
        out[moved] = affine(x[moved], matrices[which[moved], moved])
    for i, operation in enumerate((*TONE, *OVERLAPPING)[: operations - first_tone], first_tone):
        mine = (which == i).nonzero().squeeze(1)
        if len(mine):
            out[mine] = operation(x[mine], level[mine])
    return out


def _integers(low: int, high: int, n: int, like: Tensor, generator: torch.Generator | None) -> Tensor:
    return torch.randint(low, high, (n,), generator=generator, device=like.device)
