"""The tables of a report; each about one group of series, never across data sets or images."""

from collections.abc import Callable, Iterable, Sequence
from typing import get_args

from ..corruptions.base import SEVERITIES, Family
from ..corruptions.suite import CORRUPTIONS
from ..evaluation.metrics import ROUNDING, estimate
from ..evaluation.records import CLEAN, Record
from ..evaluation.summary import (
    CLEAN_TEST,
    WORST,
    Series,
    TestKey,
    corruption_accuracies,
    severity_accuracies,
    training_ratio,
)
from .inputs import ORACLE, Group, Line
from .paper import paper_columns
from .tables import MISSING, Table, number, percent

LISTED = 20
"""Missing cells that a note names before it only counts."""
TESTS = {"adversarial": "attacks"}
"""What a suite's tests are in a sentence, where its name does not say it."""


def oracle_notes(lines: Iterable[Line]) -> list[str]:
    """That an oracle leaks, where there is one."""
    names = [line.name for line in lines if line.series.selection == ORACLE]
    said = (
        "were chosen on the test corruptions themselves (oracle), as the authors do: test images leak into the choice"
    )
    return [f"The weights of {', '.join(names)} {said}."] if names else []


def gap_notes(group: Group, lines: Iterable[Line] | None = None) -> list[str]:
    """What each seed lacks, and over how many seeds the scores therefore are; of some lines, or of all."""
    notes = list[str]()
    for line in group.lines if lines is None else lines:
        absent = [name for name in group.domains if name not in line.series.domains]
        if absent:
            notes.append(f"{line.name} was not tested on {_words(absent)}: no mean over domains.")
        spared = [name for name in group.attacks if name not in line.series.attacks]
        if spared:
            notes.append(f"{line.name} was not tested with {', '.join(spared)}: no mean over attacks.")
        series, gaps = line.series, line.series.gaps
        notes += [
            f"{line.name} seed {seed} was measured with several sets of weights: the last are shown."
            for seed in series.trained_again
        ]
        for seed, cells in gaps.items():
            notes.append(f"{line.name} seed {seed} lacks {len(cells)} of {len(series.wanted)} cells: {_listed(cells)}.")
        left = line.scores[group.main_score].values if group.main_score in line.scores else ()
        if gaps and left:
            seeds = f"{len(left)} of its {len(series.seeds)} seeds"
            notes.append(f"Scores of {line.name} are over the seeds that suffice: {group.main_score} over {seeds}.")
    return notes


def ratio_notes(group: Group) -> list[str]:
    """Why mCE and rmCE are missing where complete records are there."""
    if group.suite != "corruptions":
        return []
    if all(line.baseline is None for line in group.lines):
        needed = f"mCE and rmCE need a baseline: no series is called {group.baseline!r}"
        return [f"{needed} (baseline=, or --baseline, chooses another: {', '.join(dict.fromkeys(_labels(group)))})."]
    notes = list[str]()
    for base in _baselines(group):
        name = next(line.name for line in group.lines if line.series is base)
        if len(base.gaps) == len(base.seeds):
            notes.append(f"mCE and rmCE need a baseline with all cells: {name} has no complete seed.")
        else:
            notes += _undefined(base, name)
    return notes


def temperature_notes(group: Group) -> list[str]:
    """Who has no temperature."""
    lines = [line for line in group.lines if "ece" in line.scores and "scaled_ece" not in line.scores]
    names = ", ".join(line.name for line in lines)
    return [f"No temperature, as there were no validation images to fit it on: {names}."] if lines else []


def touch_notes(group: Group) -> list[str]:
    """How many selections of the same run were measured on the test images."""
    chosen, tests = dict[tuple[str, str], dict[str, None]](), TESTS.get(group.suite, group.suite)
    for line in group.lines:
        how = f"{line.series.selection}, E={line.series.samples}" if line.series.samples else line.series.selection
        chosen.setdefault((line.series.label, line.series.config), {})[how] = None
    return [
        f"{label} was evaluated in {len(found)} ways ({'; '.join(found)}), so the test {tests} were touched "
        f"{len(found)} times{' and once for every kept epoch' * (ORACLE in found)}; choosing among them by these "
        "numbers would leak."
        for (label, _), found in chosen.items()
        if len(found) > 1
    ]


