"""An experiment made of others: where each part stands, and one page of all their records."""

from collections.abc import Sequence
from dataclasses import replace

from ...evaluation.records import Record
from ...reports.book import compose
from ...reports.inputs import gather
from ...reports.page import page_text
from ...reports.tables import Table
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
    records = _told_apart(study)
    if not records:
        return {}
    return {"report.html": page_text(compose(gather(records), "ERM"), study.experiment.title).encode()}


def _once(done: Sequence[Done]) -> list[Done]:
    """Cells that parts share count once, as the first part has them; tested on other images they are not shared."""
    return list({(one.cell.folder, one.cell.label, one.cell.tests): one for one in reversed(done)}.values())[::-1]


def _told_apart(study: Study) -> list[Record]:
    """All records; a row that trains longer or shorter than the first of its name on the same data says so."""
    usual = dict[tuple[str, str], int]()
    for cell in study.cells:
        usual.setdefault((cell.label, str(cell.config.data)), cell.config.train.epochs)
    records = list[Record]()
    for one in _once(study.done):
        epochs = one.cell.config.train.epochs
        plain = usual[one.cell.label, str(one.cell.config.data)] == epochs
        records += one.records if plain else [replace(r, model=f"{r.model}, {epochs} epochs") for r in one.records]
    return records
