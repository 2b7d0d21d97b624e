"""Series that may stand in one table: the same images, the best first."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import final

from ..metrics import Difference, Estimate
from ..records import Record
from ..summary import Series, attack_size, cell_accuracies, compare, find_baseline, scores, series_of
from .tables import MISSING, percent

ORACLE = "oracle"
SELECTIONS = {ORACLE: "oracle (chosen on the test corruptions)"}


@final
@dataclass(frozen=True)
class Line:
    """A series, what the report calls it, and its scores."""

    name: str
    """No other line of its group has it."""
    series: Series
    baseline: Series | None
    scores: Mapping[str, Estimate]

    @cached_property
    def cells(self) -> Mapping[tuple[str, int], Estimate]:
        """Accuracy in each cell."""
        return cell_accuracies(self.series)

    @cached_property
    def difference(self) -> Difference | None:
        """Against the baseline; None where it is the baseline or images cannot be paired."""
        if self.baseline is None or self.baseline is self.series:
            return None
        return compare(self.series, self.baseline)

    @property
    def selection(self) -> str:
        """How the weights were chosen, in words."""
        return SELECTIONS.get(self.series.selection, self.series.selection)

    def percent(self, score: str) -> str:
        """A score in per cent, or that it is missing."""
        return percent(self.scores[score]) if score in self.scores else MISSING


@final
@dataclass(frozen=True)
class Group:
    """What was measured on the same images; the best line first."""

    data: str
    suite: str
    origin: str
    lines: tuple[Line, ...]
    baseline: str
    """The label that was asked for."""

    @property
    def title(self) -> str:
        """The images that all lines share."""
        count = f", {self.lines[0].series.any.n} images" if self.suite != "domains" else ""
        return f"{self.data}, {self.suite}{count} ({self.origin})"

    @property
    def honest(self) -> list[Line]:
        """The lines that were not chosen on test images; all where there is no other."""
        return [line for line in self.lines if line.series.selection != ORACLE] or list(self.lines)

    @property
    def domains(self) -> list[str]:
        """Every foreign domain that some line was tested on."""
        return list(dict.fromkeys(name for line in self.lines for name in line.series.domains))

    @property
    def attacks(self) -> list[str]:
        """Every attack that some line was tested with, the smallest first."""
        names = dict.fromkeys(name for line in self.lines for name in line.series.attacks)
        return sorted(names, key=attack_size)

    @property
    def main_score(self) -> str:
        """What lines are ordered by."""
        return {"corruptions": "corrupted", "domains": "domains", "adversarial": "adversarial"}.get(self.suite, "clean")


def groups_of(records: Iterable[Record], baseline: str) -> list[Group]:
    """All records, by data set, suite, origin and number of the images; no two of these are ever mixed."""
    apart = dict[tuple[object, ...], list[Record]]()
    for r in records:  # domains differ in size by nature
        apart.setdefault((r.data, r.suite, r.origin, None if r.suite == "domains" else r.n), []).append(r)
    return [_group(series_of(same), baseline) for same in apart.values()]


def _group(series: Sequence[Series], baseline: str) -> Group:
    first = series[0]
    everywhere = {name for one in series for name in (*one.domains, *one.attacks)}
    lines = list[Line]()
    for one, name in zip(series, _names(series), strict=True):
        reference = find_baseline(one, series, baseline)
        found = scores(one, reference)
        if {*one.domains, *one.attacks} != everywhere:  # a mean over fewer than the others' is another score
            found = {score: value for score, value in found.items() if score.startswith(("clean", "ms"))}
        lines.append(Line(name, one, reference, found))
    group = Group(first.data, first.suite, first.origin, tuple(lines), baseline)
    best_first = sorted(lines, key=lambda line: -line.scores[m].mean if (m := group.main_score) in line.scores else 1)
    return replace(group, lines=tuple(best_first))


def _names(series: Sequence[Series]) -> list[str]:
    """Label, E behind it, and whatever else is needed to tell lines apart; an oracle is always marked."""
    names = [s.label + f" E={s.samples}" * bool(s.samples) + " (oracle)" * (s.selection == ORACLE) for s in series]
    for more in ([s.selection for s in series], [s.average for s in series], [s.config[:6] for s in series]):
        counts = Counter(names)
        names = [f"{name}, {word}" if counts[name] > 1 else name for name, word in zip(names, more, strict=True)]
    return names
