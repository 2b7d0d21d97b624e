"""Why a score is missing, over what it was averaged, and how often test images were looked at."""

from collections.abc import Iterable

from ..corruptions.base import SEVERITIES
from ..corruptions.suite import CORRUPTIONS
from ..metrics import ROUNDING, estimate
from ..summary import CLEAN_CELL, WORST, Cell, Series
from .groups import ORACLE, Group, Line

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
        free = [c for c in CORRUPTIONS if mean[c] - errors[CLEAN_CELL] <= ROUNDING]
        if none:
            notes.append(f"mCE{where} is not a number: {name} makes no error under {_words(none)}.")
        if free:
            notes.append(f"rmCE{where} is not a number: {name} loses nothing under {_words(free)}.")
    return notes


def _listed(cells: list[Cell]) -> str:
    shown = [f"{name} {severity}" if severity else name for name, severity in cells[:LISTED]]
    more = len(cells) - LISTED
    return ", ".join(shown) + (f" and {more} more" if more > 0 else "")


def _words(names: Iterable[str]) -> str:
    return ", ".join(name.replace("_", " ") for name in names)
