"""The tables of a report; each about one group of series, never across data sets or images.

A column of the summary is one entry of `SUMMARY`; a column behind every table is one entry of `BEHIND`.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, final, get_args

from ..corruptions.base import Family
from ..evaluation.metrics import Estimate, estimate
from ..evaluation.records import CLEAN, Record
from ..evaluation.summary import corruption_accuracies, severity_accuracies, training_ratio
from .inputs import ORACLE, Group, Line
from .paper import paper_columns
from .tables import MISSING, Table, number, percent, show_p, spaced
from .verdict import class_tables
from .words import TESTS, gap_notes, oracle_notes, ratio_notes, temperature_notes, touch_notes


@final
@dataclass(frozen=True)
class Column:
    """A column of a table: its title, a line's cell in it, and which lines call for it where not all of them do."""

    title: str
    cell: Callable[[Line], str]
    when: Callable[[Line], object] | None = None
    detail: bool = False
    """Whether it stands behind the number of seeds, where a page folds it."""


def scored(
    title: str,
    score: str,
    when: Callable[[Line], object] | None = None,
    *,
    digits: int = 2,
    factor: float = 100,
    detail: bool = False,
) -> Column:
    """A score of `evaluation.summary.scores`, in per cent or times another factor."""
    return Column(title, lambda line: number(line.scores.get(score), digits, factor), when, detail)


PERCENT = "Per cent; ± is half the 95 % interval over seeds."
LEAK = " (chosen on the test corruptions)"
EACH_TEST = scored("", "")
"""Stands for a column for each domain, or each attack, of the group."""
SUMMARY = {
    "corruptions": [
        scored("clean", "clean"),
        scored("corrupted (15 × 5)", "corrupted"),
        scored("C̄ (10 × 5)", "cbar", lambda line: "cbar" in line.scores),
        scored("mCE", "mce"),
        scored("severity 5: accuracy", "severe"),
        scored("ECE, corrupted", "ece"),
        scored("unnormalised error", "error", detail=True),
        scored("rmCE", "rmce", detail=True),
        scored("severity 5: mCE", "severe_mce", detail=True),
        scored("severity 5: rmCE", "severe_rmce", detail=True),
        scored("ECE, scaled", "scaled_ece", detail=True),
        scored("all 19 × 5", "nineteen", lambda line: "nineteen" in line.scores, detail=True),
        scored("without overlapping corruptions", "without_overlaps", lambda line: line.series.overlaps, detail=True),
    ],
    "cbar": [
        scored("clean", "clean"),
        scored("C̄ (10 × 5)", "cbar"),
        scored("severity 5: accuracy", "severe_cbar"),
        scored("ECE, C̄", "ece"),
        scored("ECE, scaled", "scaled_ece"),
        scored("without overlapping corruptions", "without_overlaps", lambda line: line.series.overlaps),
    ],
    "domains": [
        scored("clean (source)", "clean"),
        EACH_TEST,
        scored("mean", "domains"),
        scored("worst", "worst_domain"),
        scored("ECE", "ece"),
    ],
    "adversarial": [scored("clean", "clean"), EACH_TEST, scored("mean under attack", "adversarial")],
    "clean": [scored("clean", "clean"), scored("ECE", "clean_ece")],
}
"""The columns of the summary of each suite: an entry here is all that a new one takes."""
COSTS: dict[str, tuple[float, Callable[[Record], float | None]]] = {
    "parameters, M": (1e6, lambda r: r.parameters),
    "training, s": (1, lambda r: r.train_seconds),
    "training, TFLOP": (1e12, lambda r: r.train_flops),
    "inference, GFLOP/image": (1e9, lambda r: r.flops),
}
"""Column titles, with the unit and where the value stands; figures show these, too."""


def _cost(title: str, line: Line) -> str:
    """The mean over the seeds that know it."""
    unit, get = COSTS[title]
    known = [value for r in _one_each(line) if (value := get(r)) is not None]
    return _rounded(sum(known) / len(known) / unit) if known else MISSING


def _known(title: str, line: Line) -> bool:
    """Whether a record of the line tells that cost; training costs of a model that was given are not known."""
    return line.series.selection != "given" or _cost(title, line) != MISSING


def _rounded(value: float) -> str:
    return f"{value:.0f}" if value >= 1000 else f"{value:.3g}"


def _ratio(line: Line) -> str:
    ratio = training_ratio(line.series, line.baseline)
    return f"{ratio:.2f}" if ratio else MISSING


