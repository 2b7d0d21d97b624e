"""Metrics: pure functions of predictions, of errors and of records.

Accuracies and errors are fractions; mCE and rmCE are ratios, 1 for the baseline itself. Averages are over cells
(corruption × severity), each counting the same.

To add a metric of predictions, write a function, enter it in MEASURES and give `records.Record` the fields NAME and
scaled_NAME, with None for records that were written before; its mean over the test sets is then a score. A metric that
is computed from records, as mCE is, needs an entry in `summary.SCORES` alone.
"""

import math
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, final

import numpy as np
import torch
from numpy.typing import NDArray
from scipy import optimize, special
from torch import Tensor

from ..errors import UserError
from .records import Bin, pack_hits

BINS = 15
"""Bins of the calibration error, as Guo et al. (2017) have it."""
LEAST = torch.finfo(torch.float32).tiny
"""Probabilities count as at least this in a logarithm."""
TEMPERATURES = (0.05, 20.0)
ROUNDING = 1e-12
"""Errors up to this are none: sums of fractions are not exact."""
CONFIDENCE = 0.95
Errors = Mapping[str, Sequence[float]]
"""Error under each corruption, at each severity."""


def score(probabilities: Tensor, labels: Tensor) -> dict[str, Any]:
    """What a record says of class probabilities, N×classes, against labels, N: counts, bins and all MEASURES."""
    p, y = probabilities.detach().double().cpu(), labels.cpu()
    right = p.max(-1).indices == y
    counts = {"n": len(y), "correct": int(right.sum()), "hits": pack_hits(right.numpy())}
    return {**counts, "bins": _bins(p, y), **measures(p, y)}


def confusion(probabilities: Tensor, labels: Tensor) -> tuple[tuple[int, ...], ...]:
    """Label, most probable class and number of images, for each pair that occurs, in their order."""
    pairs = torch.stack([labels.cpu(), probabilities.cpu().max(-1).indices], 1)
    found = Counter((int(a), int(b)) for a, b in pairs)
    return tuple((*pair, n) for pair, n in sorted(found.items()))


def measures(probabilities: Tensor, labels: Tensor) -> dict[str, float]:
    """All MEASURES of class probabilities, N×classes, against labels, N."""
    p, y = probabilities.detach().double().cpu(), labels.cpu()
    return {name: measure(p, y) for name, measure in MEASURES.items()}


def nll(p: Tensor, y: Tensor) -> float:
    """Mean negative log-likelihood."""
    return float(-p.gather(1, y[:, None]).clamp(min=LEAST).log().mean())


def brier(p: Tensor, y: Tensor) -> float:
    """Mean squared distance of the probabilities from the truth."""
    return float((p.square().sum(-1) - 2 * p.gather(1, y[:, None]).squeeze(1) + 1).mean())


def ece(bins: Sequence[Bin]) -> float:
    """Expected calibration error: the mean gap between confidence and accuracy, bins weighted by their size."""
    total = sum(b.n for b in bins)
    return sum(abs(b.correct - b.confidence) for b in bins) / total


MEASURES: dict[str, Callable[[Tensor, Tensor], float]] = {
    "nll": nll,
    "brier": brier,
    "ece": lambda p, y: ece(_bins(p, y)),
}
"""Functions of probabilities, N×classes in float64, and labels; each has two fields in `Record`: NAME, scaled_NAME."""


def _bins(p: Tensor, y: Tensor) -> tuple[Bin, ...]:
    confidence, predicted = p.max(-1)
    return reliability(confidence, predicted == y)


def reliability(confidence: Tensor, right: Tensor) -> tuple[Bin, ...]:
    """Predictions by confidence, in bins (0, 1/15], (1/15, 2/15], …"""
    place = (confidence * BINS).ceil().long().sub(1).clamp(0, BINS - 1)
    n = torch.bincount(place, minlength=BINS)
    correct = torch.bincount(place[right], minlength=BINS)
    total = torch.zeros(BINS, dtype=confidence.dtype).index_add_(0, place, confidence)
    return tuple(Bin(int(a), int(b), float(c)) for a, b, c in zip(n, correct, total, strict=True))


def pool(bins: Iterable[Sequence[Bin]]) -> tuple[Bin, ...]:
    """Several reliability diagrams as one, over all their predictions."""
    return tuple(Bin(*(sum(column) for column in zip(*same, strict=True))) for same in zip(*bins, strict=True))


