"""Accuracy against severity (the paper's Fig. Severity), from records."""

from collections.abc import Iterable, Sequence

from .._errors import UserError
from ..corruptions.base import SEVERITIES
from ..records import CLEAN, Record
from ..report.charts import severity_lines
from ..report.groups import Group, groups_of
from ..report.specs import Figure, Row, Spec
from .figures import faceted, lines_figure

STANDARD = "ERM"
"""No score here depends on the baseline; groups ask for a name."""


def severity_rows(records: Iterable[Record]) -> list[Row]:
    """Data, series, severity (0 is clean), accuracy in per cent, and the ends of its 95 % interval over seeds.

    Accuracy is the mean over the fifteen corruptions; a severity at which one of them is missing has no row. Images
    of different origin are different data.
    """
    groups = [group for group in groups_of(records, STANDARD) if group.suite == "corruptions"]
    rows = [
        {"data": _name(group, groups), "series": row["series"], "severity": 0 if row["x"] == CLEAN else row["x"]}
        | {"accuracy": row["y"], "low": row["low"], "high": row["high"]}
        for group in groups
        for row in severity_lines(group, "severity").rows
    ]
    if not rows:
        raise UserError("no record covers the fifteen corruptions at any severity: pdeplus evaluate RUN makes them")
    return rows


def severity_figure(rows: Sequence[Row], title: str) -> Figure:
    """A panel for each data set, a line for each series, bands for the intervals."""
    drawn = [
        {"series": row["series"], "x": row["severity"] or CLEAN, "y": row["accuracy"]}
        | {key: row[key] for key in ("low", "high", "data")}
        for row in rows
    ]
    x: Spec = {"field": "x", "type": "ordinal", "sort": [CLEAN, *SEVERITIES], "title": "severity"}
    figure = lines_figure("severity", title, drawn, x | {"axis": {"labelAngle": 0}}, "accuracy, %", band=True)
    return faceted(figure, column="data")


def _name(group: Group, groups: Sequence[Group]) -> str:
    """The data set; with what else tells its images apart where there are several of that name."""
    return group.data if [other.data for other in groups].count(group.data) == 1 else group.title
