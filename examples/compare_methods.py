"""Every method on the digits for two epochs, tested and put side by side on one page; minutes on a laptop CPU.

python examples/compare_methods.py [--out comparison] [--epochs 2] [--limit 100] [--methods erm …] [KEY=VALUE …]

Two epochs say nothing about which method is best: this shows that all of them run, what they cost, and how to compare.
"""

import argparse
import time
from pathlib import Path

import pdeplus as pp
from pdeplus import _registry
from pdeplus.run import resume


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", default="comparison")
    parser.add_argument("--epochs", type=int, default=2)
    parser.add_argument("--limit", type=int, default=100, help="test images of each test set")
    parser.add_argument("--methods", nargs="+", default=_registry.names("methods"))
    parser.add_argument("overrides", nargs="*", metavar="KEY=VALUE")
    options = parser.parse_args()
    runs = list[pp.Run]()
    for name in options.methods:
        started = time.monotonic()
        settings = [f"method.name={name}", f"train.epochs={options.epochs}", *options.overrides]
        folder = Path(options.out) / name
        begun = (folder / "config.toml").exists()
        run = resume(folder) if begun else pp.train(pp.load_config("demo", settings), folder)
        records = pp.evaluate(run, limit=options.limit)
        corrupted = [record.accuracy for record in records if record.severity]
        mean = 100 * sum(corrupted) / len(corrupted)
        seconds = time.monotonic() - started
        clean = 100 * records[0].accuracy
        print(f"{name:20} clean {clean:5.1f} %  corrupted {mean:5.1f} %  {seconds:6.1f} s", flush=True)
        runs.append(run)
    print(pp.report(runs, Path(options.out) / "report.html", title="All methods, two epochs on digits"))


if __name__ == "__main__":
    main()