def _labels(group: Group) -> list[str]:
    return [line.series.label for line in group.lines]


def _baselines(group: Group) -> list[Series]:
    found = {id(line.baseline): line.baseline for line in group.lines if line.baseline is not None}
    return list(found.values())


def _undefined(base: Series, name: str) -> list[str]:
    """Ratios whose denominator is zero: the corruptions at which the baseline loses nothing."""
    complete = {seed: cells for seed, cells in base.seeds.items() if seed not in base.gaps}
    errors = {c: 1 - estimate([one[c].accuracy for one in complete.values()]).mean for c in base.wanted}
    notes = list[str]()
    for where, severities in (("", SEVERITIES), (" at severity 5", WORST)):
        mean = {c: sum(errors[c, s] for s in severities) / len(severities) for c in CORRUPTIONS}
        none = [c for c in CORRUPTIONS if mean[c] <= ROUNDING]
        free = [c for c in CORRUPTIONS if mean[c] - errors[CLEAN_TEST] <= ROUNDING]
        if none:
            notes.append(f"mCE{where} is not a number: {name} makes no error under {_words(none)}.")
        if free:
            notes.append(f"rmCE{where} is not a number: {name} loses nothing under {_words(free)}.")
    return notes


def _listed(cells: list[TestKey]) -> str:
    shown = [f"{name} {severity}" if severity else name for name, severity in cells[:LISTED]]
    more = len(cells) - LISTED
    return ", ".join(shown) + (f" and {more} more" if more > 0 else "")


def _words(names: Iterable[str]) -> str:
    return ", ".join(name.replace("_", " ") for name in names)


Column = tuple[str, list[str]]
"""Title, and a cell for each line."""
COSTS: dict[str, tuple[float, Callable[[Record], float | None]]] = {
    "parameters, M": (1e6, lambda r: r.parameters),
    "training, s": (1, lambda r: r.train_seconds),
    "training, TFLOP": (1e12, lambda r: r.train_flops),
    "inference, GFLOP/image": (1e9, lambda r: r.flops),
}
"""Column titles, with the unit and where the value stands."""
PERCENT = "Per cent; ± is half the 95 % interval over seeds."


def tables_of(group: Group) -> dict[str, Table]:
    """Every table that the group's records suffice for, by a short name, in the order of the page."""
    made = {"summary": summary(group)}
    if group.suite == "corruptions":
        made |= {"corruptions": corruptions(group), "families": families(group), "severities": severities(group)}
    if group.suite != "clean":
        made["calibration"] = calibration(group)
        optional = {"comparison": comparison(group), "overlaps": overlaps(group), "passes": passes(group)}
        made |= {name: table for name, table in optional.items() if table is not None}
    return made


def summary(group: Group) -> Table:
    """All scores at a glance, the paper's beside ours, and what they cost."""
    columns = _score_columns(group) + paper_columns(group)
    notes = [PERCENT, *gap_notes(group), *touch_notes(group), *_cost_notes(group.lines)]
    if group.suite == "corruptions":
        notes += [*ratio_notes(group), *temperature_notes(group)]
    return _table(f"Summary: {group.title}", group.lines, columns, notes)


def corruptions(group: Group) -> Table:
    """Accuracy under each corruption."""
    found = [corruption_accuracies(line.series) for line in group.lines]
    columns = [(_word(name), [percent(one.get(name)) for one in found]) for name in CORRUPTIONS]
    notes = ["Accuracy in per cent, mean over the five severities.", *gap_notes(group)]
    return _table(f"Each corruption: {group.title}", group.lines, columns, notes)


def families(group: Group) -> Table:
    """Accuracy under each family of corruptions."""
    columns = [_scored(group, family, family) for family in get_args(Family)]
    notes = ["Accuracy in per cent, mean over the family's corruptions and severities.", *gap_notes(group)]
    return _table(f"Each family: {group.title}", group.lines, columns, notes)


def severities(group: Group) -> Table:
    """Accuracy at each severity."""
    found = [severity_accuracies(line.series) for line in group.lines]
    columns = [
        (str(severity) if severity else CLEAN, [percent(one.get(severity)) for one in found])
        for severity in (0, *SEVERITIES)
    ]
    notes = ["Accuracy in per cent, mean over the fifteen corruptions.", *gap_notes(group)]
    return _table(f"Each severity: {group.title}", group.lines, columns, notes)


