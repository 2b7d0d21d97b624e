"""From records to what tables and figures show: series of comparable records, their scores, their gaps."""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import final, get_args

import numpy as np
from numpy.typing import NDArray

from .corruptions.base import SEVERITIES, Family
from .corruptions.suite import CORRUPTIONS, SUITE
from .metrics import Difference, Errors, Estimate, average_accuracy, estimate, mce, paired_bootstrap, rmce
from .records import CLEAN, Record

Cell = tuple[str, int]
Cells = Mapping[Cell, Record]
"""One seed's records."""
CLEAN_CELL: Cell = (CLEAN, 0)
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
    seeds: Mapping[int, Cells] = field(default_factory=dict[int, Cells])

    @property
    def any(self) -> Record:
        """Some record, for what all have in common."""
        return next(iter(next(iter(self.seeds.values())).values()))

    @property
    def wanted(self) -> list[Cell]:
        """What a complete seed holds: for domains, whatever some seed has."""
        if self.suite == "corruptions":
            return [CLEAN_CELL, *((name, severity) for name in CORRUPTIONS for severity in SEVERITIES)]
        return sorted({cell for cells in self.seeds.values() for cell in cells} | {CLEAN_CELL})

    @property
    def gaps(self) -> dict[int, list[Cell]]:
        """What each incomplete seed lacks."""
        lacking = {seed: [cell for cell in self.wanted if cell not in cells] for seed, cells in self.seeds.items()}
        return {seed: cells for seed, cells in lacking.items() if cells}

    @property
    def domains(self) -> list[str]:
        """The test sets of a suite of domains, but the training distribution's own."""
        return [name for name, _ in self.wanted if name != CLEAN] if self.suite == "domains" else []


