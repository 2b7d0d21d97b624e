"""What the report says in sentences: the finding, the protocol, and the notes under its tables."""

from collections.abc import Iterable, Sequence

from ..corruptions.base import SEVERITIES
from ..corruptions.suite import CORRUPTIONS
from ..evaluation.metrics import ROUNDING, estimate
from ..evaluation.summary import CLEAN_TEST, WORST
from .inputs import ORACLE, Group, Line
from .tables import percent, show_p, spaced

LISTED = 20
"""Missing test sets that a note names before it only counts."""
TESTS = {"adversarial": "attacks", "cbar": "corruptions of C̄"}
"""What a suite's tests are in a sentence, where its name does not say it."""
PLACES = {
    "clean": "on clean images",
    "corrupted": "under corruption",
    "part": "under corruption",
    "cbar": "on C̄",
    "domains": "on other domains",
    "adversarial": "under attack",
}
"""Where a main score is measured."""
C_BAR = (
    "cbar: C̄, ten corruptions chosen to be unlike the fifteen common ones (Mintun et al., 2021), as a second test. "
    "Nothing is trained, validated or selected on them, and no mean over the fifteen includes them."
)
SELECTIONS = {
    "last": "last: the weights after the last epoch; no epoch was selected.",
    "validation": "validation: the epoch that is best on held-out training images, clean and under the four "
    "validation corruptions; the fifteen test corruptions are used once.",
    ORACLE: "oracle: the epoch that is best on the test corruptions themselves. The authors do this; test images "
    "leak into the selection, and the numbers are optimistic.",
    "given": "given: the model was tested as it is; how its weights were chosen is not known.",
}


def unbroken(text: str) -> str:
    """The text with every number on one line."""
    for pair in (" ± ", " × ", " %", " points)", "p < ", "p = "):
        text = text.replace(pair, pair.replace(" ", "\u00a0"))
    return text


def finding(group: Group) -> str:
    """One sentence: who is best of those that saw no test images, and by how much against the baseline."""
    score = group.main_score
    named = group.origin.rpartition("#")[0].rstrip(", ")  # of domains, it names the source
    images = named if named and group.suite == "domains" else group.data
    ranked = [line for line in group.honest if score in line.scores]
    if not ranked:
        return f"On {images}, no series has all the test sets that a mean needs."
    best = ranked[0]
    extent = f" ({group.part})" if group.part else ""
    what = f"mean accuracy {PLACES[score]}{extent}"
    if len(ranked) == 1 and best.baseline in (None, best.series):
        return f"On {images}, {best.name} has a {what} of {percent(best.scores[score])} %."
    start = f"On {images}, {best.name} has the best {what}, {percent(best.scores[score])} %"
    if best.baseline is best.series:
        return f"{start}: none of the {len(ranked) - 1} others beats the baseline."
    if best.baseline is None:
        return f"{start}; there is no baseline to compare it with."
    d = best.difference
    if d is None:
        return f"{start}; image by image it cannot be compared with {best.baseline.label}."
    p = "p < 0.001" if d.p < 0.001 else f"p = {show_p(d.p)}"
    interval = f"95 % interval {100 * d.low:+.2f} to {100 * d.high:+.2f}, {p}"
    return f"{start}, {100 * d.mean:+.2f} points against {best.baseline.label} ({interval}, paired bootstrap)."


def protocol(groups: Sequence[Group]) -> list[str]:
    """How weights were chosen and where images come from, a sentence each."""
    selections = dict.fromkeys(line.series.selection for group in groups for line in group.lines)
    origins = [f"Images of {group.data}, {group.suite}: {group.origin}." for group in groups]
    rest = [
        "Series are compared only on the same images; data sets and origins are never mixed.",
        "Temperatures are fitted on clean validation images.",
    ]
    tests = [C_BAR] if any(group.suite == "cbar" for group in groups) else []
    return [*(SELECTIONS[name] for name in selections), *tests, *dict.fromkeys(origins), *rest]


def oracle_notes(lines: Iterable[Line]) -> list[str]:
    """That an oracle leaks, and that adapted BatchNorm uses test images, where there is one."""
    names = [line.name for line in lines if line.series.selection == ORACLE]
    said = "were chosen on the test corruptions themselves (oracle), as the authors do"
    notes = [f"The weights of {', '.join(names)} {said}: test images leak into the selection."] if names else []
    adapted = "In rows marked so, BatchNorm uses the statistics of whole test batches, not those from training."
    return [*notes, *([adapted] if any(line.series.any.adapted for line in lines) else [])]


