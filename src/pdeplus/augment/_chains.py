"""Random convex mixtures of random chains of operations, as in AugMix."""

from collections.abc import Callable
from typing import cast

import torch
from torch import Tensor

from .._errors import UserError
from ._random import integers, simplex, uniform

DEEPEST = 3
"""Longest chain where the depth is drawn."""


def mix_chains(
    x: Tensor,
    start: Tensor,
    width: int,
    depth: int,
    operate: Callable[[Tensor, int], Tensor],
    generator: torch.Generator | None,
) -> Tensor:
    """(1 - m) x + m Σ_i w_i chain_i, with w ~ Dirichlet(1, …, 1), m ~ U(0, 1) and one draw per image.

    Args:
        x: float B×C×H×W.
        start: the images as the chains see them: floats like `x`, or unsigned bytes of which 255 is 1.
        width: number of chains.
        depth: operations in a chain; 0 draws 1, 2 or 3 for each chain.
        operate: applies to each of the given images an operation of its own, the chain's i-th.
        generator: source of all randomness.
    """
    n = len(x)
    drawn = integers(width * n, 1, DEEPEST + 1, x, generator)
    depths = torch.full_like(drawn, depth) if depth else drawn
    longest_first = depths.argsort(descending=True, stable=True)
    work = start.index_select(0, longest_first % max(n, 1))
    longer_than = torch.bincount(depths, minlength=1).flip(0).cumsum(0).flip(0)[1:]
    for i, count in enumerate(cast(list[int], longer_than.tolist())):
        work[:count] = operate(work[:count], i)
    m = uniform(n, 0, 1, x, generator)
    weights = m * simplex(width, n, x, generator) / (1 if start.is_floating_point() else 255)
    places = longest_first.argsort().view(width, n)
    out = x * (1 - m).view(n, 1, 1, 1)
    for place, weight in zip(places, weights.view(width, n, 1, 1, 1), strict=True):
        out.addcmul_(work.index_select(0, place).to(x.dtype), weight)
    return out.clamp_(0, 1)


def grouping(which: Tensor, kinds: int) -> tuple[Tensor, list[int]]:
    """The order that puts equal kinds 0, …, kinds - 1 together, and how many there are of each."""
    return which.argsort(stable=True), cast(list[int], torch.bincount(which, minlength=kinds).tolist())


def check_chains(width: int, depth: int) -> None:
    """Refuse a mixture without chains or of a negative depth."""
    if width < 1 or depth < 0:
        raise UserError(f"width={width} must be at least 1 and depth={depth} at least 0")
