"""Compare methods, seeds and settings: train and test every combination, then write one table and one page.

pdeplus sweep demo --methods erm augmix pde_plus --seeds 3
pdeplus sweep finetune data.root=my_pictures --methods erm pde_plus --seeds 2 --limit 500 --jobs 2
pdeplus sweep demo --vary train.lr=0.1,0.05 --vary train.ema=0,0.99 --dry-run
"""

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ..errors import UserError


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("preset", help="name (see: pdeplus list presets) or a .toml file")
    parser.add_argument("overrides", nargs="*", metavar="KEY=VALUE", help="change a setting of every run")
    methods = "names (see: pdeplus list methods), or dotted ones of your own (default: the preset's method)"
    parser.add_argument("--methods", nargs="+", default=[], metavar="NAME", help=methods)
    parser.add_argument(
        "--seeds", type=int, default=1, metavar="N", help="repetitions, with seeds 0 to N - 1 (default: 1)"
    )
    vary = "values of a setting, crossed with the methods and with other --vary"
    parser.add_argument("--vary", action="append", default=[], metavar="KEY=A,B", help=vary)
    parser.add_argument("--limit", type=int, default=0, metavar="N", help="test on at most N images (default: all)")
    parser.add_argument("--tests", choices=("corruptions", "clean"), default="corruptions", help="what to test on")
    parser.add_argument("--out", default="sweeps", metavar="DIR", help="folder for runs and results (default: sweeps)")
    jobs = "runs at once, one thread each; results stay the same (default: one per core, 1 with a GPU)"
    parser.add_argument("--jobs", type=int, metavar="N", help=jobs)
    parser.add_argument("--dry-run", action="store_true", help="only print the runs, hours and disk space")


def run(options: argparse.Namespace) -> None:
    """Run what is not done yet, print the table, and write the page."""
    from ..reports.page import report
    from ..studies.estimates import estimate, format_estimates
    from ..studies.experiment import sweep_of
    from ..studies.jobs import choose_jobs
    from ..studies.reproduction import prepare, reproduce

    methods, settings = _apart(options.methods, options.overrides)
    vary = dict(map(_values, options.vary))
    how = {"seeds": options.seeds, "limit": options.limit, "tests": options.tests}
    experiment = sweep_of(options.preset, methods, vary=vary, **how)
    chosen: dict[str, Any] = {"size": "own", "seeds": options.seeds, "overrides": settings}
    if options.dry_run:
        cells = prepare(experiment, **chosen)[2]
        runs = Path(options.out) / "own" / "runs"
        print(format_estimates(estimate(cells, runs, {}), choose_jobs(options.jobs)))
        return
    folder = reproduce(experiment, out=options.out, jobs=options.jobs, **chosen)
    print((folder / "result.md").read_text("utf-8"))
    print(report(folder / "records.jsonl", folder / "report.html", title=experiment.title))


def _apart(methods: Sequence[str], overrides: Sequence[str]) -> tuple[list[str], list[str]]:
    """Names and settings: behind --methods one may stand among the others."""
    names = [word for word in methods if "=" not in word]
    return names, [*overrides, *(word for word in methods if "=" in word)]


def _values(text: str) -> tuple[str, tuple[str, ...]]:
    key, _, values = text.partition("=")
    if not key or not values:
        raise UserError(f"--vary {text!r:.80} is not of the form KEY=A,B, e.g. --vary train.lr=0.1,0.05")
    return key, tuple(values.split(","))
