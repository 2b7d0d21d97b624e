"""Train every method on the digits for two epochs and compare them on one page; minutes on a laptop CPU.

python examples/compare_methods.py [--out comparison] [--epochs 2] [--limit 60] [--methods erm … KEY=VALUE …]

Two epochs do not show which method is best; the example shows that all run, what they cost and how to compare them.
"""

import argparse
import time
from pathlib import Path

import pdeplus as pp
from pdeplus.errors import UserError
from pdeplus.studies.experiment import named_methods, settings
from pdeplus.training.config import to_tables
from pdeplus.training.run_folder import resume


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", default="comparison")
    parser.add_argument("--epochs", type=int, default=2)
    parser.add_argument("--limit", type=int, default=60, help="images per test set")
    parser.add_argument(
        "--methods", nargs="+", default=list(named_methods()), help="names, and KEY=VALUE settings for all runs"
    )
    options = parser.parse_args()
    overrides = [word for word in options.methods if "=" in word]
    names = [word for word in options.methods if "=" not in word] or list(named_methods())
    runs, base = list[pp.Run](), 0.0
    names.sort(key=lambda name: name != "erm")  # ERM first: the cost of the others is relative to it
    for name in names:
        started = time.monotonic()
        small = ["model.width=4", f"train.epochs={options.epochs}"]
        small += ["method.members=2"] if name.startswith("en_resnet") else []  # instead of five
        config = pp.load_config("demo", [*settings(name), *small, *overrides])
        folder = Path(options.out) / name
        begun = (folder / "config.toml").exists()
        if begun and to_tables(pp.Run.load(folder).config) != to_tables(config):
            raise UserError(f"{folder} holds a run with other settings; choose another --out")
        run = resume(folder) if begun else pp.train(config, folder)
        records = pp.evaluate(run, limit=options.limit)
        corrupted = [record.accuracy for record in records if record.severity]
        mean = 100 * sum(corrupted) / len(corrupted)
        seconds = time.monotonic() - started
        clean = 100 * records[0].accuracy
        base = base or records[0].train_flops
        cost = records[0].train_flops / base
        scores = f"clean {clean:5.1f} %  corrupted {mean:5.1f} %"
        print(f"{name:28} {scores}  {seconds:6.1f} s  {cost:5.2f} × the first's training FLOPs", flush=True)
        runs.append(run)
    print(
        pp.report(
            runs, Path(options.out) / "report.html", title=f"{len(runs)} methods, {options.epochs} epochs on digits"
        )
    )


if __name__ == "__main__":
    main()