def series_of(records: Iterable[Record]) -> list[Series]:
    """Comparable records together, in the order of their first; records of different data sets never are.

    Labels that different configs of one data set share get the config's hash behind them. A seed that was trained
    again has other weights: its last ones count, never a mixture.
    """
    found = dict[tuple[object, ...], dict[int, dict[Cell, Record]]]()
    for r in records:
        key = (r.model, r.data, r.suite, r.origin, r.config, r.selection, r.samples, r.average)
        cells = found.setdefault(key, {}).setdefault(r.seed, {})
        if any(other.weights != r.weights for other in cells.values()):
            cells.clear()
        cells[r.cell] = r
    every = [_series(seeds) for seeds in found.values()]
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
    weather, digital; without_overlaps; nll, brier, ece and scaled_… of the corrupted cells; clean_ece,
    clean_scaled_ece; domains and worst_domain; ms (milliseconds an image). Ratios need a baseline.
    """
    base = _errors_of_baseline(baseline)
    rows = [_seed_scores(series, cells, base) for cells in series.seeds.values()]
    names = dict.fromkeys(name for row in rows for name in row)
    return {name: estimate([row[name] for row in rows if name in row]) for name in names}


def cell_accuracies(series: Series) -> dict[Cell, Estimate]:
    """Accuracy in each cell over the seeds that have it."""
    cells = dict.fromkeys(cell for one in series.seeds.values() for cell in one)
    return {cell: estimate([one[cell].accuracy for one in series.seeds.values() if cell in one]) for cell in cells}


def severity_accuracies(series: Series) -> dict[int, Estimate]:
    """Mean accuracy over the fifteen corruptions at each severity; 0 is clean."""
    found = dict[int, Estimate]()
    for severity in (0, *SEVERITIES):
        cells = [CLEAN_CELL] if severity == 0 else [(name, severity) for name in CORRUPTIONS]
        values = [_mean_accuracy(one, cells) for one in series.seeds.values() if all(cell in one for cell in cells)]
        if values:
            found[severity] = estimate(values)
    return found


def compare(first: Series, second: Series) -> Difference | None:
    """The paired difference of mean corrupted (or foreign domains') accuracy; None where images cannot be paired."""
    same = all(getattr(first, name) == getattr(second, name) for name in ("data", "suite", "origin", "domains"))
    sides = [_per_image(s) for s in (first, second)]
    if not same or not all(sides):
        return None
    if [len(a) for a in sides[0]] != [len(b) for b in sides[1]]:
        return None
    return paired_bootstrap(*sides)


def _series(seeds: Mapping[int, Cells]) -> Series:
    r = next(iter(next(iter(seeds.values())).values()))
    common = {"data": r.data, "suite": r.suite, "origin": r.origin, "config": r.config, "selection": r.selection}
    return Series(label=r.model, **common, samples=r.samples, average=r.average, seeds=seeds)


def _errors(cells: Cells, names: Sequence[str], severities: Sequence[int]) -> Errors | None:
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


def _errors_of_baseline(baseline: Series | None) -> _Baseline | None:
    """Mean over the baseline's complete seeds; None where it has none."""
    if baseline is None:
        return None
    complete = [cells for seed, cells in baseline.seeds.items() if seed not in baseline.gaps]
    if not complete or baseline.suite != "corruptions":
        return None
    clean = float(np.mean([1 - cells[CLEAN_CELL].accuracy for cells in complete]))
    every = [_errors(cells, CORRUPTIONS, SEVERITIES) or {} for cells in complete]
    return _Baseline(clean, {name: np.mean([e[name] for e in every], axis=0).tolist() for name in CORRUPTIONS})


def _seed_scores(series: Series, cells: Cells, base: _Baseline | None) -> dict[str, float]:
    found = dict[str, float]()
    if CLEAN_CELL in cells:
        clean = cells[CLEAN_CELL]
        found |= {"clean": clean.accuracy, "clean_ece": clean.ece}
        if clean.scaled_ece is not None:
            found["clean_scaled_ece"] = clean.scaled_ece
    found["ms"] = 1000 * sum(r.seconds for r in cells.values()) / sum(r.n for r in cells.values())
    if series.suite == "domains":
        return found | _domain_scores(series, cells)
    for prefix, severities in (("", SEVERITIES), ("severe_", WORST)):
        found |= _corruption_scores(cells, severities, prefix, base)
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
    cells: Cells, severities: Sequence[int], prefix: str, base: _Baseline | None
) -> dict[str, float]:
    errors = _errors(cells, CORRUPTIONS, severities)
    if errors is None:
        return {}
    accuracy = average_accuracy(errors)
    found = {"severe" if prefix else "corrupted": accuracy, f"{prefix}error": 1 - accuracy}
    if base is None:
        return found
    reference = {name: [levels[severity - 1] for severity in severities] for name, levels in base.errors.items()}
    found[f"{prefix}mce"] = mce(errors, reference)
    if CLEAN_CELL in cells:
        clean = 1 - cells[CLEAN_CELL].accuracy
        found[f"{prefix}rmce"] = rmce(errors, clean, reference, base.clean)
    return {name: value for name, value in found.items() if not math.isnan(value)}


def _domain_scores(series: Series, cells: Cells) -> dict[str, float]:
    wanted = [(name, 0) for name in series.domains]
    if not wanted or not all(cell in cells for cell in wanted):
        return {}
    each = [cells[cell].accuracy for cell in wanted]
    return {"domains": float(np.mean(each)), "worst_domain": min(each)} | _calibration(cells, wanted)


def _calibration(cells: Cells, wanted: Sequence[Cell]) -> dict[str, float]:
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


def _mean_accuracy(cells: Cells, wanted: Sequence[Cell]) -> float:
    return float(np.mean([cells[cell].accuracy for cell in wanted]))


def _per_image(series: Series) -> list[NDArray[np.float64]]:
    """Each image's accuracy over complete seeds and cells: one array for corruptions, one per domain; else empty."""
    complete = [cells for seed, cells in series.seeds.items() if seed not in series.gaps]
    groups = [[c for c in series.wanted if c != CLEAN_CELL]] if series.suite == "corruptions" else []
    groups += [[(name, 0)] for name in series.domains]
    if not complete or not all(cells[cell].hits for cells in complete for cell in series.wanted):
        return []
    if any(len({cells[cell].n for cells in complete for cell in group}) > 1 for group in groups):
        return []
    return [np.mean([cells[cell].right for cells in complete for cell in group], axis=0) for group in groups]