def calibration(group: Group) -> Table:
    """How far confidence can be believed."""
    shown = (("NLL", "nll", 3, 1), ("Brier", "brier", 3, 1), ("ECE, %", "ece", 2, 100))
    columns = list[Column]()
    for prefix, words in (("", ""), ("scaled_", ", scaled")):
        for title, name, digits, factor in shown:
            cells = [number(line.scores.get(prefix + name), digits, factor) for line in group.lines]
            columns.append((title + words, cells))
    columns.append(("clean ECE, %", [line.percent("clean_ece") for line in group.lines]))
    columns.append(("clean ECE, %, scaled", [line.percent("clean_scaled_ece") for line in group.lines]))
    columns.append(("temperature", [_temperature(line) for line in group.lines]))
    tests = TESTS.get(group.suite, group.suite)
    notes = [f"Means over the cells of the test {tests}; scaled: after temperature scaling on clean validation."]
    notes += [*gap_notes(group), *temperature_notes(group)]
    return _table(f"Calibration: {group.title}", group.lines, columns, notes)


def comparison(group: Group) -> Table | None:
    """Paired differences against the baseline; None where no line has one."""
    lines = [line for line in group.lines if line.baseline is not None and line.baseline is not line.series]
    if not lines:
        return None
    found = [line.difference for line in lines]
    columns = [
        ("difference, points", [MISSING if d is None else f"{100 * d.mean:+.2f}" for d in found]),
        ("95 % interval", [MISSING if d is None else f"{100 * d.low:+.2f} to {100 * d.high:+.2f}" for d in found]),
        ("p", [MISSING if d is None else show_p(d.p) for d in found]),
    ]
    notes = ["Paired bootstrap over test images, the networks as they are; seeds are averaged first."]
    unpaired = [line.name for line, d in zip(lines, found, strict=True) if d is None]
    if unpaired:
        way = "one side has no complete seed, no record of single images, or other images"
        notes += [f"Not comparable image by image ({way}): {', '.join(unpaired)}.", *gap_notes(group)]
    titles = {"corruptions": "Corrupted accuracy", "adversarial": "Mean accuracy under attack"}
    what = titles.get(group.suite, "Mean accuracy on foreign domains")
    return _table(f"{what} against {group.baseline}: {group.title}", lines, columns, notes)


def overlaps(group: Group) -> Table | None:
    """Which test corruptions a series has seen in training; None where none has."""
    lines = [line for line in group.lines if line.series.any.overlaps]
    if not lines or group.suite != "corruptions":
        return None
    columns = [
        ("seen in training", [", ".join(_word(name) for name in line.series.any.overlaps) for line in lines]),
        ("corrupted", [line.percent("corrupted") for line in lines]),
        ("without these", [line.percent("without_overlaps") for line in lines]),
    ]
    notes = [PERCENT, "A training augmentation that does what a test corruption does makes that test easier."]
    return _table(f"Overlap audit: {group.title}", lines, columns, [*notes, *gap_notes(group, lines)])


def passes(group: Group) -> Table | None:
    """Accuracy and calibration against the noisy passes E; None where no label has several."""
    lines = several_passes(group)
    if not lines:
        return None
    titles = {"corruptions": "corrupted", "adversarial": "under attack"}
    score, title = group.main_score, titles.get(group.suite, "foreign domains")
    columns = [
        ("E", [str(line.series.samples) for line in lines]),
        ("clean", [line.percent("clean") for line in lines]),
        (title, [line.percent(score) for line in lines]),
        ("ECE", [line.percent("ece") for line in lines]),
        ("NLL", [number(line.scores.get("nll"), 3) for line in lines]),
    ]
    notes = [PERCENT, "E = 0 is the network without noise.", *gap_notes(group, lines)]
    return _table(f"Noisy passes: {group.title}", lines, columns, notes)


def several_passes(group: Group) -> list[Line]:
    """The lines whose label has several E, by label and E."""
    known = dict[tuple[str, str], set[int]]()
    for line in group.lines:
        known.setdefault((line.series.label, line.series.selection), set()).add(line.series.samples)
    lines = [line for line in group.lines if len(known[line.series.label, line.series.selection]) > 1]
    return sorted(lines, key=lambda line: (line.series.label, line.series.selection, line.series.samples))


