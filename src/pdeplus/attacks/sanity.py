"""Whether an attack's numbers can be believed: five checks that a network which masks its gradients fails."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import final

import torch
from torch import Tensor

from .._lib.seeds import generator_for
from .gradient_attacks import Attack, in_parts, resized, single_step
from .steps import Logits

IMAGES = 100
"""An evaluation checks on so many at most."""
SLACK = 0.02
"""Accuracies that differ by this, and by one image, count as equal."""
CONVERGED = 0.05
"""What twice the steps and one restart more may take from the accuracy, and one image."""


@final
@dataclass(frozen=True, kw_only=True)
class Check:
    """One of the things that hold for an honest attack."""

    name: str
    passed: bool | None
    """None where it does not apply."""
    found: str
    """The numbers."""
    meaning: str
    """What it means if it fails."""

    @property
    def line(self) -> str:
        """Name, verdict, numbers; and what a failure means."""
        verdict = "does not apply" if self.passed is None else "yes" if self.passed else "NO"
        return f"{self.name}: {verdict} ({self.found})" + f": {self.meaning}" * (self.passed is False)


@final
@dataclass(frozen=True, kw_only=True)
class Sanity:
    """All checks of one attack on one network."""

    images: int
    checks: tuple[Check, ...]

    @property
    def failed(self) -> list[Check]:
        """Those that do not hold."""
        return [check for check in self.checks if check.passed is False]


def sanity(
    attack: Attack,
    logits: Logits,
    x: Tensor,
    labels: Tensor,
    *,
    epsilons: Sequence[float],
    predict: Logits | None = None,
    plain: Logits | None = None,
    rows: int = 128,
    seed: int = 0,
) -> Sanity:
    """Check an attack of these sizes on a network: five verdicts, each with its numbers.

    `predict` gives the probabilities by which success is judged, by default the softmax of the logits; `plain` gives
    the logits without noise, where the network has any. So many rows of the images are attacked at a time.
    """
    lab = _Lab(logits, predict or (lambda images: logits(images).softmax(-1)), x, labels, rows, seed)
    sizes = sorted(epsilons)
    clean, each = lab.see(None), [lab.see(resized(attack, epsilon)) for epsilon in sizes]
    middle = min(range(len(sizes)), key=lambda i: abs(each[i].accuracy - clean.accuracy / 2))  # says most
    there, at = resized(attack, sizes[middle]), each[middle]
    hard = lab.see(there.harder())
    one_step = single_step(there)
    many = hard if there == one_step else at
    found = [_rises([clean, *each]), _breaks_all(lab, attack), _converged(at, hard)]
    moved = None if plain is None else lab.see(there, plain)
    noise = "the noise masks the gradients: raise eot, and trust the lower accuracy"
    near = "the gradients near the images are masked; trust the lower accuracy"
    name = "images made on the network without noise are no stronger"
    found.append(_no_stronger(moved, at, "white-box", name, noise))
    found.append(_no_stronger(lab.see(one_step), many, "many", "one step is no stronger than many", near))
    return Sanity(images=len(x), checks=tuple(found))


@final
@dataclass(frozen=True)
class _Seen:
    """What an attack did."""

    losses: Tensor
    right: Tensor
    classes: int

    @property
    def accuracy(self) -> float:
        return float(self.right.double().mean())


@final
@dataclass(frozen=True)
class _Lab:
    """A network and images to attack."""

    logits: Logits
    judge: Logits
    x: Tensor
    labels: Tensor
    rows: int
    seed: int

    def see(self, attack: Attack | None, on: Logits | None = None) -> _Seen:
        """Attack the network, or the one given, and judge the images by the network."""
        x = self.x
        if attack is not None:
            stream = generator_for(self.seed, "sanity", device=x.device)
            x = in_parts(attack, on or self.logits, x, self.labels, stream, self.rows)
        with torch.no_grad():
            p = torch.cat([self.judge(part) for part in torch.split(x, self.rows)]).double()
        own = p.gather(-1, self.labels[:, None])[:, 0]
        return _Seen(-own.clamp(min=1e-30).log(), p.argmax(-1) == self.labels, p.shape[-1])


def _rises(seen: Sequence[_Seen]) -> Check:
    def no_less(rise: Tensor) -> bool:
        """Within two standard errors."""
        error = float(rise.std()) / math.sqrt(len(rise)) if len(rise) > 1 else 0.0
        return float(rise.mean()) >= -2 * error - 1e-3

    return Check(
        name="the loss rises with epsilon",
        passed=all(no_less(b.losses - a.losses) for a, b in pairwise(seen)),
        found="mean " + ", ".join(f"{one.losses.mean():.2f}" for one in seen),
        meaning="the gradients do not increase the loss, or the steps overshoot; the true accuracy may be lower",
    )


def _breaks_all(lab: _Lab, attack: Attack) -> Check:
    many = attack.harder() if attack == single_step(attack) else attack
    epsilon = 0.5 if attack.norm == "linf" else 0.5 * math.sqrt(lab.x[0].numel())
    seen = lab.see(resized(many, epsilon))
    chance = 1 / seen.classes
    bound = chance + 2 * math.sqrt(chance * (1 - chance) / len(lab.x))
    return Check(
        name="a very large epsilon leaves chance or less",
        passed=seen.accuracy <= bound,
        found=f"accuracy {_percent(seen)} at {epsilon:.3g}, chance {100 * chance:.0f} %",
        meaning="images withstand changes that can make any image grey: the gradients are masked or the steps too few",
    )


def _converged(at: _Seen, hard: _Seen) -> Check:
    drop, one = at.accuracy - hard.accuracy, 1 / len(at.right)
    weaker = "more effort makes it weaker: its gradients are noisy, raise eot"
    return Check(
        name="more steps and restarts change little, and help",
        passed=-SLACK - one <= drop <= CONVERGED + one,
        found=f"accuracy {_percent(at)}, with more {_percent(hard)}",
        meaning=weaker if drop < 0 else "the accuracy is too high: use more steps or restarts",
    )


def _no_stronger(weak: _Seen | None, strong: _Seen, called: str, name: str, meaning: str) -> Check:
    """Whether the weak attack leaves no lower accuracy than the strong one; it does not apply where there is none."""
    if weak is None:
        return Check(name=name, passed=None, found="the attack meets no noise", meaning=meaning)
    passed = weak.accuracy >= strong.accuracy - SLACK - 1 / len(strong.right)
    found = f"accuracy {_percent(weak)}, {called} {_percent(strong)}"
    return Check(name=name, passed=passed, found=found, meaning=meaning)


def _percent(seen: _Seen) -> str:
    return f"{100 * seen.accuracy:.1f} %"
