"""Accuracy against severity: a line for each method, a panel for each data set; 0 is clean."""

from collections.abc import Mapping

from ...evaluation.summary import severity_accuracies
from ...reports.paper import paper_numbers
from ...reports.tables import Table, percent
from ..analysis.trends import severity_figure, severity_rows
from ..study import Made, Study, series_by_label

SEVERITIES = range(6)


def make(study: Study) -> Made:
    """The curves, and a table for each data set with the authors' own values below ours."""
    rows = severity_rows([record for one in study.done for record in one.records])
    tables = [_table(study, place) for place in study.places]
    return Made(tables=tables, figures=[severity_figure(rows, study.caption())], rows={"severity": rows})


def _table(study: Study, place: Mapping[str, str]) -> Table:
    done = study.at(place)
    papers = {one.cell.label: one.cell.paper for one in done}
    known = paper_numbers("paper_severity", done[0].cell.config.data.name) if done else {}
    rows = list[tuple[str, ...]]()
    for label, group in series_by_label(done).items():
        found = severity_accuracies(group[0])
        rows.append((label, *(percent(found.get(severity), 1) for severity in SEVERITIES)))
        if papers[label] in known:
            theirs = known[papers[label]]
            rows.append((f"{label}, authors at full scale", *(theirs[str(severity)] for severity in SEVERITIES)))
    notes = study.lacking(place)
    notes.append("accuracy in per cent, mean over the fifteen corruptions; 0 is clean")
    title = study.title_at(place)
    return Table(title, ("method", *(f"severity {s}" for s in SEVERITIES)), tuple(rows), tuple(notes))
