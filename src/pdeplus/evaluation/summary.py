"""From records to what tables and figures show: series of comparable records, their scores, their gaps."""

import math
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from typing import TypeVar, final, get_args

import numpy as np
from numpy.typing import NDArray

from ..corruptions.base import SEVERITIES, Family
from ..corruptions.suite import CBAR, CORRUPTIONS, KNOWN, SUITE
from .metrics import MEASURES, Difference, Errors, Estimate, average_accuracy, estimate, mce, paired_bootstrap, rmce
from .records import CLEAN, Record, TestKey

Key = TypeVar("Key")
RecordsByTest = Mapping[TestKey, Record]
"""One seed's records."""
CLEAN_TEST: TestKey = (CLEAN, 0)
WORST = (SEVERITIES[-1],)


@final
@dataclass(frozen=True)
class Series:
    """A model as it was configured, selected and sampled, on one suite of one data set; its seeds are repetitions."""

    label: str
    data: str
    suite: str
    origin: str
    config: str
    selection: str
    samples: int
    average: str
    seeds: Mapping[int, RecordsByTest]
    trained_again: tuple[int, ...]
    """Seeds that were measured with several sets of weights, of which the last counts."""
    part: tuple[tuple[str, ...], tuple[int, ...]] | None = None
    """Of a partial test, the corruptions and severities that were measured and means are over."""

    @property
    def any(self) -> Record:
        """Some record, for what all have in common."""
        return next(iter(next(iter(self.seeds.values())).values()))

    @property
    def wanted(self) -> list[TestKey]:
        """What a complete seed holds: for domains and attacks, whatever some seed has."""
        if self.suite in ("corruptions", "cbar"):
            return [CLEAN_TEST, *((name, severity) for name in self.corruptions for severity in self.severities)]
        found = {cell for cells in self.seeds.values() for cell in cells} | {CLEAN_TEST}
        return sorted(found, key=lambda cell: (attack_size(cell[0]) if self.suite == "adversarial" else 0, cell))

    @property
    def gaps(self) -> dict[int, list[TestKey]]:
        """What each incomplete seed lacks."""
        lacking = {seed: [cell for cell in self.wanted if cell not in cells] for seed, cells in self.seeds.items()}
        return {seed: cells for seed, cells in lacking.items() if cells}

    @property
    def corruptions(self) -> tuple[str, ...]:
        """The corruptions that means are over: the fifteen, the ten of C̄, or those of a partial test."""
        if self.part is not None:
            return self.part[0]
        return CBAR if self.suite == "cbar" else CORRUPTIONS

    @property
    def severities(self) -> tuple[int, ...]:
        """The severities that means are over."""
        return SEVERITIES if self.part is None else self.part[1]

    @property
    def extent(self) -> str:
        """What means are over, such as "15 × 5" or "fog, snow × severities 1, 3"."""
        shown = [name if "." in name else name.replace("_", " ") for name in self.corruptions]
        names = ", ".join(shown) if len(shown) < 3 else len(shown)
        if self.severities == SEVERITIES:
            return f"{names} × {len(SEVERITIES)}"
        return f"{names} × severit{'y' if len(self.severities) == 1 else 'ies'} {', '.join(map(str, self.severities))}"

    @property
    def overlaps(self) -> list[str]:
        """The corruptions of this test that the training augmentations do as well."""
        return [name for name in self.any.overlaps if (name in CBAR) == (self.suite == "cbar")]

    @property
    def not_overlapping(self) -> list[str]:
        """The other corruptions of this test."""
        return [name for name in self.corruptions if name not in self.overlaps]

    @property
    def domains(self) -> list[str]:
        """The test sets of a suite of domains, but the training distribution's own."""
        return [name for name, _ in self.wanted if name != CLEAN] if self.suite == "domains" else []

    @property
    def attacks(self) -> list[str]:
        """The attacks of an adversarial suite, the smallest first."""
        return [name for name, _ in self.wanted if name != CLEAN] if self.suite == "adversarial" else []


