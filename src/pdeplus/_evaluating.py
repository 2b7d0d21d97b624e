"""`pdeplus evaluate`: several models, several numbers of samples, one line of results each."""

from collections.abc import Sequence
from typing import Any

from ._progress import counting_bar
from ._registry import build
from .config import insert
from .data.base import Source
from .evaluate import evaluate
from .summary import Series, scores, series_of


def evaluate_models(
    models: Sequence[str],
    samples: Sequence[int] | None,
    data: Sequence[str] | None,
    severities: Sequence[int] | None,
    chosen: dict[str, Any],
) -> str:
    """Evaluate each model with each number of samples and say what came out, a line each."""
    given = {"severities": sorted(set(severities))} if severities else {}
    lines = list[str]()
    for model in models:
        for passes in samples or [None]:
            title = model if passes is None else f"{model} E={passes}"
            with counting_bar(title, None, " images") as watch:
                records = evaluate(model, data=_source(data), samples=passes, watch=watch, **given, **chosen)
            lines += [describe(series) for series in series_of(records)]
    return "\n".join(lines)


def describe(series: Series) -> str:
    """One line: what was tested and how well it did."""
    found = scores(series)
    noise = f", E={series.samples}" if series.samples else ""
    shown = [f"{label} {100 * found[name].mean:.2f} %" for name, label in _SHOWN.items() if name in found]
    gaps = [f"{len(cells)} of {len(series.wanted)} test sets missing" for cells in series.gaps.values()]
    leak = ", chosen on these very test sets" if series.selection == "oracle" else ""
    return f"{series.label} ({series.selection}{noise}{leak}), {series.origin}: {', '.join(shown + gaps)}"


_SHOWN = {"clean": "clean", "corrupted": "corrupted", "severe": "severity 5", "domains": "other domains", "ece": "ECE"}


def _source(data: Sequence[str] | None) -> Source | None:
    if not data:
        return None
    tables = dict[str, Any]()
    for option in data[1:]:
        insert(tables, option.removeprefix("data."))
    return build("data", data[0], tables)