BEHIND = [
    Column("seeds", lambda line: str(len(line.series.seeds))),
    Column("selection", lambda line: line.series.selection + LEAK * (line.series.selection == ORACLE), detail=True),
]
"""The columns behind those of every table: how many seeds, and how the weights were selected."""
COST = [
    *(Column(title, partial(_cost, title), partial(_known, title)) for title in COSTS),
    Column("training × baseline", _ratio, lambda line: _ratio(line) != MISSING),
    Column("ms/image", lambda line: _rounded(line.scores["ms"].mean)),
]
"""The columns of the table of costs."""


def tables_of(group: Group) -> dict[str, Table]:
    """Every table that the group's records suffice for, by a short name, in the order of the page."""
    found: dict[str, Table | None] = {"summary": summary(group), "costs": costs(group)}
    if group.suite in ("corruptions", "cbar"):
        found |= parts(group) | class_tables(group)
    if group.suite != "clean":
        found |= {"calibration": calibration(group), "comparison": comparison(group)}
        found |= {"overlaps": overlaps(group), "passes": passes(group)}
    return {name: table for name, table in found.items() if table is not None}


def summary(group: Group) -> Table:
    """All scores at a glance, the paper's beside ours."""
    names = {name: spaced(name) for name in group.domains} | {name: name for name in group.attacks}
    cells = {line.name: line.cells for line in group.lines}
    each = [Column(title, _from(cells, (name, 0))) for name, title in names.items()]
    entries = _partial_summary(group) if group.part else SUMMARY[group.suite]
    columns = [c for entry in entries for c in (each if entry is EACH_TEST else [entry])]
    notes = [PERCENT, f"Tested on {group.title}.", *gap_notes(group), *touch_notes(group)]
    if group.suite == "corruptions" and not group.part:
        notes += ratio_notes(group)
    if group.suite in ("corruptions", "cbar"):
        notes += temperature_notes(group)
    return _table(f"Summary: {group.name}", group.lines, columns, notes, paper_columns(group))


def costs(group: Group) -> Table:
    """What each line cost in training and costs in prediction."""
    unknown = [title for title in COSTS if any(_cost(title, line) == MISSING for line in group.lines)]
    notes = [f"Not in the records: {', '.join(unknown)} (where it says {MISSING})."] if unknown else []
    return _table(f"Cost: {group.name}", group.lines, COST, notes)


def _partial_summary(group: Group) -> list[Column]:
    """The columns of a partial test, which say what they are means over."""
    return [
        scored("clean", "clean"),
        scored(f"corrupted ({group.part})", "part"),
        scored("corrupted (15 × 5)", "corrupted", lambda line: "corrupted" in line.scores),
        scored("severity 5: accuracy", "severe", lambda line: "severe" in line.scores),
        scored("ECE, corrupted", "ece"),
        scored("ECE, clean", "clean_ece"),
    ]


def parts(group: Group) -> dict[str, Table]:
    """Accuracy under each corruption, under each family of them, and at each severity."""
    by_corruption = {line.name: corruption_accuracies(line.series) for line in group.lines}
    by_severity = {line.name: severity_accuracies(line.series) for line in group.lines}
    corruptions = [Column(spaced(name), _from(by_corruption, name)) for name in group.corruptions]
    families = [scored(family, family) for family in get_args(Family)]
    severities = [Column(str(severity or CLEAN), _from(by_severity, severity)) for severity in (0, *group.severities)]
    found = dict[str, Table]()
    for name, title, columns, over in (
        ("corruptions", "Each corruption", corruptions, "severities " + ", ".join(map(str, group.severities))),
        ("families", "Each family", families, "the family's corruptions and severities"),
        ("severities", "Each severity", severities, group.all_corruptions),
    ):
        whole = any(family in line.scores for line in group.lines for family in get_args(Family))
        if name == "families" and not whole:  # C̄ has none, a partial test perhaps no whole one
            continue
        notes = [f"Accuracy in per cent, mean over {over}.", *gap_notes(group)]
        found[name] = _table(f"{title}: {group.name}", group.lines, columns, notes)
    return found


def calibration(group: Group) -> Table:
    """How far confidence can be believed."""
    columns = [
        scored(title + words, prefix + score, digits=digits, factor=factor, detail=detail)
        for prefix, words, detail in (("", "", False), ("scaled_", ", scaled", True))
        for title, score, digits, factor in (("ECE, %", "ece", 2, 100), ("NLL", "nll", 3, 1), ("Brier", "brier", 3, 1))
    ]
    columns += [scored("clean ECE, %", "clean_ece"), scored("clean ECE, %, scaled", "clean_scaled_ece", detail=True)]
    columns.append(Column("temperature", _temperature, detail=True))
    tests = TESTS.get(group.suite, group.suite)
    notes = [f"Means over the test {tests}; scaled: after temperature scaling on clean validation."]
    notes += [*gap_notes(group), *temperature_notes(group)]
    return _table(f"Calibration: {group.name}", group.lines, columns, notes)