def gap_notes(group: Group, lines: Iterable[Line] | None = None) -> list[str]:
    """What each seed of some lines, or of all, lacks, and over how many seeds the scores therefore are."""
    notes = list[str]()
    for line in group.lines if lines is None else lines:
        series, gaps = line.series, line.series.gaps
        if absent := [name for name in group.domains if name not in series.domains]:
            notes.append(f"{line.name} was not tested on {spaced(', '.join(absent))}: no mean over domains.")
        if spared := [name for name in group.attacks if name not in series.attacks]:
            notes.append(f"{line.name} was not tested with {', '.join(spared)}: no mean over attacks.")
        notes += [
            f"{line.name} seed {seed} was measured with several sets of weights: the last are shown."
            for seed in series.trained_again
        ]
        for seed, cells in gaps.items():
            listed = ", ".join(f"{name} {severity}" if severity else name for name, severity in cells[:LISTED])
            more = f" and {len(cells) - LISTED} more" if len(cells) > LISTED else ""
            lacks = f"lacks {len(cells)} of {len(series.wanted)} test sets: {listed}{more}."
            notes.append(f"{line.name} seed {seed} {lacks}")
        left = line.scores[group.main_score].values if group.main_score in line.scores else ()
        if gaps and left:
            seeds = f"{len(left)} of its {len(series.seeds)} seeds"
            notes.append(f"Scores of {line.name} use only complete seeds: {group.main_score} uses {seeds}.")
    return notes


def ratio_notes(group: Group) -> list[str]:
    """Why mCE and rmCE are missing where complete records are there: no baseline, or zero in a denominator."""
    if all(line.baseline is None for line in group.lines):
        needed = f"mCE and rmCE need a baseline: no series is called {group.baseline!r}"
        labels = dict.fromkeys(line.series.label for line in group.lines)
        return [f"{needed} (baseline=, or --baseline, chooses another: {', '.join(labels)})."]
    notes = list[str]()
    for base in {id(line.baseline): line.baseline for line in group.lines if line.baseline is not None}.values():
        name = next(line.name for line in group.lines if line.series is base)
        if len(base.gaps) == len(base.seeds):
            notes.append(f"mCE and rmCE need a baseline with all test sets: {name} has no complete seed.")
            continue
        complete = [cells for seed, cells in base.seeds.items() if seed not in base.gaps]
        errors = {c: 1 - estimate([cells[c].accuracy for cells in complete]).mean for c in base.wanted}
        for where, severities in (("", SEVERITIES), (" at severity 5", WORST)):
            mean = {c: sum(errors[c, s] for s in severities) / len(severities) for c in CORRUPTIONS}
            if none := [c for c in CORRUPTIONS if mean[c] <= ROUNDING]:
                notes.append(f"mCE{where} is not a number: {name} makes no error under {spaced(', '.join(none))}.")
            if free := [c for c in CORRUPTIONS if mean[c] - errors[CLEAN_TEST] <= ROUNDING]:
                notes.append(f"rmCE{where} is not a number: {name} loses nothing under {spaced(', '.join(free))}.")
    return notes


def temperature_notes(group: Group) -> list[str]:
    """Who has no temperature."""
    lines = [line for line in group.lines if "ece" in line.scores and "scaled_ece" not in line.scores]
    names = ", ".join(line.name for line in lines)
    return [f"No temperature was fitted, because there were no validation images: {names}."] if lines else []


def touch_notes(group: Group) -> list[str]:
    """How many selections of the same run were measured on the test images."""
    chosen, tests = dict[tuple[str, str], dict[str, None]](), TESTS.get(group.suite, group.suite)
    for line in group.lines:
        how = f"{line.series.selection}, E={line.series.samples}" if line.series.samples else line.series.selection
        chosen.setdefault((line.series.label, line.series.config), {})[how] = None
    return [
        f"{label} was evaluated in {len(found)} ways ({'; '.join(found)}), so the test {tests} were used "
        f"{len(found)} times{' and once for every kept epoch' * (ORACLE in found)}; choosing among them by these "
        "numbers would leak test data."
        for (label, _), found in chosen.items()
        if len(found) > 1
    ]
