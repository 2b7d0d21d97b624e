"""An experiment made of others: where each part stands, and one page of all their records."""

from collections.abc import Sequence

from ...report.book import compose
from ...report.inputs import gather
from ...report.page import page_text
from ...report.tables import Table
from ..experiment import load_experiment
from ..study import Done, Made, Study


def make(study: Study) -> Made:
    """A table of the parts, and report.html of what is tested."""
    rows = [_row(study, name) for name in study.experiment.parts]
    columns = ("folder beside this one", "what", "cells done", "of")
    return Made(tables=[Table(study.experiment.title, columns, tuple(rows), ())], pictures=_page(study))


def _row(study: Study, name: str) -> tuple[str, ...]:
    part = load_experiment(name)
    done = sum(one.cell.experiment == part.name for one in study.done)
    cells = sum(cell.experiment == part.name for cell in study.cells)
    return f"{part.name}/", part.title, str(done), str(cells)


def _page(study: Study) -> dict[str, bytes]:
    records = [record for one in _once(study.done) for record in one.records]
    if not records:
        return {}
    return {"report.html": page_text(compose(gather(records), "ERM"), study.experiment.title).encode()}


def _once(done: Sequence[Done]) -> list[Done]:
    """Cells that parts share count once."""
    return list({(one.cell.folder, one.cell.label): one for one in done}.values())
