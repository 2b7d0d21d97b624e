"""How robust a model is, in a few sentences, and what becomes of each class under corruption."""

from functools import reduce

import numpy as np
from numpy.typing import NDArray

from ..errors import counted
from ..evaluation.metrics import pool
from ..evaluation.records import Record
from ..evaluation.summary import CLEAN_TEST, corruption_accuracies
from .inputs import Group, Line
from .tables import MISSING, Table, percent, spaced

WORST, SUFFERING = 3, 2
"""Corruptions and classes that a verdict names."""
MATRIX = 15
"""Most classes whose confusion is a table of its own."""
Counts = NDArray[np.int64]
"""Images by label and by what they were taken for."""


def verdict(line: Line, score: str) -> str:
    """Short sentences: accuracy clean and corrupted; the worst corruptions and classes; wrong answers, confidence."""
    series, clean, corrupted = line.series, line.scores.get("clean"), line.scores.get(score)
    if clean is None or corrupted is None:
        return f"{line.name} has no verdict: some of its test sets are missing."
    said = [
        f"{line.name} classifies {percent(clean)} % of the clean images correctly, and {percent(corrupted)} % "
        f"of the corrupted ones ({series.extent})."
    ]
    losses = {name: clean.mean - value.mean for name, value in corruption_accuracies(series).items()}
    worst = [name for name in sorted(losses, key=lambda name: -losses[name])[:WORST] if losses[name] > 0]
    if worst:
        named = [f"{spaced(name)} (−{100 * losses[name]:.1f} points)" for name in worst]
        said.append(f"It loses most under {_listed(named)}.")
    if (before := counts(line, clean=True)) is not None and (after := counts(line, clean=False)) is not None:
        a, b = accuracies(before), accuracies(after)
        order = [int(i) for i in np.argsort(np.nan_to_num(b - a))[:SUFFERING] if a[i] > b[i]]
        if order:
            names = [f"{_class(line, i)} ({100 * a[i]:.0f} → {100 * b[i]:.0f} %)" for i in order]
            said.append(
                f"The class{'es' * (len(names) > 1)} that lose{'s' * (len(names) == 1)} most: {_listed(names)}."
            )
    if (flips := flipped(line)) is not None:
        said.append(f"Corruption turns {100 * flips:.0f} % of its correct predictions wrong.")
    bins = pool(r.bins for r in shifted(line))
    gap = (sum(b.confidence for b in bins) - sum(b.correct for b in bins)) / max(sum(b.n for b in bins), 1)
    far, how = round(abs(100 * gap)), "high" if gap > 0 else "low"
    fit = f"is {counted(far, 'point')} too {how}" if far else "matches its accuracy"
    said.append(f"Its mean confidence under corruption {fit}.")
    return " ".join(said)


def shifted(line: Line) -> list[Record]:
    """The records that the mean under corruption is over, of all seeds."""
    wanted = [cell for cell in line.series.wanted if cell != CLEAN_TEST]
    return [tests[cell] for tests in line.series.seeds.values() for cell in wanted if cell in tests]


def flipped(line: Line) -> float | None:
    """The share of images right when clean that are wrong when corrupted; None where single images are not known."""
    shares = list[float]()
    for tests in line.series.seeds.values():
        clean = tests[CLEAN_TEST].right if CLEAN_TEST in tests else np.zeros(0, bool)
        shifted = [tests[cell] for cell in line.series.wanted if cell != CLEAN_TEST and cell in tests]
        if clean.any() and all(len(r.right) == len(clean) for r in shifted):
            shares += [float((clean & ~r.right).sum() / clean.sum()) for r in shifted]
    return float(np.mean(shares)) if shares else None


def counts(line: Line, *, clean: bool) -> Counts | None:
    """The confusion, clean or summed over the corrupted test sets; None where a record does not tell it."""
    records = [s[CLEAN_TEST] for s in line.series.seeds.values() if CLEAN_TEST in s] if clean else shifted(line)
    if not records or not all(r.confusion for r in records) or len({r.classes for r in records}) > 1:
        return None

    def add(total: Counts, r: Record) -> Counts:
        for label, answer, n in r.confusion:
            total[label, answer] += n
        return total

    size = len(records[0].classes)
    return reduce(add, records, np.zeros((size, size), np.int64))


def accuracies(found: Counts) -> NDArray[np.float64]:
    """The share of each class that is right; not a number for a class without images."""
    total = found.sum(1)
    return np.where(total > 0, found.diagonal() / np.maximum(total, 1), np.nan)


def class_tables(group: Group) -> dict[str, Table]:
    """Of each line: every class clean and corrupted, the worst first, and who is taken for whom."""
    found = dict[str, Table]()
    for i, line in enumerate(group.lines, 1):
        before, after = counts(line, clean=True), counts(line, clean=False)
        if before is None or after is None:
            continue
        a, b = accuracies(before), accuracies(after)
        order = [int(k) for k in np.argsort(np.nan_to_num(b - a)) if before[k].sum()]
        rows = tuple(_class_row(line, k, before, after, a, b) for k in order)
        columns = ("class", "images", "clean", "corrupted", "points lost", "most often mistaken for")
        notes = (f"Accuracy in per cent; corrupted: over all images of {line.series.extent}.",)
        found[f"classes-{i}"] = Table(f"Each class: {line.name}", columns, rows, notes)
        if len(order) <= MATRIX:
            found[f"confusion-{i}"] = _matrix(line, sorted(order), after)
    return found


def _class_row(
    line: Line, k: int, before: Counts, after: Counts, a: NDArray[np.float64], b: NDArray[np.float64]
) -> tuple[str, ...]:
    others = after[k].copy()
    others[k] = 0
    most = int(others.argmax())
    taken = f"{_class(line, most)} ({100 * others[most] / after[k].sum():.0f} %)" if others[most] else MISSING
    return (
        _class(line, k), str(before[k].sum()), f"{100 * a[k]:.1f}", f"{100 * b[k]:.1f}",
        f"{100 * (a[k] - b[k]):+.1f}".replace("+", "").replace("-", "−"), taken,
    )  # fmt: skip


def _matrix(line: Line, order: list[int], after: Counts) -> Table:
    rest = after.sum(1) - after[:, order].sum(1)
    columns = ("label", *(_class(line, k) for k in order), *(["others"] * bool(rest[order].any())))
    rows = [
        (_class(line, k), *(f"{100 * after[k, j] / after[k].sum():.0f}" for j in order))
        + ((f"{100 * rest[k] / after[k].sum():.0f}",) if len(columns) > len(order) + 1 else ())
        for k in order
    ]
    notes = ("Per cent of the corrupted images of each class (rows) that were classified as each class (columns).",)
    return Table(f"Confusion under corruption: {line.name}", columns, tuple(rows), notes)


def _class(line: Line, k: int) -> str:
    return spaced(line.series.any.classes[k].partition(", ")[0])


def _listed(names: list[str]) -> str:
    return " and ".join([", ".join(names[:-1]), names[-1]]) if len(names) > 1 else names[0]
