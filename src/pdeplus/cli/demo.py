"""Train ERM, AugMix and PDE+, three seeds each, test them and compare: minutes on a laptop CPU, nothing to download.

pdeplus demo --out my_demo
pdeplus demo --seeds 5
"""

import argparse
from collections.abc import Sequence
from pathlib import Path

from .._lib.files import write_file
from .._lib.registry import require
from ..corruptions.weather import describe_frost
from ..evaluation.metrics import Estimate, estimate
from ..evaluation.records import Record, read_records
from ..evaluation.summary import Series, scores, series_of
from ..reports.page import report
from ..studies.reproduction import prepare, reproduce
from ..training.run_folder import Run

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
    parser.add_argument("--seeds", type=int, default=3, metavar="N", help="networks per method (default: 3)")
    parser.add_argument("--jobs", type=int, metavar="N", help="networks at once (default: one per core)")
    parser.add_argument("overrides", nargs="*", metavar="KEY=VALUE", help="change a setting, e.g. train.epochs=3")


def run(options: argparse.Namespace) -> None:
    """Train, test, print a table and write a report."""
    run_demo(options.out, options.overrides, seeds=options.seeds, jobs=options.jobs)


def run_demo(out: str | Path, overrides: Sequence[str] = (), *, seeds: int = 3, jobs: int | None = None) -> None:
    """Train, evaluate, print a table and write a report into `out`.

    Called again with the same folder it goes on where it stopped and does nothing twice.
    """
    require("vl_convert", purpose="pdeplus demo", extra="plots")  # before any training
    folder = Path(out)
    result = reproduce("demo", size="own", seeds=seeds, out=folder, overrides=overrides, jobs=jobs)
    cells = sorted(prepare("demo", "own", seeds, overrides)[2], key=lambda cell: cell.config.seed)
    runs = [Run(folder / "own" / "runs" / cell.folder) for cell in cells]
    records = read_records(result / "records.jsonl")
    page = report(runs, folder / "report.html", files=folder / "files", title="pdeplus: the demo")
    table = format_table(records)
    write_file(folder / "table.md", table.encode())
    print(table)
    print(_finding(records))
    print(f"The test images are CIFAR-C's corruptions of the pictures, regenerated; frost: {describe_frost()}")
    print(f"Report: {page}   (open it in a browser; tables and figures beside it in {folder / 'files'})")
    ours = runs[len(cells) // seeds - 1].path
    print(f"Next:   pdeplus evaluate {ours} --samples 1 5 10   noise at test, averaged over E passes")
    print(f"        pdeplus export {ours} --format onnx        the network for use elsewhere")
    print("        pdeplus list methods                               every option of every method")


def format_table(records: Sequence[Record]) -> str:
    """Accuracies in per cent as a Markdown table, a row for each method; ± is half the 95 % interval over seeds."""
    titles = [*COLUMNS.values(), "seeds", "training, s", "ms/image"]
    lines = ["| accuracy, % | " + " | ".join(titles) + " |", "|---|" + "---:|" * len(titles)]
    for series in series_of(records):
        found = scores(series)
        shown = [_percent(found[name]) if name == "corrupted" else f"{100 * found[name].mean:.1f}" for name in COLUMNS]
        shown += [str(len(series.seeds)), f"{_seconds(series):.0f}", f"{found['ms'].mean:.2f}"]
        lines.append(f"| {series.label} | {' | '.join(shown)} |")
    return "\n".join(lines) + "\n"


def _percent(found: Estimate) -> str:
    half = found.half_width
    return f"{100 * found.mean:.1f}" + ("" if half is None else f" ± {100 * half:.1f}")


def _seconds(series: Series) -> float:
    return series.any.train_seconds or 0.0


def _finding(records: Sequence[Record]) -> str:
    """What the comparison of PDE+ with the others comes to, seed by seed."""
    *others, ours = series_of(records)
    mine, shown = scores(ours)["corrupted"].values, list[str]()
    for other in others:
        theirs = scores(other)["corrupted"].values
        gain = estimate([a - b for a, b in zip(mine, theirs, strict=True)])
        interval = (
            "" if gain.low is None or gain.high is None else f" ({100 * gain.low:+.1f} to {100 * gain.high:+.1f})"
        )
        shown.append(f"{100 * gain.mean:+.1f} against {other.label}{interval}")
    of_seeds = f"95 % intervals over {len(mine)} seeds" if len(mine) > 1 else "one seed: a first impression only"
    ratio = _seconds(ours) / max(_seconds(others[-1]), 1e-9)
    cost = f"PDE+ trains {ratio:.1f} times as long as {others[-1].label} for the same epochs"
    return f"{ours.label}: {', '.join(shown)} points of corrupted accuracy, {of_seeds}. {cost}."
