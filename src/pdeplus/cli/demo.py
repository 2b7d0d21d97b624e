"""Train three networks, test them and compare: minutes on a laptop CPU, on scikit-learn's digits (the extra digits).

pdeplus demo --out my_demo
"""

import argparse


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--out", default="demo", metavar="DIR", help="folder for runs and report (default: demo)")
    parser.add_argument("overrides", nargs="*", metavar="KEY=VALUE", help="change a setting, e.g. train.epochs=3")


def run(options: argparse.Namespace) -> None:
    """Train, test, print a table and write a report."""
    from ..studies.demo import run_demo

    run_demo(options.out, options.overrides)
