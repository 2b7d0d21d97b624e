"""Table 1: clean and corrupted accuracy and mCE of every row, the paper's values beside ours."""

from collections.abc import Mapping, Sequence
from typing import Any

from ...evaluation.summary import Series, compare
from ...reports.figures import Row
from ...reports.paper import paper_numbers
from ...reports.tables import MISSING, Table, percent
from ..analysis.figures import dots_figure
from ..study import Line, Made, Study, lines_of

COLUMNS = {
    "clean": "clean",
    "corrupted": "corrupted",
    "mce": "mCE",
    "severe": "severity 5",
    "severe_mce": "mCE, severity 5",
}
"""Scores, which paper.csv has under the same names, and their titles."""


def make(study: Study) -> Made:
    """A table for each place; with the option `reference` a row's label, differences to it and a figure of them."""
    return Made(tables=[_table(study, place) for place in study.places], **_effects(study))


def _table(study: Study, place: Mapping[str, str]) -> Table:
    done = study.at(place)
    lines = lines_of(done)
    reference = _reference(study, lines)
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


def _effects(study: Study) -> dict[str, Any]:
    """The figure of differences, the largest first, and its rows; nothing without a reference that is done."""
    found = dict[str, Sequence[Row]]()
    for place in study.places:
        lines = lines_of(study.at(place))
        reference = _reference(study, lines)
        others = [(line, compare(line.series, reference)) for line in lines if reference and line.series != reference]
        gains = sorted(((line, gain) for line, gain in others if gain), key=lambda pair: -pair[1].mean)
        if gains:
            ends = ("x", "mean"), ("low", "low"), ("high", "high")
            found["-".join(["effects", *place.values()])] = [
                {"row": line.name, "series": "corrupted"} | {key: 100 * getattr(gain, end) for key, end in ends}
                for line, gain in gains
            ]
    axis = f"corrupted accuracy minus that of {study.options.get('reference', '')}, points"
    said = study.caption("bars: 95 % interval over test images")
    return {"figures": [dots_figure(name, said, rows, axis, zero=True) for name, rows in found.items()], "rows": found}


def _reference(study: Study, lines: Sequence[Line]) -> Series | None:
    wanted = study.options.get("reference", "")
    return next((line.series for line in lines if line.cell.label == wanted), None)


def _paper_cells(paper: Mapping[str, str]) -> list[str]:
    return [paper.get(name) or MISSING for name in COLUMNS]


def _against(series: Series, reference: Series, about: str) -> list[str]:
    """The difference of corrupted accuracy in points, its interval, and what differs."""
    gain = None if series is reference else compare(series, reference)
    if gain is None:
        return [MISSING, MISSING, about]
    return [f"{100 * gain.mean:+.2f}", f"{100 * gain.low:+.2f} to {100 * gain.high:+.2f}", about]
