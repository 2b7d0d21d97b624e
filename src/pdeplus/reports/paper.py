"""The paper's own numbers, at full scale, to stand beside ours."""

import csv
from collections.abc import Mapping
from functools import cache
from importlib import resources
from typing import Literal

from .inputs import Group, Line

SHOWN = {"clean": "clean", "corrupted": "corrupted", "mce": "mCE", "rmce": "rmCE"}
"""Columns of paper.csv, and what tables call them."""
_PACS = {"photo", "art_painting", "cartoon", "sketch"}


def paper_columns(group: Group) -> list[tuple[str, list[str]]]:
    """Title and cells of each column that has a value for some line; none where the paper has not this data set."""
    known = paper_numbers("paper", _paper_name(group))
    rows = [known.get(_label(line), {}) for line in group.lines]
    shown = SHOWN | ({"corrupted": "foreign domains"} if group.suite == "domains" else {})
    columns = [(title, [row.get(name, "") for row in rows]) for name, title in shown.items()]
    return [(f"paper: {title} (full scale)", cells) for title, cells in columns if any(cells)]


def _paper_name(group: Group) -> str:
    """The data set as paper.csv calls it; the domain that PACS was trained on is the one not tested as foreign."""
    if group.data != "pacs" or group.suite != "domains":
        return group.data if group.suite == "corruptions" else ""
    left = _PACS - {name for line in group.lines for name in line.series.domains}
    return f"pacs from {left.pop()}" if len(left) == 1 else ""


def _label(line: Line) -> str:
    """The method's own name; a config's hash behind it does not count."""
    return line.series.label.partition(" #")[0]


PaperFile = Literal["paper", "paper_domains", "paper_corruptions", "paper_severity"]
"""Table 1 (with PACS' means and rmCE), Table 2, Table 3, and the authors' published accuracies at each severity."""


def paper_numbers(file: PaperFile, data: str) -> dict[str, Mapping[str, str]]:
    """The paper's rows about a data set (of `paper_domains`: a source domain), by method; empty where it has none."""
    return _read(file).get(data, {})


@cache
def _read(file: PaperFile) -> dict[str, dict[str, Mapping[str, str]]]:
    text = (resources.files("pdeplus.reports") / f"{file}.csv").read_text("utf-8")
    found = dict[str, dict[str, Mapping[str, str]]]()
    for row in csv.DictReader(text.splitlines()):
        found.setdefault(row["data"], {})[row["method"]] = row
    return found
