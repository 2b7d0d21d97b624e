"""Adaptive distributional diffusion for any torch model: the ADD block, the surgery, the trace, predict.

`add_diffusion` hangs an ADD block behind each named module by a forward hook. A block does nothing until
a `diffusion` context is open for its network in the current thread; the context, not the module, holds
all state, so that copies, threads, torch.compile and torch.export see plain modules.
"""

import copy
import math
import threading
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Literal, final

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from ._bodies import Block, body_for
from ._errors import UserError, check_choice
from ._network import find_modules, output_shapes
from .functional import Prior, diffuse

Head = Literal["softplus", "relu"]
"""What makes σ positive."""
CHILD = "add_blocks"
"""Name under which a changed network holds its ADD blocks."""


@dataclass
class Trace:
    """What the ADD blocks saw, in the order of the forward pass: h_l, and σ_l where diffusion was active."""

    names: list[str] = field(default_factory=list[str])
    means: list[Tensor] = field(default_factory=list[Tensor])
    scales: list[Tensor] = field(default_factory=list[Tensor])


@dataclass(frozen=True, eq=False)
class _Session:
    """One open `diffusion` context."""

    members: frozenset[nn.Module]
    active: bool
    local: bool
    learn_from: int | None
    generator: torch.Generator | None
    trace: Trace
    passes: Sequence[Sequence[Tensor]] = ()
    """Each block's noise in each of several passes, which the first block makes of one: see `sample_logits`."""


class _Open(threading.local):
    """The contexts open in this thread, innermost first. (torch.compile traces this; not a ContextVar.)"""

    sessions: tuple[_Session, ...] = ()


_open = _Open()


def session_of(module: nn.Module) -> _Session | None:
    """The innermost context open in this thread for the network that holds `module`.

    Only modules whose class sets `follows_diffusion` can ask.
    """
    for session in _open.sessions:
        if module in session.members:
            return session
    return None


@final
class ADDBlock(nn.Module):
    """g_φ and the diffusion it drives: σ = g_φ(h), then h + σ · N(0, I).

    The identity where no context is open; with the softplus head σ ≥ floor > 0 for every input.
    """

    follows_diffusion = True

    def __init__(
        self,
        body: nn.Sequential,
        *,
        name: str = "",
        head: Head | Literal["none"] = "softplus",
        floor: float = 1e-3,
        initial_scale: float | None = 0.05,
        prior: Prior = "gaussian",
    ) -> None:
        super().__init__()
        self.body, self.name, self.head, self.floor = body, name, head, floor
        self.prior: Prior = prior
        if initial_scale is not None:
            self._start_at(initial_scale)

    def scale(self, h: Tensor) -> Tensor:
        """σ = g_φ(h), of the shape of `h`."""
        z = self.body(h)
        if self.head == "none":
            return z
        return F.softplus(z).add_(self.floor) if self.head == "softplus" else F.relu(z)

    def forward(self, h: Tensor) -> Tensor:
        session = session_of(self)
        if session is None:
            return h
        trace = session.trace
        trace.names.append(self.name)
        trace.means.append(h)
        if not session.active:
            return h.clone()  # a later in-place layer must not change the trace
        learnt = h[: session.learn_from]
        if session.local:
            with torch.enable_grad():
                scale = self.scale(learnt.detach())
        else:
            scale = self.scale(learnt)
        trace.scales.append(scale)
        if len(learnt) < len(h):
            with torch.no_grad():
                rest = self.scale(h[len(learnt) :])
            scale = torch.cat([scale, rest])
        if not session.passes:
            return diffuse(h, scale, session.generator, self.prior)
        noise = torch.cat([one[len(trace.means) - 1] for one in session.passes])
        if len(h) < len(noise):  # the first block, or one whose features have met none yet
            h, scale = (torch.cat([t] * len(session.passes)) for t in (h, scale))
        return torch.addcmul(h, scale, noise)

    def _start_at(self, scale: float) -> None:
        """Set the last normalisation so that σ is `scale` for every input until the first update."""
        if not scale > (self.floor if self.head == "softplus" else 0):
            raise UserError(f"initial_scale={scale} must be above the floor of σ, {self.floor}")
        norm = self.body[-1]
        assert isinstance(norm, nn.BatchNorm2d | nn.LayerNorm)
        nn.init.zeros_(norm.weight)
        start = math.log(math.expm1(scale - self.floor)) if self.head == "softplus" else scale
        nn.init.constant_(norm.bias, start)


