"""`pdeplus evaluate`: several models, several numbers of samples, one line of results each."""

import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from .._lib.progress import counting_bar
from .._lib.registry import build
from ..attacks.gradient_attacks import build_attack
from ..data.base import Source
from ..errors import UserError
from ..evaluation.adversarial import EPSILONS, sanity_lines
from ..evaluation.loop import evaluate
from ..evaluation.metrics import Estimate
from ..evaluation.records import Record
from ..evaluation.summary import Series, accuracies_by_test, scores, series_of
from ..training.config import insert


def evaluate_models(
    models: Sequence[str],
    samples: Sequence[int] | None,
    data: Sequence[str] | None,
    severities: Sequence[int] | None,
    chosen: dict[str, Any],
    threat: Mapping[str, Any] | None = None,
) -> str:
    """Evaluate each model with each number of samples and say what came out, a line each.

    Behind an attacked one come the sanity checks. `threat` holds the options of the adversarial suite, or None.
    """
    given: dict[str, Any] = {"severities": sorted(set(severities))} if severities else {}
    given |= _threat(chosen["suite"], threat or {})
    lines = list[str]()
    for model in models:
        for passes in samples or [None]:
            title = model if passes is None else f"{model} E={passes}"
            with counting_bar(title, None, " images") as watch, warnings.catch_warnings():
                warnings.filterwarnings("ignore", "sanity of ", UserWarning)  # told below
                records = evaluate(model, data=_source(data), samples=passes, watch=watch, **given, **chosen)
            lines += [describe(series) for series in series_of(records)]
            if model.endswith(".onnx") and not chosen.get("out"):
                lines.append("  these records are not kept; --out DIR keeps them for pdeplus report")
            lines += _sanity(records, Path(chosen.get("out") or model))
    return "\n".join(lines)


def describe(series: Series) -> str:
    """One line: what was tested and how well it did."""
    found = scores(series)
    noise = f", E={series.samples}" if series.samples else ""
    shown = [f"{label} {100 * found[name].mean:.2f} %" for name, label in _SHOWN.items() if name in found]
    shown += [f"{name} {100 * value.mean:.2f} %" for name, value in _attacks(series).items()]
    gaps = [f"{len(cells)} of {len(series.wanted)} test sets missing" for cells in series.gaps.values()]
    leak = ", chosen on these very test sets" if series.selection == "oracle" else ""
    return f"{series.label} ({series.selection}{noise}{leak}), {series.origin}: {', '.join(shown + gaps)}"


_SHOWN = {"clean": "clean", "corrupted": "corrupted", "severe": "severity 5", "domains": "other domains", "ece": "ECE"}


def _attacks(series: Series) -> dict[str, Estimate]:
    cells = accuracies_by_test(series)
    return {name: cells[name, 0] for name in series.attacks}


def _threat(suite: str, options: Mapping[str, Any]) -> dict[str, Any]:
    """The options of the adversarial suite as `evaluate` takes them; those not given are left out."""
    given = {name: value for name, value in options.items() if value is not None}
    if suite != "adversarial":
        if given:
            name, value = next(iter(given.items()))
            raise UserError(f"--{name} {value} is for --suite adversarial; the suite is {suite}")
        return {}
    attack = build_attack(given.get("attack", "pgd"), **{k: given.get(k) for k in ("norm", "steps", "restarts")})
    return {"attack": attack, "epsilons": given.get("epsilon", EPSILONS[attack.norm]), "eot": given.get("eot")}


def _sanity(records: Sequence[Record], folder: Path) -> list[str]:
    r = records[0]
    if r.suite != "adversarial":
        return []
    place = folder / "oracle" if r.selection == "oracle" else folder
    return [f"  sanity: {line}" for line in sanity_lines(place, r.model, r.origin, r.weights, r.samples)]


def _source(data: Sequence[str] | None) -> Source | None:
    if not data:
        return None
    tables = dict[str, Any]()
    for option in data[1:]:
        insert(tables, option.removeprefix("data."))
    return build("data", data[0], tables)
