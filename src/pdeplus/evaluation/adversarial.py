"""The adversarial suite: an attack at several sizes on the very model that is tested, and whether to believe it."""

import json
import math
import warnings
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, cast, final

import torch
from torch import Tensor, nn

from .._lib.files import write_file
from .._lib.seeds import generator_for
from ..attacks.gradient_attacks import Attack, attacking, build_attack, expected_logits, in_parts, resized
from ..attacks.sanity import IMAGES, Check, Sanity, sanity
from ..attacks.steps import Logits, Norm
from ..core.network import logits_of
from ..data.base import Images
from ..errors import UserError
from .test_sets import TestSet, TestSuite
from .tested_models import ModelUnderTest

FILE = "sanity.json"
EPSILONS: dict[Norm, tuple[float, ...]] = {"linf": (1 / 255, 2 / 255, 4 / 255, 8 / 255), "l2": (0.1, 0.25, 0.5, 1.0)}
"""Sizes of an attack where none are asked for."""
EOT = 10
"""Noisy passes whose average is attacked, where none are asked for."""
ROWS_AT_ONCE = 128
"""Images × noisy passes in one step: their features are all in memory until its gradient is there."""


@final
@dataclass(frozen=True)
class Threat:
    """An attack, its sizes, and how it meets noise."""

    attack: Attack
    epsilons: tuple[float, ...]
    eot: int
    seed: int

    @property
    def about(self) -> str:
        """All that changes its images except the sizes, in the same words for models with and without noise."""
        noise = f"the mean of {self.eot} noisy passes" if self.eot else "the network without its noise"
        attack = f"{self.attack.name} {self.attack.norm}, {self.attack.effort}, seed {self.seed}"
        return f"{attack}, following {noise} where the model predicts with noise (EoT {self.eot})"

    def against(self, tested: ModelUnderTest, tests: TestSuite) -> TestSuite:
        """The clean test set and, for each size, its images changed to mislead the model.

        A model without gradients is refused, and one that has noise of its own.
        """
        clean = tests.sets[0]
        one = Images(clean.read().take(torch.arange(1)).images, torch.zeros(1, dtype=torch.long))
        self._change(tested, self.epsilons[-1], one, [0])
        with torch.no_grad(), torch.random.fork_rng():
            first, second = (_logits(tested, 0, None)(one.floats().to(tested.device)) for _ in range(2))
        if not torch.allclose(first, second, rtol=1e-3, atol=1e-4):  # no average over its own noise would be followed
            way_out = "give one whose noise is in ADD blocks (pdeplus.noise_layers) with samples=E, or its average"
            raise UserError(f"the model gives different outputs for the same images; {way_out}")
        sets = [
            TestSet(self.name(epsilon), 0, clean.read, partial(self._change, tested, epsilon), ROWS_AT_ONCE)
            for epsilon in self.epsilons
        ]
        return replace(tests, origin=f"{tests.origin}; {self.about}", sets=(clean, *sets))

    def check(self, tested: ModelUnderTest, tests: TestSuite, folder: Path | None) -> None:
        """Write the sanity checks on some images into the folder, unless it has them; warn of those that fail."""
        about = {"model": tested.about["model"], "origin": tests.origin}
        about |= {key: tested.about[key] for key in ("weights", "samples", "average")}
        known = read_sanity(folder) if folder is not None else []
        if any(_same(one, about | {"epsilons": [*self.epsilons]}) for one in known):
            return
        found = self._sanity(tested, tests)
        if folder is not None:
            kept = [one for one in known if not _same(one, about)]
            new = about | {"epsilons": self.epsilons} | asdict(found)
            write_file(folder / FILE, json.dumps([*kept, new], indent=1).encode())
        for check in found.failed:
            warnings.warn(f"sanity of {self.attack.name}: {check.line}", stacklevel=4)

    def name(self, epsilon: float) -> str:
        """What records call the attack of that size."""
        size = f"{255 * epsilon:.6g}/255" if self.attack.norm == "linf" else f"{epsilon:g}"
        return f"{self.attack.name} {self.attack.norm} {size}"

    def _passes_and_rows(self, tested: ModelUnderTest) -> tuple[int, int]:
        """Noisy passes of a step, and images in one."""
        passes = self.eot if tested.about["samples"] else 0
        return passes, max(ROWS_AT_ONCE // max(passes, 1), 1)

    def _change(self, tested: ModelUnderTest, epsilon: float, batch: Images, places: Sequence[int]) -> Tensor:
        """The attack on one batch; its random numbers depend on its first place."""
        stream = generator_for(self.seed, "attack", self.name(epsilon), places[0], device=tested.device)
        attack, (passes, rows) = resized(self.attack, epsilon), self._passes_and_rows(tested)
        x, labels = batch.floats().to(tested.device), batch.labels.to(tested.device)
        with _frozen(tested.model):
            return in_parts(attack, _logits(tested, passes, stream), x, labels, stream, rows).cpu()

    def _sanity(self, tested: ModelUnderTest, tests: TestSuite) -> Sanity:
        every = tests.sets[0].read()
        n = min(len(every), IMAGES)
        images = every.take(torch.arange(n) * len(every) // n)
        stream = generator_for(self.seed, "sanity noise", device=tested.device)
        passes, rows = self._passes_and_rows(tested)
        with _frozen(tested.model):
            return sanity(
                self.attack,
                _logits(tested, passes, stream),
                images.floats().to(tested.device),
                images.labels.to(tested.device),
                epsilons=self.epsilons,
                predict=lambda x: tested.predict(x, generator_for(0, "sanity", device=tested.device)),
                plain=_logits(tested, 0, stream) if passes else None,
                rows=rows,
                seed=self.seed,
            )


def build_threat(attack: Attack | str | None, epsilons: Sequence[float] | None, eot: int | None, seed: int) -> Threat:
    """The threat that was asked for; None stands for the default."""
    chosen = attack if isinstance(attack, Attack) else build_attack("pgd" if attack is None else attack)
    own = (chosen.epsilon,) if isinstance(attack, Attack) else EPSILONS[chosen.norm]
    sizes = tuple(sorted(set(own if epsilons is None else epsilons)))
    if not sizes or not all(0 < size < math.inf for size in sizes):
        raise UserError(f"epsilons={list(sizes)} must be at least one number above 0, such as 8/255")
    if chosen.norm == "linf" and sizes[-1] > 1:
        meant = f"; did you mean {sizes[-1]:g}/255?" if sizes[-1] <= 255 else ""
        raise UserError(f"epsilon {sizes[-1]:g} is more than the whole range of a pixel, 0 to 1{meant}")
    passes = EOT if eot is None else eot
    if passes < 0:
        raise UserError(f"eot={passes} must be 0 (the network without its noise) or more")
    return Threat(chosen, sizes, passes, seed)


def read_sanity(folder: Path) -> list[dict[str, Any]]:
    """What the folder's file of sanity checks holds; a missing or damaged one holds nothing."""
    try:
        return [dict(one) for one in cast(list[Any], json.loads((folder / FILE).read_bytes()))]
    except (OSError, ValueError, TypeError, RecursionError):
        return []


def sanity_lines(folder: Path, model: str, origin: str, weights: str, samples: int) -> list[str]:
    """The verdicts on one evaluation, a line each; none where the file is damaged."""
    wanted = {"model": model, "origin": origin, "weights": weights, "samples": samples}
    try:
        return [Check(**check).line for one in read_sanity(folder) if _same(one, wanted) for check in one["checks"]]
    except (LookupError, TypeError):
        return []


def _same(one: dict[str, Any], wanted: dict[str, Any]) -> bool:
    return all(one.get(key) == value for key, value in wanted.items())


def _frozen(model: object) -> AbstractContextManager[None]:
    return attacking(model) if isinstance(model, nn.Module) else nullcontext()


def _logits(tested: ModelUnderTest, passes: int, generator: torch.Generator | None) -> Logits:
    """What an attack follows uphill, over so many noisy passes, 0 for none: differentiable wherever the model is."""

    def logits(x: Tensor) -> Tensor:
        if tested.about["samples"]:
            net, average = cast(nn.Module, tested.model), tested.about["average"]
            return expected_logits(net, x, passes, generator=generator, average=average)
        found = logits_of(tested.model(x)).float()
        return found if tested.outputs == "logits" else found.clamp(min=torch.finfo(torch.float32).tiny).log()

    return logits