@final
class ADDBlocks(nn.ModuleList):
    """The ADD blocks of one network. Called as a layer (a Sequential calls its children) it is the identity."""

    def forward(self, h: Tensor) -> Tensor:
        return h


@dataclass(frozen=True, eq=False)
class AfterModule:
    """The forward hook that hands a module's output to its block; `deepcopy` keeps the two together."""

    block: ADDBlock

    def __call__(self, module: nn.Module, args: Any, output: Tensor) -> Tensor:
        return self.block(output)


def add_diffusion(
    model: nn.Module,
    after: Sequence[str],
    example: Tensor | Mapping[str, Any],
    *,
    block: Block = "light",
    head: Head = "softplus",
    floor: float = 1e-3,
    initial_scale: float | None = 0.05,
    prior: Prior = "gaussian",
) -> nn.Module:
    """Put an ADD block behind each named module of a copy of `model`.

    The copy has the model's class, attributes and parameter names; outside a `diffusion` context its
    output equals the model's bit for bit. `model` itself is left as it was.

    Args:
        model: any module.
        after: names as in `model.named_modules()`; each one's output must be a tensor: B×C×H×W or B×N×C
            or B×C.
        example: an input (or a mapping of keyword inputs) for one forward pass that finds the shapes.
        block: a light depthwise body, or the paper's two 3×3 convolutions (B×C×H×W features only).
        head: softplus with a floor, or the authors' ReLU, under which σ can be zero.
        floor: least σ of the softplus head.
        initial_scale: σ of every element before the first update; None keeps the normalisation's start
            (σ near 0.8 for softplus, as large as the features).
        prior: family of the noise.
    """
    for name, value, choices in (("block", block, Block), ("head", head, Head), ("prior", prior, Prior)):
        check_choice(name, value, choices)
    net = copy.deepcopy(model)
    if hasattr(net, CHILD):
        raise UserError(f"the model has {CHILD!r} already; name all modules in one call of add_diffusion")
    hosts = find_modules(net, after)
    shapes = output_shapes(net, hosts, example)
    first = next(iter(net.parameters()), None)
    blocks = ADDBlocks()
    for name, host in hosts.items():
        body = body_for(name, shapes[name], block)
        add = ADDBlock(body, name=name, head=head, floor=floor, initial_scale=initial_scale, prior=prior)
        if first is not None:
            add.to(device=first.device, dtype=first.dtype)
        blocks.append(add.train(net.training))
        host.register_forward_hook(AfterModule(add))
    net.add_module(CHILD, blocks.train(net.training))
    return net


def add_blocks_of(net: nn.Module) -> list[ADDBlock]:
    """The ADD blocks of a network, in their order; refuses a network that has none."""
    blocks = [module for module in net.modules() if isinstance(module, ADDBlock)]
    if not blocks:
        raise UserError("the network has no ADD blocks; make it with pdeplus.add_diffusion")
    return blocks


@contextmanager
def diffusion(
    net: nn.Module,
    active: bool = True,
    *,
    generator: torch.Generator | None = None,
    local: bool = False,
    learn_from: int | None = None,
    passes: Sequence[Sequence[Tensor]] = (),
) -> Generator[Trace]:
    """Within this context the forward passes of `net` in this thread are traced, and diffused if `active`.

    Nothing is written into the modules. Contexts of different networks can be open at once.

    Args:
        net: a network made by `add_diffusion`, or anything that wraps one.
        active: add noise; if not, the trace holds the plain features and no scales.
        generator: source of the noise.
        local: g_φ sees a detached h, so that what flows back through σ reaches φ of that block only;
            its gradient is kept even under `torch.no_grad`.
        learn_from: σ has a gradient, and a place in the trace, for so many leading rows only; the others
            diffuse all the same. None for all.
        passes: each block's noise in each of several passes; the first block then hands on a batch that holds
            its output in all of them, one behind the other.
    """
    add_blocks_of(net)
    members = frozenset(module for module in net.modules() if getattr(module, "follows_diffusion", False))
    session = _Session(members, active, local, learn_from, generator, Trace(), passes)
    before = _open.sessions
    _open.sessions = (session, *before)
    try:
        yield session.trace
    finally:
        _open.sessions = before


@contextmanager
def no_diffusion(net: nn.Module) -> Generator[None]:
    """Within this context `net` is plain in this thread, whatever context is open around it."""
    mine, before = set(net.modules()), _open.sessions
    _open.sessions = tuple(session for session in before if not session.members & mine)
    try:
        yield
    finally:
        _open.sessions = before