def show_p(p: float) -> str:
    """As far as two thousand draws tell."""
    return "< 0.001" if p < 0.001 else f"{p:.3f}"


def _score_columns(group: Group) -> list[Column]:
    if group.suite == "domains":
        each = [(_word(name), [percent(line.cells.get((name, 0))) for line in group.lines]) for name in group.domains]
        ends = [_scored(group, "mean", "domains"), _scored(group, "worst", "worst_domain")]
        return [_scored(group, "clean (source)", "clean"), *each, *ends, _scored(group, "ECE", "ece")]
    if group.suite == "adversarial":
        each = [(name, [percent(line.cells.get((name, 0))) for line in group.lines]) for name in group.attacks]
        return [_scored(group, "clean", "clean"), *each, _scored(group, "mean under attack", "adversarial")]
    if group.suite == "clean":
        return [_scored(group, "clean", "clean"), _scored(group, "ECE", "clean_ece")]
    shown = [("clean", "clean"), ("corrupted (15 × 5)", "corrupted"), ("unnormalised error", "error")]
    shown += [("mCE", "mce"), ("rmCE", "rmce"), ("severity 5: accuracy", "severe")]
    shown += [("severity 5: mCE", "severe_mce"), ("severity 5: rmCE", "severe_rmce")]
    shown += [("ECE, corrupted", "ece"), ("ECE, scaled", "scaled_ece")]
    if any("nineteen" in line.scores for line in group.lines):
        shown.append(("all 19 × 5", "nineteen"))
    if any(line.series.any.overlaps for line in group.lines):
        shown.append(("without overlapping corruptions", "without_overlaps"))
    return [_scored(group, title, name) for title, name in shown]


def _origin_columns(lines: Sequence[Line]) -> list[Column]:
    seeds = [str(len(line.series.seeds)) for line in lines]
    return [("seeds", seeds), ("selection", [line.selection for line in lines])]


def _cost_columns(lines: Sequence[Line]) -> list[Column]:
    columns = list[Column]()
    for title, (unit, get) in COSTS.items():
        columns.append((title, [_cost((get(r) for r in _one_each(line)), unit) for line in lines]))
    ratios = [training_ratio(line.series, line.baseline) for line in lines]
    if any(ratios):
        columns.append(("training × baseline", [f"{ratio:.2f}" if ratio else MISSING for ratio in ratios]))
    return [*columns, ("ms/image", [_cost([line.scores["ms"].mean], 1) for line in lines])]


def _cost_notes(lines: Sequence[Line]) -> list[str]:
    unknown = [title for title, cells in _cost_columns(lines) if title in COSTS and MISSING in cells]
    return [f"Not in the records: {', '.join(unknown)} (where it says {MISSING})."] if unknown else []


def _one_each(line: Line) -> list[Record]:
    return [next(iter(cells.values())) for cells in line.series.seeds.values()]


def _cost(values: Iterable[float | None], unit: float) -> str:
    """The mean over the seeds that know it."""
    known = [value for value in values if value is not None]
    if not known:
        return MISSING
    mean = sum(known) / len(known) / unit
    return f"{mean:.0f}" if mean >= 1000 else f"{mean:.3g}"


def _temperature(line: Line) -> str:
    known = [r.temperature for r in _one_each(line) if r.temperature is not None]
    return number(estimate(known), 3) if known else MISSING


def _scored(group: Group, title: str, score: str) -> Column:
    return title, [line.percent(score) for line in group.lines]


def _word(name: str) -> str:
    return name.replace("_", " ")


def _table(title: str, lines: Sequence[Line], columns: Sequence[Column], notes: Iterable[str]) -> Table:
    """With how the weights were selected, and at what cost, behind whatever the table shows."""
    shown = [*columns, *_origin_columns(lines), *_cost_columns(lines)]
    rows = zip([line.name for line in lines], *(cells for _, cells in shown), strict=True)
    every = dict.fromkeys([*notes, *oracle_notes(lines)])
    return Table(title, ("series", *(name for name, _ in shown)), tuple(rows), tuple(every))
