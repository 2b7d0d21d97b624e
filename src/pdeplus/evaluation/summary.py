"""From records to what tables and figures show: series of comparable records, their scores, their gaps."""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import final, get_args

import numpy as np
from numpy.typing import NDArray

from ..corruptions.base import SEVERITIES, Family
from ..corruptions.suite import CORRUPTIONS, SUITE
from .metrics import Difference, Errors, Estimate, average_accuracy, estimate, mce, paired_bootstrap, rmce
from .records import CLEAN, Record

TestKey = tuple[str, int]
RecordsByTest = Mapping[TestKey, Record]
"""One seed's records."""
CLEAN_TEST: TestKey = (CLEAN, 0)
WORST = (SEVERITIES[-1],)


@final
@dataclass(frozen=True, kw_only=True)
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
    seeds: Mapping[int, RecordsByTest] = field(default_factory=dict[int, RecordsByTest])
    trained_again: tuple[int, ...] = ()
    """Seeds that were measured with several sets of weights, of which the last counts."""

    @property
    def any(self) -> Record:
        """Some record, for what all have in common."""
        return next(iter(next(iter(self.seeds.values())).values()))

    @property
    def wanted(self) -> list[TestKey]:
        """What a complete seed holds: for domains and attacks, whatever some seed has."""
        if self.suite == "corruptions":
            return [CLEAN_TEST, *((name, severity) for name in CORRUPTIONS for severity in SEVERITIES)]
        found = {cell for cells in self.seeds.values() for cell in cells} | {CLEAN_TEST}
        return sorted(found, key=lambda cell: (attack_size(cell[0]) if self.suite == "adversarial" else 0, cell))

    @property
    def gaps(self) -> dict[int, list[TestKey]]:
        """What each incomplete seed lacks."""
        lacking = {seed: [cell for cell in self.wanted if cell not in cells] for seed, cells in self.seeds.items()}
        return {seed: cells for seed, cells in lacking.items() if cells}

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
    found = dict[tuple[object, ...], dict[int, dict[TestKey, Record]]]()
    again = dict[tuple[object, ...], dict[int, None]]()
    for r in records:
        key = (r.model, r.data, r.suite, r.origin, r.config, r.selection, r.samples, r.average)
        cells = found.setdefault(key, {}).setdefault(r.seed, {})
        if any(other.weights != r.weights for other in cells.values()):
            cells.clear()
            again.setdefault(key, {})[r.seed] = None
        cells[r.cell] = r
    every = [_series(seeds, again.get(key, ())) for key, seeds in found.items()]
    configs = dict[tuple[str, str], set[str]]()
    for s in every:
        configs.setdefault((s.label, s.data), set()).add(s.config)
    return [replace(s, label=f"{s.label} #{s.config[:6]}") if len(configs[s.label, s.data]) > 1 else s for s in every]


def find_baseline(series: Series, among: Sequence[Series], label: str) -> Series | None:
    """The series of that label that was measured on the same images; noise-free before noisy."""
    same = [s for s in among if (s.data, s.suite, s.origin) == (series.data, series.suite, series.origin)]
    named = sorted((s for s in same if s.label == label), key=lambda s: (s.selection != series.selection, s.samples))
    return named[0] if named else None


def scores(series: Series, baseline: Series | None = None) -> dict[str, Estimate]:
    """Every score the records suffice for, by name, over the seeds that suffice for it.

    clean, corrupted, error, mce, rmce; severe, severe_error, severe_mce, severe_rmce (severity 5); noise, blur,
    weather, digital; nineteen (with the extra four); without_overlaps; nll, brier, ece and scaled_… of the corrupted
    cells; clean_ece, clean_scaled_ece; domains and worst_domain; adversarial (mean over the attacks) and worst_attack;
    ms (milliseconds an image). Ratios need a baseline.
    """
    rows = [_seed_scores(series, cells, baseline) for cells in series.seeds.values()]
    names = dict.fromkeys(name for row in rows for name in row)
    return {name: estimate([row[name] for row in rows if name in row]) for name in names}


