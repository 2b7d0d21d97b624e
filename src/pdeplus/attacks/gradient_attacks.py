"""FGSM, PGD and APGD, and what a network is for an attack: its mode, its parameters, its mean over noisy passes.

Attacks are objects configured once and called as attack(logits, x, labels, generator).
"""

import math
from abc import ABC, abstractmethod
from collections.abc import Generator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import asdict, dataclass, fields, replace
from typing import Any, Literal, cast, final

import torch
from torch import Tensor, nn

from ..core.context import diffusion, no_diffusion
from ..core.network import evaluating, logits_of
from ..core.prediction import Average
from ..errors import UserError, check_choice
from .steps import Logits, Norm, apgd, check_budget, cross_entropy, dlr, pgd, random_point, worst_of

AttackMode = Literal["train", "eval"]
"""The network's mode while it is attacked in training: the one it trains in, or eval."""


class Attack(ABC):
    """A way of changing images; its fields are its options."""

    norm: Norm
    epsilon: float
    steps: int = 1
    restarts: int = 1
    step_size: float | None = None
    """None for what the attack chooses itself."""

    @property
    @abstractmethod
    def name(self) -> str:
        """What records call it."""

    @property
    @abstractmethod
    def effort(self) -> str:
        """Steps and restarts, in words."""

    @abstractmethod
    def __call__(self, logits: Logits, x: Tensor, labels: Tensor, generator: torch.Generator | None = None) -> Tensor:
        """Images in [0, 1] within epsilon of x, B×C×H×W, without a gradient."""

    @abstractmethod
    def harder(self) -> "Attack":
        """The same with twice the steps and one restart more."""


@final
@dataclass(frozen=True, kw_only=True)
class FGSM(Attack):
    """One full-size step from the image itself (Goodfellow et al., 2015); in ℓ2 along the gradient."""

    norm: Norm = "linf"
    epsilon: float = 8 / 255

    def __post_init__(self) -> None:
        check_budget(self.norm, self.epsilon, self.steps, self.restarts)

    @property
    def name(self) -> str:
        return "fgsm"

    @property
    def effort(self) -> str:
        return "1 step"

    def __call__(self, logits: Logits, x: Tensor, labels: Tensor, generator: torch.Generator | None = None) -> Tensor:
        return pgd(logits, x, labels, norm=self.norm, epsilon=self.epsilon)

    def harder(self) -> "PGD":
        return PGD(norm=self.norm, epsilon=self.epsilon)


@final
@dataclass(frozen=True, kw_only=True)
class PGD(Attack):
    """Projected gradient ascent from random points (Madry et al., 2018); each image's worst of all restarts."""

    norm: Norm = "linf"
    epsilon: float = 8 / 255
    steps: int = 10
    restarts: int = 1
    """How often it is begun anew; an image counts as broken if any of them broke it."""
    step_size: float | None = None
    """None for 2.5·epsilon/steps."""
    random_start: bool = True
    """Begin at random points within epsilon; several restarts need it."""

    def __post_init__(self) -> None:
        check_budget(self.norm, self.epsilon, self.steps, self.restarts)
        if self.step_size is not None and not (self.step_size > 0 and self.epsilon > 0):
            raise UserError(f"step_size={self.step_size} and epsilon={self.epsilon} must both be above 0")
        if self.restarts > 1 and not self.random_start:
            raise UserError(f"restarts={self.restarts} from the same point are all the same; set random_start=True")

    @property
    def name(self) -> str:
        return "pgd"

    @property
    def effort(self) -> str:
        step = "" if self.step_size is None else f" of {self.step_size / self.epsilon:.3g}·epsilon"
        return f"{_steps(self.steps, self.restarts)}{step}{'' if self.random_start else ' from the images'}"

    def __call__(self, logits: Logits, x: Tensor, labels: Tensor, generator: torch.Generator | None = None) -> Tensor:
        options = asdict(self)
        restarts = options.pop("restarts")

        def once(k: int) -> Tensor:
            return pgd(logits, x, labels, **options, generator=generator)

        return worst_of(once, restarts, logits, labels, cross_entropy)

    def harder(self) -> "PGD":
        return replace(self, steps=2 * self.steps, restarts=self.restarts + 1, random_start=True)


