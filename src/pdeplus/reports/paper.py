"""The paper's own numbers, at full scale, to stand beside ours."""

import csv
from collections.abc import Mapping
from functools import cache
from importlib import resources
from typing import Literal

from .inputs import Group

SHOWN = {"clean": "clean", "corrupted": "corrupted", "mce": "mCE", "rmce": "rmCE"}
"""Columns of paper.csv, and what tables call them."""
PaperFile = Literal["paper", "paper_domains", "paper_corruptions", "paper_severity"]
"""Table 1 (with PACS' means and rmCE), Table 2, Table 3, and the authors' published accuracies at each severity."""
_PACS = {"photo", "art_painting", "cartoon", "sketch"}


def paper_columns(group: Group) -> list[tuple[str, list[str]]]:
    """Title and cells of each column that has a value for some line; none where the paper has not this data set."""
    data = group.data if group.suite == "corruptions" else ""  # as paper.csv calls it
    if group.data == "pacs" and group.suite == "domains":  # trained on the domain that is not tested as foreign
        left = _PACS.difference(group.domains)
        data = f"pacs from {left.pop()}" if len(left) == 1 else ""
    known = paper_numbers("paper", data)
    rows = [known.get(line.series.label.partition(" #")[0], {}) for line in group.lines]  # without a config's hash
    shown = SHOWN | ({"corrupted": "other domains"} if group.suite == "domains" else {})
    columns = [(title, [row.get(name, "") for row in rows]) for name, title in shown.items()]
    return [(f"paper: {title} (full scale)", cells) for title, cells in columns if any(cells)]


@cache
def paper_numbers(file: PaperFile, data: str) -> dict[str, Mapping[str, str]]:
    """The paper's rows about a data set (of `paper_domains`: a source domain), by method; empty where it has none."""
    text = (resources.files("pdeplus.reports") / f"{file}.csv").read_text("utf-8")
    return {row["method"]: row for row in csv.DictReader(text.splitlines()) if row["data"] == data}
