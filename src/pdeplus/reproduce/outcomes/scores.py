"""Table 1: clean and corrupted accuracy and mCE of every row, the paper's values beside ours."""

from collections.abc import Mapping, Sequence

from ...report.paper import paper_numbers
from ...report.tables import MISSING, Table, percent
from ...summary import Series, compare, find_baseline, scores
from ..study import Done, Made, Study, series_by_label

COLUMNS = {
    "clean": "clean",
    "corrupted": "corrupted",
    "mce": "mCE",
    "severe": "severity 5",
    "severe_mce": "mCE, severity 5",
}
"""Scores, which paper.csv has under the same names, and their titles."""


def make(study: Study) -> Made:
    """A table for each place."""
    return Made(tables=[_table(study, place) for place in study.places])


def _table(study: Study, place: Mapping[str, str]) -> Table:
    done = study.at(place)
    found = series_by_label(done)
    every = [series for group in found.values() for series in group]
    reference = next(iter(found.get(study.options.get("reference", ""), [])), None)
    cells = {one.cell.label: one.cell for one in done}
    known = paper_numbers("paper", _data(done))
    rows, notes = list[tuple[str, ...]](), study.lacking(place)
    for label, group in found.items():
        for series in group:
            values = scores(series, find_baseline(series, every, "ERM"))
            paper = known.get(cells[label].paper, {})
            more = _against(series, reference, cells[label].about) if reference else _paper_cells(paper)
            name = f"{label}, E={series.samples}" if len(group) > 1 else label
            rows.append((name, *(percent(values.get(score)) for score in COLUMNS), *more))
    extra = ("difference", "95 % interval", "what differs")
    beside = extra if reference else tuple(f"paper: {title}" for title in COLUMNS.values())
    return Table(
        study.title_at(place),
        ("method", *COLUMNS.values(), *beside),
        tuple(rows),
        (*notes, *_NOTES),
    )


_NOTES = (
    "per cent; corrupted: mean over fifteen corruptions and five severities; mCE: relative to the ERM of this table",
    "columns of the paper are its full-scale values, not to be mixed with ours",
)


def _data(done: Sequence[Done]) -> str:
    return done[0].cell.config.data.name if done else ""


def _paper_cells(paper: Mapping[str, str]) -> list[str]:
    return [paper.get(name) or MISSING for name in COLUMNS]


def _against(series: Series, reference: Series, about: str) -> list[str]:
    """The difference of corrupted accuracy in points, its interval, and what differs."""
    gain = None if series is reference else compare(series, reference)
    if gain is None:
        return [MISSING, MISSING, about]
    return [f"{100 * gain.mean:+.2f}", f"{100 * gain.low:+.2f} to {100 * gain.high:+.2f}", about]
