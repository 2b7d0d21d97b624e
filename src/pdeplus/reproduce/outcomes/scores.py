"""Table 1: clean and corrupted accuracy and mCE of every row, the paper's values beside ours."""

from collections.abc import Mapping

from ...report.paper import paper_numbers
from ...report.tables import MISSING, Table, percent
from ...summary import Series, compare
from ..study import Made, Study, lines_of

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
    lines = lines_of(done)
    wanted = study.options.get("reference", "")
    reference = next((line.series for line in lines if line.cell.label == wanted), None)
    known = paper_numbers("paper", done[0].cell.config.data.name if done else "")
    rows = list[tuple[str, ...]]()
    for line in lines:
        more = _paper_cells(known.get(line.cell.paper, {}))
        if reference:
            more = _against(line.series, reference, line.cell.about)
        rows.append((line.name, *(percent(line.scores.get(score)) for score in COLUMNS), *more))
    extra = ("difference", "95 % interval", "what differs")
    beside = extra if reference else tuple(f"paper: {title}" for title in COLUMNS.values())
    columns = ("method", *COLUMNS.values(), *beside)
    return Table(study.title_at(place), columns, tuple(rows), (*study.lacking(place), *_NOTES))


_NOTES = (
    "per cent; corrupted: mean over fifteen corruptions and five severities; mCE: relative to the ERM of this table",
    "columns of the paper are its full-scale values, not to be mixed with ours",
)


def _paper_cells(paper: Mapping[str, str]) -> list[str]:
    return [paper.get(name) or MISSING for name in COLUMNS]


def _against(series: Series, reference: Series, about: str) -> list[str]:
    """The difference of corrupted accuracy in points, its interval, and what differs."""
    gain = None if series is reference else compare(series, reference)
    if gain is None:
        return [MISSING, MISSING, about]
    return [f"{100 * gain.mean:+.2f}", f"{100 * gain.low:+.2f} to {100 * gain.high:+.2f}", about]
