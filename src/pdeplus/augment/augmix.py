"""AugMix (Hendrycks et al., 2020): a random convex mixture of random chains of simple operations."""

from dataclasses import dataclass
from typing import Literal, final

import torch
from torch import Tensor

from ..errors import UserError
from ._operations import DEEPEST, NAMES, Strength, apply_each, check_chains, mix_chains, to_levels, values_of
from .base import Augmentor, corruptions_like, integers, signs, uniform

FULL = 10.0
"""The severity of an operation's full range."""
OVERLAPPING = ("color", "contrast", "brightness", "sharpness")
"""Left out of the nine: they coincide with test corruptions, see `OVERLAPS`."""


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

    @property
    def overlaps(self) -> tuple[str, ...]:
        return corruptions_like(*operation_names(self.operations))

    def __call__(self, x: Tensor, generator: torch.Generator | None = None) -> Tensor:
        return augmix(x, self.severity, self.width, generator, depth=self.depth, operations=self.operations)


@torch.no_grad()
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

    The chains see whole grey levels, and come back to them after each operation; no gradient passes.

    Args:
        x: float B×C×H×W in [0, 1].
        severity: strengths are drawn from U(0.1, severity); 10 is the full range.
        width: number of chains.
        generator: source of all randomness, on the device of `x`.
        depth: operations in a chain; 0 draws 1, 2 or 3 for each chain.
        operations: 9, or 13 with the four that coincide with test corruptions.
    """
    _check(severity, width, depth)
    levels, most = depth or DEEPEST, width * len(x)
    which, value = _draw(levels * most, x, severity, operations, generator)

    def operate(chains: Tensor, level: int) -> Tensor:
        mine = slice(level * most, level * most + len(chains))
        return apply_each(chains, which[mine], value[mine])

    return mix_chains(x.float(), to_levels(x), width, depth, operate, generator).to(x.dtype)


@torch.no_grad()
def one_operation(
    x: Tensor, severity: float, generator: torch.Generator | None, operations: Literal[9, 13] = 9
) -> Tensor:
    """Each image (B×C×H×W of unsigned bytes, as is the result) through one of AugMix's operations of its own."""
    return apply_each(x, *_draw(len(x), x, severity, operations, generator))


def operation_names(operations: Literal[9, 13]) -> tuple[str, ...]:
    """AugMix's operations, named as in `OVERLAPS`."""
    return tuple(_strengths(1, 1, operations))


def check_severity(severity: float) -> None:
    """Refuse a severity that is no strength of AugMix's operations."""
    if not 0.1 <= severity <= FULL:
        raise UserError(f"severity={severity} must lie between 0.1 and 10")


def _check(severity: float, width: int, depth: int) -> None:
    check_severity(severity)
    check_chains(width, depth)


def _draw(
    n: int, x: Tensor, severity: float, operations: Literal[9, 13], generator: torch.Generator | None
) -> tuple[Tensor, Tensor]:
    """`n` operations for images like `x`, by their places in `NAMES`, and their values."""
    strengths = _strengths(x.shape[-2], x.shape[-1], operations)
    numbers = torch.tensor([NAMES.index(name) for name in strengths], device=x.device)
    which = numbers[integers(n, 0, len(numbers), x, generator)]
    s = uniform(n, 0.1 / FULL, severity / FULL, x, generator)
    return which, values_of(strengths, which, s, signs(n, x, generator))


def _strengths(h: int, w: int, operations: Literal[9, 13] = 13) -> dict[str, Strength]:
    """Each operation's range, as published."""
    return {
        "autocontrast": Strength(),
        "equalize": Strength(),
        "posterize": Strength(4, -4, whole="down"),
        "rotate": Strength(0, 30, signed=True, whole="down"),
        "solarize": Strength(256, -256, whole="down"),
        "shear_x": Strength(0, 0.3, signed=True),
        "shear_y": Strength(0, 0.3, signed=True),
        "translate_x": Strength(0, w / 3, signed=True, whole="down"),
        "translate_y": Strength(0, h / 3, signed=True, whole="down"),
        **(dict.fromkeys(OVERLAPPING, Strength(0.1, 1.8)) if operations == 13 else {}),
    }
