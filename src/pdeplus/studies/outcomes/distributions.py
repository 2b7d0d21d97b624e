"""Figure 1 and its sequel: a network for each training distribution, a group of bars for each test distribution."""

from ...evaluation.metrics import Estimate
from ...evaluation.summary import accuracies_by_test
from ...reports.figures import Figure, Row
from ...reports.tables import Table, percent
from ..study import Made, Study, in_words, series_by_label

BEST, OTHER = "#C1121F", "#9AA5B1"


def make(study: Study) -> Made:
    """The table, and bars of which the highest of each test distribution is red."""
    names: list[str] = list(study.options["augmentations"])
    rows, bars = list[tuple[str, ...]](), list[Row]()
    for label, group in series_by_label(study.done).items():
        accuracies = {name: value for (name, _), value in accuracies_by_test(group[0]).items()}
        rows.append((label, *(percent(accuracies.get(name), 1) for name in ("clean", *names))))
        shown = {name: accuracies[name] for name in names if name in accuracies}
        bars += [_bar(label, name, value) for name, value in shown.items()]
    for name in names:
        here = [bar for bar in bars if bar["test"] == in_words(name)]
        for bar in here:
            bar["best"] = bar["accuracy"] == max(one["accuracy"] for one in here)
    columns = ("trained on", "clean", *map(in_words, names))
    notes = study.all_lacking
    notes.append(
        "accuracy in per cent on test images under each augmentation; the paper gives its bars without numbers"
    )
    table = Table(study.title, columns, tuple(rows), tuple(notes))
    return Made(tables=[table], figures=[_figure(study, bars)], rows={study.experiment.name: bars})


def _bar(label: str, name: str, value: Estimate) -> Row:
    shown = percent(value, 1).split()[0]  # as in the table, ties included
    accuracy = round(100 * value.mean, 3)
    return {"trained": label, "test": in_words(name), "accuracy": accuracy, "shown": shown, "best": False}


def _figure(study: Study, bars: list[Row]) -> Figure:
    order = list(dict.fromkeys(bar["trained"] for bar in bars))
    tests = list(dict.fromkeys(bar["test"] for bar in bars))
    x = {"field": "trained", "type": "nominal", "sort": order, "title": "trained with", "axis": {"labelAngle": -45}}
    y = {"field": "accuracy", "type": "quantitative", "title": "accuracy, %"}
    colour = {"condition": {"test": "datum.best", "value": BEST}, "value": OTHER}
    number = {"field": "shown", "type": "nominal"}
    layer = [
        {"mark": "bar", "encoding": {"color": colour}},
        {"mark": {"type": "text", "dy": -5, "fontSize": 9}, "encoding": {"text": number}},
    ]
    panel = {"width": 24 * len(order), "height": 170, "encoding": {"x": x, "y": y}, "layer": layer}
    facet = {"column": {"field": "test", "type": "nominal", "sort": tests, "title": "tested on"}}
    caption = study.caption("red: the best of each")
    return Figure(name=study.experiment.name, caption=caption, spec={"facet": facet, "spec": panel}, rows=bars)