@final
@dataclass(frozen=True, kw_only=True)
class APGD(Attack):
    """Auto-PGD (Croce and Hein, 2020), first from the image itself, then from random points; the worst of all."""

    loss: Literal["ce", "dlr"] = "ce"
    """Cross-entropy, or the difference of logits ratio, which the scale of the logits cannot mask."""
    norm: Norm = "linf"
    epsilon: float = 8 / 255
    steps: int = 100
    restarts: int = 1

    def __post_init__(self) -> None:
        check_choice("loss", self.loss, Literal["ce", "dlr"])
        check_budget(self.norm, self.epsilon, self.steps, self.restarts)

    @property
    def name(self) -> str:
        return f"apgd_{self.loss}"

    @property
    def effort(self) -> str:
        return _steps(self.steps, self.restarts)

    def __call__(self, logits: Logits, x: Tensor, labels: Tensor, generator: torch.Generator | None = None) -> Tensor:
        losses = cross_entropy if self.loss == "ce" else dlr
        budget: dict[str, Any] = {"norm": self.norm, "epsilon": self.epsilon, "steps": self.steps}

        def once(k: int) -> Tensor:
            start = x.detach() if k == 0 else random_point(x.detach(), self.norm, self.epsilon, generator)
            return apgd(logits, x.detach(), start, labels, losses, **budget)

        return worst_of(once, self.restarts, logits, labels, losses)

    def harder(self) -> "APGD":
        return replace(self, steps=2 * self.steps, restarts=self.restarts + 1)


def build_attack(name: str, **options: Any) -> Attack:
    """An attack by its name, with some of its options; those that are None keep their defaults."""
    if name not in ATTACKS:
        raise UserError(f"attack={name!r} is not known; choose from {', '.join(ATTACKS)}")
    attack = cast(Any, ATTACKS[name])
    given = {key: value for key, value in options.items() if value is not None}
    known = [field.name for field in fields(attack)]
    for key, value in given.items():
        if key not in known:
            raise UserError(f"{key}={value}: the attack {name} has no {key}; it has {', '.join(known)}")
    return replace(attack, **given)


def resized(attack: Attack, epsilon: float) -> Attack:
    """The same attack of another size; a step size of its own grows in proportion."""
    step = attack.step_size
    more = {"step_size": step * epsilon / attack.epsilon} if step and attack.epsilon else {}
    return replace(cast(Any, attack), epsilon=epsilon, **more)


def single_step(attack: Attack) -> FGSM:
    """One step of the attack's size, in its norm."""
    return FGSM(norm=attack.norm, epsilon=attack.epsilon)


def in_parts(
    attack: Attack, logits: Logits, x: Tensor, labels: Tensor, generator: torch.Generator | None, rows: int
) -> Tensor:
    """An attack on so many images at a time, as its memory allows."""
    starts = range(0, len(x), rows)
    return torch.cat([attack(logits, x[i : i + rows], labels[i : i + rows], generator) for i in starts])


def in_attack_mode(net: nn.Module, mode: AttackMode) -> AbstractContextManager[None]:
    """Eval mode within, if wanted; every module is afterwards in the mode it was in."""
    return evaluating(net) if mode == "eval" else nullcontext()


@contextmanager
def attacking(net: nn.Module) -> Generator[None]:
    """Eval mode and frozen parameters within; afterwards modes, requires_grad and gradients are as they were."""
    before = [(p, p.requires_grad, p.grad) for p in net.parameters()]
    try:
        with evaluating(net):
            for p, _, _ in before:
                p.requires_grad_(False)
                p.grad = None
            yield
    finally:
        for p, needed, gradient in before:
            p.requires_grad_(needed)
            p.grad = gradient


def expected_logits(
    net: nn.Module,
    x: Tensor,
    passes: int,
    *,
    generator: torch.Generator | None = None,
    average: Average = "probabilities",
) -> Tensor:
    """What a noisy network says on average, differentiable: the log of its mean probabilities over the passes.

    With average="logits" the mean of the logits. passes=0 is the network without noise. Every call draws anew.
    """
    if passes == 0:
        with no_diffusion(net):
            return logits_of(net(x))
    with diffusion(net, generator=generator):
        logits = logits_of(net(torch.cat([x] * passes))).float()
    every = logits.view(passes, len(x), logits.shape[-1])
    return every.mean(0) if average == "logits" else every.log_softmax(-1).logsumexp(0) - math.log(passes)


def _steps(steps: int, restarts: int) -> str:
    return f"{steps} step{'s' * (steps > 1)}, {restarts} restart{'s' * (restarts > 1)}"


ATTACKS: dict[str, Attack] = {"fgsm": FGSM(), "pgd": PGD(), "apgd_ce": APGD(), "apgd_dlr": APGD(loss="dlr")}
"""What a name alone stands for."""
