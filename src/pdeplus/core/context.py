"""The context in which a network diffuses, and the trace of what its ADD blocks saw.

A block does nothing until a `diffusion` context is open for its network in the current thread; the context, not the
module, holds all state, so that copies, threads, torch.compile and torch.export see plain modules.
"""

import threading
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import ClassVar

import torch
from torch import Tensor, nn

from ..errors import UserError

NO_BLOCKS = "the network has no ADD blocks; make it with pdeplus.add_diffusion"


@dataclass
class Trace:
    """What the ADD blocks saw, in the order of the forward pass: h_l, and σ_l where diffusion was active."""

    names: list[str] = field(default_factory=list[str])
    means: list[Tensor] = field(default_factory=list[Tensor])
    scales: list[Tensor] = field(default_factory=list[Tensor])


class FollowsDiffusion(nn.Module):
    """A module that does something else while a `diffusion` context is open for its network."""

    diffuses: ClassVar[bool] = False
    """Whether it adds noise itself, as an ADD block."""


@dataclass(frozen=True, eq=False)
class DiffusionContext:
    """One open `diffusion` context: the arguments it was opened with, and its trace."""

    members: frozenset[FollowsDiffusion]
    active: bool
    local: bool
    learn_from: int | None
    generator: torch.Generator | None
    trace: Trace
    passes: Sequence[Sequence[Tensor]] = ()
    """Each block's noise in each of several passes, which the first block makes of one: see `sample_logits`."""
    twins: bool = False
    """Whether the second half of a batch holds the twins of the first."""
    share: float = 1.0
    """Of the rows of a batch, the first ones, that diffuse."""


@contextmanager
def diffusion(
    net: nn.Module,
    active: bool = True,
    *,
    generator: torch.Generator | None = None,
    local: bool = False,
    learn_from: int | None = None,
    passes: Sequence[Sequence[Tensor]] = (),
    twins: bool = False,
    share: float = 1.0,
) -> Generator[Trace]:
    """Within this context the forward passes of `net` in this thread are traced, and diffused if `active`.

    Nothing is written into the modules. Contexts of different networks can be open at once.

    Args:
        net: a network made by `add_diffusion`, or anything that wraps one.
        active: add noise; if not, the trace holds the plain features and no scales.
        local: g_φ sees a detached h, so that what flows back through σ reaches φ of that block only;
            its gradient is kept even under `torch.no_grad`.
        learn_from: σ has a gradient, and a place in the trace, only for this many leading rows; the others
            still diffuse. None for all.
        passes: each block's noise in each of several passes; the first block then returns a batch that holds
            its output in all of them, one after the other.
        twins: the second half of a batch holds augmented views of the first half, in the same order; blocks with a
            directional covariance diffuse towards them.
        share: fraction of the rows of a batch, the first ones, that get noise (isotropic noise only); σ is still learnt
            from `learn_from` rows.
    """
    members = frozenset(module for module in net.modules() if isinstance(module, FollowsDiffusion))
    if not any(module.diffuses for module in members):
        raise UserError(NO_BLOCKS)
    opened = DiffusionContext(members, active, local, learn_from, generator, Trace(), passes, twins, share)
    before = _open.contexts
    _open.contexts = (opened, *before)
    try:
        yield opened.trace
    finally:
        _open.contexts = before


@contextmanager
def no_diffusion(net: nn.Module) -> Generator[None]:
    """Within this context `net` is plain in this thread, whatever context is open around it."""
    mine, before = set(net.modules()), _open.contexts
    _open.contexts = tuple(context for context in before if not context.members & mine)
    try:
        yield
    finally:
        _open.contexts = before


def context_of(module: FollowsDiffusion) -> DiffusionContext | None:
    """The innermost context open in this thread for the network that holds `module`."""
    for context in _open.contexts:
        if module in context.members:
            return context
    return None


class _Open(threading.local):
    """The contexts open in this thread, innermost first. (torch.compile traces this; not a ContextVar.)"""

    contexts: tuple[DiffusionContext, ...] = ()


_open = _Open()