def accuracies_by_test(series: Series) -> dict[TestKey, Estimate]:
    """Accuracy in each cell over the seeds that have it."""
    cells = dict.fromkeys(cell for one in series.seeds.values() for cell in one)
    return {cell: estimate([one[cell].accuracy for one in series.seeds.values() if cell in one]) for cell in cells}


def corruption_accuracies(series: Series) -> dict[str, Estimate]:
    """Mean accuracy over the severities of each corruption, over the seeds that have all five."""
    found = dict[str, Estimate]()
    for name in CORRUPTIONS:
        cells = [(name, severity) for severity in SEVERITIES]
        values = [_mean_accuracy(one, cells) for one in series.seeds.values() if all(cell in one for cell in cells)]
        if values:
            found[name] = estimate(values)
    return found


def severity_accuracies(series: Series) -> dict[int, Estimate]:
    """Mean accuracy over the fifteen corruptions at each severity; 0 is clean."""
    found = dict[int, Estimate]()
    for severity in (0, *SEVERITIES):
        cells = [CLEAN_TEST] if severity == 0 else [(name, severity) for name in CORRUPTIONS]
        values = [_mean_accuracy(one, cells) for one in series.seeds.values() if all(cell in one for cell in cells)]
        if values:
            found[severity] = estimate(values)
    return found


def training_ratio(series: Series, baseline: Series | None) -> float | None:
    """Operations of training over the baseline's, where both are known."""
    own, base = series.any.train_flops, baseline.any.train_flops if baseline else None
    return own / base if own and base else None


def compare(first: Series, second: Series) -> Difference | None:
    """The paired difference of mean accuracy, corrupted, attacked or on foreign domains; None where none pair up."""
    alike = ("data", "suite", "origin", "domains", "attacks")
    same = all(getattr(first, name) == getattr(second, name) for name in alike)
    sides = [_per_image(s) for s in (first, second)]
    if not same or not all(sides):
        return None
    if [len(a) for a in sides[0]] != [len(b) for b in sides[1]]:
        return None
    return paired_bootstrap(*sides)


def _series(seeds: Mapping[int, RecordsByTest], again: Iterable[int]) -> Series:
    r = next(iter(next(iter(seeds.values())).values()))
    return Series(
        label=r.model,
        data=r.data,
        suite=r.suite,
        origin=r.origin,
        config=r.config,
        selection=r.selection,
        samples=r.samples,
        average=r.average,
        seeds=seeds,
        trained_again=tuple(again),
    )


def _errors(cells: RecordsByTest, names: Sequence[str], severities: Sequence[int]) -> Errors | None:
    """None where a cell is missing."""
    wanted = [(name, severity) for name in names for severity in severities]
    if not names or not all(cell in cells for cell in wanted):
        return None
    return {name: [1 - cells[name, severity].accuracy for severity in severities] for name in names}


@final
@dataclass(frozen=True)
class _Baseline:
    clean: float
    errors: Errors


def _errors_of_baseline(baseline: Series | None, severities: Sequence[int]) -> _Baseline | None:
    """Mean over the baseline's seeds that have all corruptions at these severities; None where none has."""
    seeds = baseline.seeds.values() if baseline is not None and baseline.suite == "corruptions" else ()
    found = [(cells, _errors(cells, CORRUPTIONS, severities)) for cells in seeds if CLEAN_TEST in cells]
    every = [errors for _, errors in found if errors is not None]
    if not every:
        return None
    clean = float(np.mean([1 - cells[CLEAN_TEST].accuracy for cells, errors in found if errors is not None]))
    return _Baseline(clean, {name: np.mean([e[name] for e in every], axis=0).tolist() for name in CORRUPTIONS})


