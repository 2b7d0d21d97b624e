"""Outcomes whose main thing is a table, with the paper's values beside ours: Tables 1 to 3, the study's, and parts."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from ...corruptions.suite import CORRUPTIONS
from ...evaluation.metrics import Estimate, estimate
from ...evaluation.records import Record
from ...evaluation.summary import (
    Series,
    accuracies_by_test,
    compare,
    compare_seeds,
    corruption_accuracies,
    scores,
    series_of,
    training_ratio,
)
from ...reports.figures import Figure, Row
from ...reports.inputs import gather
from ...reports.page import compose, page_text
from ...reports.tables import MISSING, Table, percent, spaced
from ..analysis.figures import dots_figure
from ..cells import Done
from ..experiment import load_experiment
from ..study import Line, Outcome, Study, describe_place, lines_of, paper_rows

FULL_SIZE = "the paper's columns have its full-size values, not to be mixed with ours"
PAIRED = (
    "in points: ± half the 95 % interval over seeds, pair by pair, where both rows have two seeds or more; in brackets "
    "the 95 % interval of a paired bootstrap over test images, which leaves out the variation between seeds"
)
SCORES = {
    "clean": "clean",
    "corrupted": "corrupted",
    "mce": "mCE",
    "severe": "severity 5",
    "severe_mce": "mCE, severity 5",
}
"""Scores of Table 1, which paper.csv has under the same names, and their titles."""
SCORES_NOTES = (
    "per cent; corrupted: mean over fifteen corruptions and five severities; mCE: relative to the ERM of this table",
    FULL_SIZE,
)


def scores_table(study: Study) -> Outcome:
    """Table 1: clean and corrupted accuracy and mCE of every row, a table for each place.

    With the option `reference`, a row's label, there are differences to it in place of the paper's values, and a
    figure of them, the largest first.
    """
    tables, effects, shown = list[Table](), dict[str, Sequence[Row]](), study.columns(SCORES)
    for place in study.places:
        done = study.at(place)
        lines = lines_of(done)
        wanted = study.options.get("reference", "")
        reference = next((line.series for line in lines if line.cell.label == wanted), None)
        paper, notes = paper_rows("paper", done), SCORES_NOTES
        if reference is None and not (paper or study.experiment.packaged):
            more, titles, notes = [list[str]() for _ in lines], list[str](), SCORES_NOTES[:1]
        elif reference is None:
            more = [[paper.get(line.cell.label, {}).get(name) or MISSING for name in SCORES] for line in lines]
            titles = [f"paper: {title}" for title in SCORES.values()]
        else:
            gains = [None if line.series is reference else compare(line.series, reference) for line in lines]
            more = [[_difference(line.series, reference), line.cell.about] for line in lines]
            titles = ["difference", "what differs"]
            known = [(line.name, gain) for line, gain in zip(lines, gains, strict=True) if gain is not None]
            if known:
                effects["-".join(["effects", *place.values()])] = [
                    {"row": name, "series": "corrupted"}
                    | {"x": 100 * gain.mean, "low": 100 * gain.low, "high": 100 * gain.high}
                    for name, gain in sorted(known, key=lambda pair: -pair[1].mean)
                ]
        ours = [[line.name, *(percent(line.scores.get(score)) for score in shown)] for line in lines]
        cells = [[*left, *right] for left, right in zip(ours, more, strict=True)]
        columns = ("method", *shown.values(), *titles)
        tables.append(study.table(columns, cells, *notes, place=place))
    axis = f"corrupted accuracy minus that of {study.options.get('reference', '')}, points"
    caption = study.caption("bars: 95 % interval over test images")
    figures = [dots_figure(name, caption, rows, axis, zero=True) for name, rows in effects.items()]
    return Outcome(tables=tables, figures=figures, rows=effects)


COLUMNS = {
    "clean": "clean",
    "corrupted": "corrupted",
    "severe": "severity 5",
    "mce": "mCE",
    "rmce": "rmCE",
    "ece": "ECE",
    "without_overlaps": "without overlaps",
}
"""Scores of the study's table and their titles."""
SHOWN = {"clean": "clean", "corrupted": "corrupted", "severe": "severity 5"}
"""Those in its figure."""
PAPER = {"clean": "paper: clean", "corrupted": "paper: corrupted"}
COMPARISON_NOTES = (
    "per cent; corrupted: mean over fifteen corruptions and five severities; ± half the 95 % interval over seeds",
    "mCE and rmCE: relative to the ERM of this table; ECE: of the corrupted images",
    "without overlaps: only corruptions that the method's own augmentations do not resemble",
    "cost: training FLOPs, × ERM's",
    f"differences: of corrupted accuracy {PAIRED}",
    FULL_SIZE,
)


