"""Train, test and compare three networks on scikit-learn's digits: minutes on a laptop CPU.

pdeplus demo --out my_demo
"""

import argparse
from collections.abc import Sequence
from pathlib import Path

from .._lib.files import write_file
from .._lib.long_work import counting_bar
from .._lib.registry import require
from ..corruptions.weather import describe_frost
from ..evaluation.loop import evaluate
from ..evaluation.records import Record
from ..evaluation.summary import compare, scores, series_of
from ..reports.page import report
from ..training.config import load_config
from ..training.run_folder import Run, train_or_resume
from ..training.session import progress_bar

METHODS = {"ERM": "erm", "AugMix": "augmix", "PDE+": "pde_plus"}
COLUMNS = {
    "clean": "clean",
    "noise": "noise",
    "blur": "blur",
    "weather": "weather",
    "digital": "digital",
    "corrupted": "mean of 15 × 5",
    "severe": "severity 5",
}


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--out", default="demo", metavar="DIR", help="folder for runs and report (default: demo)")
    parser.add_argument("overrides", nargs="*", metavar="KEY=VALUE", help="change a setting, e.g. train.epochs=3")


def run(options: argparse.Namespace) -> None:
    """Train, test, print a table and write a report."""
    run_demo(options.out, options.overrides)


def run_demo(out: str | Path, overrides: Sequence[str] = ()) -> None:
    """Train, evaluate, print a table and write a report into `out`.

    Called again with the same folder it goes on where it stopped and does nothing twice.
    """
    require("sklearn", purpose="pdeplus demo", extra="digits")  # both before any training
    require("vl_convert", purpose="pdeplus demo", extra="plots")
    folder = Path(out)
    runs, records = list[Run](), list[Record]()
    for label, name in METHODS.items():
        config = load_config("demo", [*overrides, f"method.name={name}"])
        with progress_bar(label) as watch:
            runs.append(train_or_resume(config, folder / name, watch=watch))
    for run in runs:
        with counting_bar(f"testing {run.path.name}", None, " images") as count:
            records += evaluate(run, watch=count)
    page = report(runs, folder / "report.html", files=folder / "files", title="pdeplus: the demo")
    table = format_table(records)
    write_file(folder / "table.md", table.encode())
    print(table)
    print(_finding(records))
    print(f"The test images are CIFAR-C's corruptions of the digits, regenerated; frost: {describe_frost()}")
    print(f"Report: {page}   (open it in a browser; tables and figures beside it in {folder / 'files'})")
    print(f"Next:   pdeplus evaluate {runs[-1].path} --samples 1 5 10   noise at test, averaged over E passes")
    print(f"        pdeplus report {' '.join(str(run.path) for run in runs)}   the report with what you added")
    print(f"        pdeplus export {runs[-1].path} --format onnx        the network for use elsewhere")
    print("        pdeplus list methods                               every option of every method")


def format_table(records: Sequence[Record]) -> str:
    """Accuracies in per cent as a Markdown table, a row for each series."""
    titles = [*COLUMNS.values(), "selection", "training, s", "ms/image"]
    lines = ["| accuracy, % | " + " | ".join(titles) + " |", "|---|" + "---:|" * len(titles)]
    for series in series_of(records):
        found = scores(series)
        cells = [f"{100 * found[name].mean:.1f}" for name in COLUMNS]
        cells += [series.selection, f"{series.any.train_seconds or 0:.0f}", f"{found['ms'].mean:.2f}"]
        lines.append(f"| {series.label} | {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def _finding(records: Sequence[Record]) -> str:
    """What the comparison of PDE+ with the others comes to."""
    *others, ours = series_of(records)
    shown = list[str]()
    for other in others:
        gain = compare(ours, other)
        assert gain is not None  # the same images
        shown.append(f"{100 * gain.mean:+.1f} against {other.label} ({100 * gain.low:+.1f} to {100 * gain.high:+.1f})")
    points = "points of corrupted accuracy, 95 % interval over test images"
    return f"{ours.label}: {', '.join(shown)} {points}; one seed and little data, so a first impression only."