def attack_size(name: str) -> float:
    """Epsilon, from what records call an attack, such as "pgd linf 8/255"; 0 for clean."""
    above, _, below = name.rpartition(" ")[2].partition("/")
    try:
        return float(above) / float(below or 1)
    except (ValueError, ZeroDivisionError):
        return 0.0


def series_of(records: Iterable[Record]) -> list[Series]:
    """Comparable records together, in the order of their first; records of different data sets never are.

    Labels that different configs of one data set share get the config's hash behind them. A seed that was trained
    again has other weights: its last ones count, never a mixture.
    """
    found = dict[tuple[str, str, str, str, str, str, int, str], dict[int, dict[TestKey, Record]]]()
    again = defaultdict[object, dict[int, None]](dict)
    configs = defaultdict[tuple[str, str], set[str]](set)
    for r in records:
        key = (r.model, r.data, r.suite, r.origin, r.config, r.selection, r.samples, r.average)
        tests = found.setdefault(key, {}).setdefault(r.seed, {})
        if any(other.weights != r.weights for other in tests.values()):
            tests.clear()
            again[key][r.seed] = None
        tests[r.cell] = r
        configs[r.model, r.data].add(r.config)
    every = [Series(*key, seeds, tuple(again[key])) for key, seeds in found.items()]
    return [replace(s, label=f"{s.label} #{s.config[:6]}") if len(configs[s.label, s.data]) > 1 else s for s in every]


def on_measured_tests(series: Sequence[Series]) -> list[Series]:
    """Series of corruptions with means over what all have measured, where one has no complete seed.

    That must be some corruptions at some severities, each with each, as a partial test has them; an evaluation that was
    interrupted leaves something else, and has no means.
    """
    plain = list(series)
    if all(len(s.gaps) < len(s.seeds) or s.suite not in ("corruptions", "cbar") for s in plain):
        return plain
    measured = [set(tests) - {CLEAN_TEST} for s in plain for tests in s.seeds.values()]
    common = set[TestKey].intersection(*measured)
    there = {name for name, _ in common}
    names = [name for name in dict.fromkeys((*KNOWN, *sorted(there))) if name in there]
    whole, severities = plain[0].corruptions, tuple(sorted({severity for _, severity in common}))
    if set(whole) <= set(names):
        names = list(whole)
    if not names or any((name, severity) not in common for name in names for severity in severities):
        return plain
    return [replace(s, part=(tuple(names), severities)) for s in plain]


def find_baseline(series: Series, among: Sequence[Series], label: str) -> Series | None:
    """The series of that label that was measured on the same images; noise-free before noisy."""
    same = [s for s in among if (s.data, s.suite, s.origin) == (series.data, series.suite, series.origin)]
    named = (s for s in same if s.label == label)
    return min(named, key=lambda s: (s.selection != series.selection, s.samples), default=None)


def scores(series: Series, baseline: Series | None = None) -> dict[str, Estimate]:
    """All SCORES that the records suffice for, each over the seeds that suffice for it; ratios need a baseline."""
    found = dict[str, Estimate]()
    seeds = [OneSeed(series, tests, baseline) for tests in series.seeds.values()]
    for name, score in SCORES.items():
        values = list[float]()
        for seed in seeds:
            with suppress(KeyError):  # it lacks a record that this score needs
                value = score(seed)
                values += [] if value is None or math.isnan(value) else [value]
        if values:
            found[name] = estimate(values)
    return found