def comparison(study: Study) -> Outcome:
    """The study's table: accuracy, mCE, rmCE, calibration and cost of every row; a table and a figure for each place.

    Option `against`: labels of the rows to compare with.
    """
    tables, figures, rows = list[Table](), list[Figure](), dict[str, Sequence[Row]]()
    for place in study.places:
        done = study.at(place)
        lines = lines_of(done)
        tables.append(_comparison_table(study, place, done, lines))
        name = "-".join(["methods", *place.values()])
        scored = [line for line in lines if "corrupted" in line.scores]
        rows[name] = [  # the best under corruptions first; behind each name its cost
            _dot(f"{line.name} ({_cost(line)} ×)", title, line.scores[score])
            for line in sorted(scored, key=lambda line: -line.scores["corrupted"].mean)
            for score, title in SHOWN.items()
        ]
        marks = "dots: means, bars: lowest to highest seed; × training FLOPs relative to ERM"
        caption = study.caption("; ".join(filter(None, [describe_place(place), marks])))
        figures.append(dots_figure(name, caption, rows[name], "accuracy, %"))
    return Outcome(tables=tables, figures=figures, rows=rows)


SELECTION_NOTES = (
    "per cent, ± half the 95 % interval over seeds, on images held out of the training images; no test image is used",
    "shifted: mean over the four validation corruptions, which no test has, at five severities; the best is first",
    "cost: training FLOPs, × ERM's",
)


def selection(study: Study) -> Outcome:
    """Rows compared on held-out images, of which each seed has its own; the best under corruptions first."""
    rows, dots = list[tuple[float, Sequence[str]]](), list[tuple[float, Row]]()
    base = next((one.records[0].train_flops for one in study.done if one.cell.label == "ERM"), None)
    for label in dict.fromkeys(one.cell.label for one in study.done):
        mine = [one for one in study.done if one.cell.label == label]
        found = [scores(series_of(one.records)[0]) for one in mine]
        clean, shifted = (estimate([one[name].mean for one in found]) for name in ("clean", "domains"))
        worst = [[r.accuracy for r in one.records if r.corruption.endswith(" 5")] for one in mine]
        severe = estimate([sum(each) / len(each) for each in worst])
        own, epochs = mine[0].records[0].train_flops, mine[0].cell.config.train.epochs
        spent = (
            MISSING if own is None else f"{own / 1e15:.3f}",
            MISSING if not (own and base) else f"{own / base:.2f}",
        )
        shown = (percent(clean), percent(shifted), percent(severe))
        rows.append((shifted.mean, (label, str(epochs), *spent, *shown, str(len(mine)))))
        dots += [(shifted.mean, _dot(label, name, score)) for name, score in (("clean", clean), ("shifted", shifted))]
    columns = ("row", "epochs", "PFLOP", "cost", "clean", "shifted", "severity 5", "seeds")
    best_first = [row for _, row in sorted(rows, key=lambda pair: -pair[0])]
    drawn = [dot for _, dot in sorted(dots, key=lambda pair: -pair[0])]
    figure = dots_figure("selection", study.caption("held-out images"), drawn, "accuracy, %")
    table = study.table(columns, best_first, *SELECTION_NOTES)
    return Outcome(tables=[table], figures=[figure], rows={"selection": drawn})


def _comparison_table(study: Study, place: Mapping[str, str], done: Sequence[Done], lines: Sequence[Line]) -> Table:
    paper = paper_rows("paper", done)
    first = _first_series(lines)
    against = [first[label] for label in study.options.get("against", ()) if label in first]
    shown = study.columns(COLUMNS)
    rows = [
        (
            line.name,
            str(len(line.series.seeds)),
            *(percent(line.scores.get(score)) for score in shown),
            _cost(line),
            *(_difference(line.series, other) for other in against),
            *(paper.get(line.cell.label, {}).get(score) or MISSING for score in PAPER),
        )
        for line in lines
    ]
    beside = (*(f"against {other.label}" for other in against), *PAPER.values())
    columns = ("method", "seeds", *shown.values(), "cost", *beside)
    return study.table(columns, rows, *COMPARISON_NOTES, place=place)


DOMAINS_NOTES = (
    "accuracy in per cent, ± half the 95 % interval over seeds; own domain: its held-out part; mean: over the others",
    f"differences: of the mean {PAIRED}",
    FULL_SIZE,
)


def domains(study: Study) -> Outcome:
    """Table 2: learnt from one domain, tested on each of the others; rows are source domains and methods.

    Option `against`: methods to compare with.
    """
    sources = [next(iter(place.values())) for place in study.places]
    against: list[str] = list(study.options.get("against", ()))
    rows, dots = list[tuple[str, ...]](), list[Row]()
    for place, source in zip(study.places, sources, strict=True):
        done = study.at(place)
        lines = lines_of(done)
        paper = paper_rows("paper_domains", done, source) if done and done[0].cell.config.data.name == "pacs" else {}
        first = _first_series(lines)
        for line in lines:
            label = line.cell.label
            each = {name: value for (name, _), value in accuracies_by_test(line.series).items()}
            mean = line.scores.get("domains")
            ours = [percent(value, 1) for value in (line.scores.get("clean"), *map(each.get, sources), mean)]
            gains = [_difference(line.series, first[other]) if other in first else MISSING for other in against]
            theirs = [paper.get(label, {}).get(name) or MISSING for name in (*sources, "mean")]
            rows.append((source, label, *ours, *gains, *theirs))
            dots += [_dot(spaced(source), line.series.label, mean)] if mean else []
    columns = [*map(spaced, sources), "mean"]
    beside = (*(f"against {other}" for other in against), *(f"paper: {column}" for column in columns))
    table = study.table(("source", "method", "own domain", *columns, *beside), rows, *DOMAINS_NOTES)
    caption = study.caption("learnt from one domain, tested on the others; dots: means, bars: lowest to highest seed")
    figure = dots_figure("domains", caption, dots, "mean accuracy on the other domains, %")
    return Outcome(tables=[table], figures=[figure] if dots else [], rows={"domains": dots})


