"""Check and draw the theory: the solver against Monte Carlo and closed forms, the theorems, figures, a page.

pdeplus theory --out theory
"""

import argparse


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--out", default="theory", metavar="DIR", help="folder for the results (default: theory)")
    parser.add_argument("--quick", action="store_true", help="coarse: seconds instead of minutes")
    parser.add_argument("--seed", type=int, default=0, metavar="N", help="seed of all randomness (default: 0)")


def run(options: argparse.Namespace) -> None:
    """Write everything and print the folder."""
    from ..theory.run import run_theory

    print(run_theory(options.out, quick=options.quick, seed=options.seed))