def comparison(group: Group) -> Table | None:
    """Paired differences against the baseline; None where no line has one."""
    lines = [line for line in group.lines if line.baseline is not None and line.baseline is not line.series]
    if not lines:
        return None
    columns = [
        Column("difference, points", lambda line: f"{100 * d.mean:+.2f}" if (d := line.difference) else MISSING),
        Column(
            "95 % interval",
            lambda line: f"{100 * d.low:+.2f} to {100 * d.high:+.2f}" if (d := line.difference) else MISSING,
        ),
        Column("p", lambda line: show_p(line.difference.p) if line.difference else MISSING),
    ]
    notes = ["Paired bootstrap over test images, with fixed networks; seeds are averaged first."]
    unpaired = [line.name for line in lines if line.difference is None]
    if unpaired:
        way = "one side has no complete seed, no record of single images, or other images"
        notes += [f"Not comparable image by image ({way}): {', '.join(unpaired)}.", *gap_notes(group)]
    titles = {"corruptions": "Corrupted accuracy", "cbar": "Accuracy on C̄", "adversarial": "Mean accuracy under attack"}
    what = titles.get(group.suite, "Mean accuracy on other domains")
    return _table(f"{what} against {group.baseline}: {group.name}", lines, columns, notes)


def overlaps(group: Group) -> Table | None:
    """Which test corruptions a series has seen in training; None where none has."""
    lines = [line for line in group.lines if line.series.overlaps]
    if not lines or group.suite not in ("corruptions", "cbar"):
        return None
    columns = [
        Column("seen in training", lambda line: spaced(", ".join(line.series.overlaps))),
        scored("C̄" if group.suite == "cbar" else "corrupted", group.main_score),
        scored("without these", "without_overlaps"),
    ]
    notes = [PERCENT, "A training augmentation that resembles a test corruption makes that test easier."]
    return _table(f"Overlap audit: {group.name}", lines, columns, [*notes, *gap_notes(group, lines)])


def passes(group: Group) -> Table | None:
    """Accuracy and calibration against the noisy passes E; None where no label has several."""
    lines = group.several_passes
    if not lines:
        return None
    titles = {"corruptions": "corrupted", "cbar": "C̄", "adversarial": "under attack"}
    columns = [
        Column("E", lambda line: str(line.series.samples)),
        scored("clean", "clean"),
        scored(titles.get(group.suite, "other domains"), group.main_score),
        scored("ECE", "ece"),
        scored("NLL", "nll", digits=3, factor=1),
    ]
    notes = [PERCENT, "E = 0 is the network without noise.", *gap_notes(group, lines)]
    return _table(f"Noisy passes: {group.name}", lines, columns, notes)


def _from(found: Mapping[str, Mapping[Any, Estimate]], key: object) -> Callable[[Line], str]:
    """The value under a key, by the name of the line."""
    return lambda line: percent(found[line.name].get(key))


def _one_each(line: Line) -> list[Record]:
    """A record of each seed."""
    return [next(iter(cells.values())) for cells in line.series.seeds.values()]


def _temperature(line: Line) -> str:
    known = [r.temperature for r in _one_each(line) if r.temperature is not None]
    return number(estimate(known), 3) if known else MISSING


def _table(
    title: str,
    lines: Sequence[Line],
    columns: Sequence[Column],
    notes: Iterable[str],
    filled: Sequence[tuple[str, list[str]]] = (),
) -> Table:
    """The columns that answer the question, the number of seeds, then details and what is filled already."""

    def fill(*, detail: bool) -> list[tuple[str, list[str]]]:
        some = [c for c in (*columns, *BEHIND) if c.detail == detail and (c.when is None or any(map(c.when, lines)))]
        return [(c.title, [c.cell(line) for line in lines]) for c in some]

    answers = fill(detail=False)
    front = [column for column in answers if {*column[1]} != {MISSING}]
    rest = [*(column for column in answers if column not in front), *filled, *fill(detail=True)]
    shown = [*front, *rest]
    rows = zip([line.name for line in lines], *(cells for _, cells in shown), strict=True)
    every = dict.fromkeys([*notes, *oracle_notes(lines)])
    return Table(
        title,
        ("series", *(name for name, _ in shown)),
        tuple(rows),
        tuple(every),
        1 + len(front) if len(rest) > 1 else 0,
    )