TOTALS = {"corrupted": ("mean", "acc"), "mce": ("mCE", "mce"), "rmce": ("rmCE", "rmce")}
"""Scores of Table 3 behind the corruptions: their titles, and what paper_corruptions.csv calls them."""


def per_corruption(study: Study) -> Outcome:
    """Table 3: accuracy under each corruption over all severities, mCE and rmCE; the paper's row is below ours."""
    second = study.columns({})
    titles = [*(title for title, _ in TOTALS.values()), *second.values()]
    columns = ("method", *map(spaced, CORRUPTIONS), *titles)
    names = (*CORRUPTIONS, *(column for _, column in TOTALS.values()))
    note = "accuracies in per cent, mean over the five severities; a paper's row is below ours where it has one"
    tables = list[Table]()
    for place in study.places:
        done, rows = study.at(place), list[list[str]]()
        paper = paper_rows("paper_corruptions", done)
        for line in lines_of(done):
            each, label = corruption_accuracies(line.series), line.cell.label
            ours = [*(each.get(name) for name in CORRUPTIONS), *(line.scores.get(name) for name in (*TOTALS, *second))]
            rows.append([line.name, *(percent(value, 1) for value in ours)])
            if label in paper:
                theirs = [paper[label][name] or MISSING for name in names]
                rows.append([f"{label}, paper at full scale", *theirs, *[MISSING] * len(second)])
        tables.append(study.table(columns, rows, note, place=place))
    return Outcome(tables=tables)


def parts(study: Study) -> Outcome:
    """An experiment that consists of others: where each part stands, and one page of all their records."""
    rows = list[tuple[str, ...]]()
    for part in map(load_experiment, study.experiment.parts):
        done = sum(one.cell.experiment == part.name for one in study.done)
        cells = sum(cell.experiment == part.name for cell in study.cells)
        rows.append((f"{part.name}/", part.title, str(done), str(cells)))
    title, records = study.experiment.title, _told_apart(study)
    table = Table(title, ("folder beside this one", "what", "runs done", "of"), tuple(rows), ())
    page = {"report.html": page_text(compose(gather(records), "ERM"), title).encode()} if records else {}
    return Outcome(tables=[table], files=page)


def _told_apart(study: Study) -> list[Record]:
    """All records; a row that trains longer or shorter than the first of its name on the same data says so.

    Cells that parts share count once, as the first part has them; tested on other images they are not shared.
    """
    usual = dict[tuple[str, str], int]()
    for cell in study.cells:
        usual.setdefault((cell.label, str(cell.config.data)), cell.config.train.epochs)
    once = {(one.cell.folder, one.cell.label, one.cell.tests, one.cell.cbar): one for one in reversed(study.done)}
    records = list[Record]()
    for one in reversed(once.values()):
        epochs = one.cell.config.train.epochs
        plain = usual[one.cell.label, str(one.cell.config.data)] == epochs
        records += one.records if plain else [replace(r, model=f"{r.model}, {epochs} epochs") for r in one.records]
    return records


def _first_series(lines: Iterable[Line]) -> dict[str, Series]:
    """The series of each label; of several the first."""
    return {line.cell.label: line.series for line in reversed([*lines])}


def _difference(series: Series, other: Series) -> str:
    """Such as "+1.20 ± 0.40" over the seeds that both have, or, of fewer than two, "+1.20 (+0.50 to +1.90)"."""
    if series is other:
        return MISSING
    if over_seeds := compare_seeds(series, other):
        return f"{100 * over_seeds.mean:+.2f} ± {100 * (over_seeds.half_width or 0):.2f}"
    gain = compare(series, other)
    return MISSING if gain is None else f"{100 * gain.mean:+.2f} ({100 * gain.low:+.2f} to {100 * gain.high:+.2f})"


def _cost(line: Line) -> str:
    """Operations of training against the baseline's, where both are known."""
    ratio = training_ratio(line.series, line.baseline)
    return f"{ratio:.1f}" if ratio else MISSING


def _dot(row: str, series: str, found: Estimate) -> Row:
    """A mean over seeds, with the lowest and the highest of them."""
    low, high = 100 * min(found.values), 100 * max(found.values)
    return {"row": row, "series": series, "x": 100 * found.mean, "low": low, "high": high}