def fit_temperature(log_probabilities: Tensor, labels: Tensor) -> float:
    """The T > 0 for which softmax(log p / T) has the least negative log-likelihood (Guo et al., 2017).

    Fit it on clean validation images, never on test images; logits, N×classes, will do as well.
    """
    z = log_probabilities.detach().double().cpu().log_softmax(-1).clamp(min=math.log(LEAST))  # as `nll` has it
    y = labels.cpu()

    def nll(log_temperature: float) -> float:
        return float(torch.nn.functional.cross_entropy(z / math.exp(log_temperature), y))

    bounds = tuple(math.log(t) for t in TEMPERATURES)
    found: Any = optimize.minimize_scalar(nll, bounds=bounds, method="bounded")
    return math.exp(float(found.x))


def apply_temperature(probabilities: Tensor, temperature: float) -> Tensor:
    """softmax(log p / T): what temperature scaling makes of class probabilities."""
    return (probabilities.double().clamp(min=LEAST).log() / temperature).softmax(-1)


def average_accuracy(errors: Errors) -> float:
    """One minus the mean error over corruptions and severities."""
    return 1 - _mean([_mean(levels) for levels in errors.values()])


def mce(errors: Errors, baseline: Errors) -> float:
    """Mean corruption error: mean over c of Σ_s E_cs / Σ_s E_cs(baseline).

    Not a number where the baseline makes no error under some corruption.
    """
    return rmce(errors, 0.0, baseline, 0.0)


def rmce(errors: Errors, clean: float, baseline: Errors, baseline_clean: float) -> float:
    """Relative mean corruption error: as mCE, of what corruption adds to the clean error.

    Hendrycks' definition, means over severities; the paper's formula subtracts the clean error once from a sum. Not a
    number where corruption costs the baseline nothing.
    """
    ratios = list[float]()
    for name, levels in errors.items():
        if name not in baseline:
            raise UserError(f"the baseline has no {name}; evaluate it on the same corruptions")
        base = _mean(baseline[name]) - baseline_clean
        ratios.append((_mean(levels) - clean) / base if base > ROUNDING else math.nan)
    return _mean(ratios)


@final
@dataclass(frozen=True)
class Estimate:
    """A mean over seeds and its 95 % interval, which one seed alone has not."""

    mean: float
    low: float | None
    high: float | None
    values: tuple[float, ...]

    @property
    def half_width(self) -> float | None:
        """Half the interval."""
        return None if self.high is None else self.high - self.mean


def estimate(values: Sequence[float]) -> Estimate:
    """Mean and 95 % interval by Student's t; the values count as independent."""
    if not values:
        raise UserError("a mean over seeds needs at least one value")
    mean, n = _mean(values), len(values)
    if n == 1:
        return Estimate(mean, None, None, tuple(values))
    spread = math.sqrt(sum((v - mean) ** 2 for v in values) / (n - 1) / n)
    half = float(special.stdtrit(n - 1, (1 + CONFIDENCE) / 2)) * spread
    return Estimate(mean, mean - half, mean + half, tuple(values))


class Difference(NamedTuple):
    """A paired difference of accuracies, its 95 % interval, and how often chance alone would give as much."""

    mean: float
    low: float
    high: float
    p: float


def paired_bootstrap(
    first: Sequence[NDArray[np.float64]],
    second: Sequence[NDArray[np.float64]],
    *,
    resamples: int = 2000,
    seed: int = 0,
) -> Difference:
    """How much better the first is than the second on the same images, which are drawn anew with replacement.

    Each entry of the arrays is one image's accuracy (over seeds, and over the corruptions of that image); several
    arrays are sets of different images, each counting the same. The networks stay as they are: this is the chance in
    the choice of test images; `estimate` has that in training.
    """
    if [len(a) for a in first] != [len(b) for b in second]:
        raise UserError("a paired comparison needs the same images on both sides")
    random = np.random.default_rng(seed)
    gains = [a - b for a, b in zip(first, second, strict=True)]
    drawn = np.zeros(resamples)
    for gain in gains:
        values, counts = np.unique(gain, return_counts=True)  # few: draw how often each comes, not which images
        drawn += random.multinomial(len(gain), counts / len(gain), size=resamples) @ values / len(gain) / len(gains)
    tail = (1 - CONFIDENCE) / 2
    low, high = np.quantile(drawn, [tail, 1 - tail])
    beyond = min(int((drawn <= 0).sum()), int((drawn >= 0).sum()))
    p = min(1.0, 2 * (beyond + 1) / (resamples + 1))  # the sample itself is one of the draws: p is never 0
    return Difference(_mean([float(gain.mean()) for gain in gains]), float(low), float(high), p)


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)