@final
@dataclass(frozen=True)
class OneSeed:
    """What a score is computed from; asking for what the records lack is a KeyError."""

    series: Series
    tests: RecordsByTest
    baseline: Series | None

    @property
    def clean(self) -> Record:
        """The record of the clean test set."""
        return self.tests[CLEAN_TEST]

    @property
    def shifted(self) -> list[Record]:
        """The records of all domains, of all attacks, or of the suite's corruptions at all severities."""
        corrupted = [(name, severity) for name in self.series.corruptions for severity in self.series.severities]
        others = [(name, 0) for name in (*self.series.domains, *self.series.attacks)]
        return [self.tests[key] for key in others or corrupted]

    def errors(self, severities: Sequence[int] = SEVERITIES, names: Sequence[str] = CORRUPTIONS) -> Errors:
        """Errors under these corruptions."""
        if not names:
            raise KeyError("no corruption is left")
        return {name: [1 - self.tests[name, severity].accuracy for severity in severities] for name in names}

    def baseline_errors(self, severities: Sequence[int] = SEVERITIES) -> Errors:
        """The same and the clean error, means over the baseline's seeds that have them all."""
        found = list[Errors]()
        for tests in self.baseline.seeds.values() if self.baseline and self.baseline.suite == "corruptions" else ():
            with suppress(KeyError):
                seed = replace(self, tests=tests)
                found.append({CLEAN: [1 - seed.clean.accuracy], **seed.errors(severities)})
        if not found:
            raise KeyError("no seed of a baseline is complete")
        return {name: np.mean([errors[name] for errors in found], axis=0).tolist() for name in found[0]}


def _rmce(seed: OneSeed, severities: Sequence[int]) -> float:
    base = seed.baseline_errors(severities)
    return rmce(seed.errors(severities), 1 - seed.clean.accuracy, base, base[CLEAN][0])


def _family(seed: OneSeed, family: Family) -> float:
    names = [name for name in CORRUPTIONS if SUITE[name].family == family]
    return average_accuracy(seed.errors(seed.series.severities, names))


def _part(seed: OneSeed) -> float | None:
    s = seed.series
    return None if s.part is None else average_accuracy(seed.errors(s.severities, s.corruptions))


def _shifted_mean(seed: OneSeed, name: str) -> float | None:
    """Mean of a field over the shifted test sets; None where one has none."""
    values = [getattr(record, name) for record in seed.shifted]
    return None if None in values else float(np.mean(values))


SCORES: dict[str, Callable[[OneSeed], float | None]] = {
    "clean": lambda seed: seed.clean.accuracy,
    "clean_ece": lambda seed: seed.clean.ece,
    "clean_scaled_ece": lambda seed: seed.clean.scaled_ece,
    "ms": lambda seed: 1000 * sum(r.seconds for r in seed.tests.values()) / sum(r.n for r in seed.tests.values()),
    "domains": lambda seed: _shifted_mean(seed, "accuracy") if seed.series.domains else None,
    "worst_domain": lambda seed: min(r.accuracy for r in seed.shifted) if seed.series.domains else None,
    "adversarial": lambda seed: _shifted_mean(seed, "accuracy") if seed.series.attacks else None,
    "worst_attack": lambda seed: min(r.accuracy for r in seed.shifted) if seed.series.attacks else None,
    "corrupted": lambda seed: average_accuracy(seed.errors()),
    "part": _part,
    "error": lambda seed: 1 - average_accuracy(seed.errors()),
    "mce": lambda seed: mce(seed.errors(), seed.baseline_errors()),
    "rmce": lambda seed: _rmce(seed, SEVERITIES),
    "severe": lambda seed: average_accuracy(seed.errors(WORST)),
    "severe_error": lambda seed: 1 - average_accuracy(seed.errors(WORST)),
    "severe_mce": lambda seed: mce(seed.errors(WORST), seed.baseline_errors(WORST)),
    "severe_rmce": lambda seed: _rmce(seed, WORST),
    "nineteen": lambda seed: average_accuracy(seed.errors(names=tuple(SUITE))),
    "cbar": lambda seed: average_accuracy(seed.errors(names=CBAR)),
    "severe_cbar": lambda seed: average_accuracy(seed.errors(WORST, CBAR)),
    **{family: partial(_family, family=family) for family in get_args(Family)},
    "without_overlaps": lambda seed: average_accuracy(seed.errors(names=seed.series.not_overlapping)),
    **{name: partial(_shifted_mean, name=name) for name in (*MEASURES, *(f"scaled_{name}" for name in MEASURES))},
}
"""The scores by name, each a function of one seed's records. To add one, enter it here: tables ask for it by its name.

A seed has no score that is None or not a number, nor one that needs a record it lacks. ms is milliseconds an image;
part is the mean over a partial test; severe is severity 5; mce and rmce are ratios to the baseline; nineteen includes
the extra four; cbar is the ten of C̄;
without_overlaps leaves out what the training augmentations do as well; the measures are means over corruptions, domains
or attacks.
"""