def _seed_scores(series: Series, cells: RecordsByTest, baseline: Series | None) -> dict[str, float]:
    found = dict[str, float]()
    if CLEAN_TEST in cells:
        clean = cells[CLEAN_TEST]
        found |= {"clean": clean.accuracy, "clean_ece": clean.ece}
        if clean.scaled_ece is not None:
            found["clean_scaled_ece"] = clean.scaled_ece
    found["ms"] = 1000 * sum(r.seconds for r in cells.values()) / sum(r.n for r in cells.values())
    if series.suite == "domains":
        return found | _mean_scores(cells, series.domains, "domains", "worst_domain")
    if series.suite == "adversarial":
        return found | _mean_scores(cells, series.attacks, "adversarial", "worst_attack")
    for prefix, severities in (("", SEVERITIES), ("severe_", WORST)):
        found |= _corruption_scores(cells, severities, prefix, _errors_of_baseline(baseline, severities))
    everything = _errors(cells, tuple(SUITE), SEVERITIES)
    if everything:
        found["nineteen"] = average_accuracy(everything)
    for family in get_args(Family):
        errors = _errors(cells, [n for n in CORRUPTIONS if SUITE[n].family == family], SEVERITIES)
        if errors:
            found[family] = average_accuracy(errors)
    kept = _errors(cells, [name for name in CORRUPTIONS if name not in series.any.overlaps], SEVERITIES)
    if kept:
        found["without_overlaps"] = average_accuracy(kept)
    wanted = [(name, severity) for name in CORRUPTIONS for severity in SEVERITIES]
    return found | _calibration(cells, wanted)


def _corruption_scores(
    cells: RecordsByTest, severities: Sequence[int], prefix: str, base: _Baseline | None
) -> dict[str, float]:
    errors = _errors(cells, CORRUPTIONS, severities)
    if errors is None:
        return {}
    accuracy = average_accuracy(errors)
    found = {"severe" if prefix else "corrupted": accuracy, f"{prefix}error": 1 - accuracy}
    if base is None:
        return found
    found[f"{prefix}mce"] = mce(errors, base.errors)
    if CLEAN_TEST in cells:
        clean = 1 - cells[CLEAN_TEST].accuracy
        found[f"{prefix}rmce"] = rmce(errors, clean, base.errors, base.clean)
    return {name: value for name, value in found.items() if not math.isnan(value)}


def _mean_scores(cells: RecordsByTest, names: Sequence[str], mean: str, worst: str) -> dict[str, float]:
    wanted = [(name, 0) for name in names]
    if not wanted or not all(cell in cells for cell in wanted):
        return {}
    each = [cells[cell].accuracy for cell in wanted]
    return {mean: float(np.mean(each)), worst: min(each)} | _calibration(cells, wanted)


def _calibration(cells: RecordsByTest, wanted: Sequence[TestKey]) -> dict[str, float]:
    """Means over the cells; scaled ones only where every cell has them."""
    if not all(cell in cells for cell in wanted):
        return {}
    measures: dict[str, Callable[[Record], float | None]] = {
        "nll": lambda r: r.nll,
        "brier": lambda r: r.brier,
        "ece": lambda r: r.ece,
        "scaled_nll": lambda r: r.scaled_nll,
        "scaled_brier": lambda r: r.scaled_brier,
        "scaled_ece": lambda r: r.scaled_ece,
    }
    found = dict[str, float]()
    for name, measure in measures.items():
        values = [value for cell in wanted if (value := measure(cells[cell])) is not None]
        if len(values) == len(wanted):
            found[name] = float(np.mean(values))
    return found


def _mean_accuracy(cells: RecordsByTest, wanted: Sequence[TestKey]) -> float:
    return float(np.mean([cells[cell].accuracy for cell in wanted]))


def _per_image(series: Series) -> list[NDArray[np.float64]]:
    """Each image's accuracy over complete seeds and cells: one array for all corruptions or attacks, one per domain."""
    complete = [cells for seed, cells in series.seeds.items() if seed not in series.gaps]
    same_images = series.suite in ("corruptions", "adversarial")
    groups = [[c for c in series.wanted if c != CLEAN_TEST]] if same_images else []
    groups += [[(name, 0)] for name in series.domains]
    if not complete or not all(cells[cell].hits for cells in complete for cell in series.wanted):
        return []
    if any(len({cells[cell].n for cells in complete for cell in group}) > 1 for group in groups):
        return []
    return [np.mean([cells[cell].right for cells in complete for cell in group], axis=0) for group in groups]