def accuracies_by_test(series: Series) -> dict[TestKey, Estimate]:
    """Accuracy on each test set over the seeds that have it."""
    return _mean_accuracies(series, {test: [test] for tests in series.seeds.values() for test in tests})


def corruption_accuracies(series: Series) -> dict[str, Estimate]:
    """Mean accuracy over the severities of each corruption, over the seeds that have them all."""
    return _mean_accuracies(
        series, {name: [(name, severity) for severity in series.severities] for name in series.corruptions}
    )


def severity_accuracies(series: Series) -> dict[int, Estimate]:
    """Mean accuracy over the suite's corruptions at each severity; 0 is clean."""
    by_severity = {severity: [(name, severity) for name in series.corruptions] for severity in series.severities}
    return _mean_accuracies(series, {0: [CLEAN_TEST], **by_severity})


def _mean_accuracies(series: Series, groups: Mapping[Key, Sequence[TestKey]]) -> dict[Key, Estimate]:
    """Mean accuracy over each group of test sets, over the seeds that have them all; none where no seed has."""
    found = dict[Key, Estimate]()
    for key, group in groups.items():
        complete = [tests for tests in series.seeds.values() if all(test in tests for test in group)]
        if complete:
            found[key] = estimate([float(np.mean([tests[test].accuracy for test in group])) for tests in complete])
    return found


def training_ratio(series: Series, baseline: Series | None) -> float | None:
    """Operations of training over the baseline's, where both are known."""
    own, base = series.any.train_flops, baseline.any.train_flops if baseline else None
    return own / base if own and base else None


def compare(first: Series, second: Series) -> Difference | None:
    """The paired difference of mean accuracy, corrupted, attacked or on other domains; None where none pair up."""
    sides = [_per_image(s) for s in (first, second)]
    paired = _alike(first, second) and all(sides) and [len(a) for a in sides[0]] == [len(b) for b in sides[1]]
    return paired_bootstrap(*sides) if paired else None


def compare_seeds(first: Series, second: Series) -> Estimate | None:
    """The paired difference of mean accuracy, seed by seed, and its interval; None where fewer than two pair up."""
    both = [seed for seed in first.seeds if seed in second.seeds and seed not in {**first.gaps, **second.gaps}]
    if not _alike(first, second) or len(both) < 2:
        return None
    shifted = [test for test in first.wanted if test != CLEAN_TEST]
    pairs = [(first.seeds[seed], second.seeds[seed]) for seed in both]
    return estimate([float(np.mean([a[test].accuracy - b[test].accuracy for test in shifted])) for a, b in pairs])


def _alike(first: Series, second: Series) -> bool:
    """Whether two series are of the same test images."""
    return all(getattr(first, x) == getattr(second, x) for x in ("data", "suite", "origin", "domains", "attacks"))


def _per_image(series: Series) -> list[NDArray[np.float64]]:
    """Each image's accuracy over complete seeds and cells: one array for all corruptions or attacks, one per domain."""
    complete = [cells for seed, cells in series.seeds.items() if seed not in series.gaps]
    same_images = series.suite in ("corruptions", "cbar", "adversarial")
    groups = [[c for c in series.wanted if c != CLEAN_TEST]] if same_images else []
    groups += [[(name, 0)] for name in series.domains]
    if not complete or not all(cells[cell].hits for cells in complete for cell in series.wanted):
        return []
    if any(len({cells[cell].n for cells in complete for cell in group}) > 1 for group in groups):
        return []
    return [np.mean([cells[cell].right for cells in complete for cell in group], axis=0) for group in groups]
