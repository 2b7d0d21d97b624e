"""Explain trained networks in figures: coverage, diffusion scale, training curves, smoothness.

pdeplus analyse runs/erm runs/pde --out analysis
"""

import argparse

from .base import add_trust


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("runs", nargs="+", metavar="RUN", help="run folder; coverage needs train.keep_every=1")
    out = "folder for figures and tables (default: analysis)"
    parser.add_argument("--out", default="analysis", metavar="DIR", help=out)
    parser.add_argument("--images", type=int, default=256, metavar="N", help="held-out images to use (default: 256)")
    parser.add_argument("--seed", type=int, default=0, metavar="N", help="seed of all randomness (default: 0)")
    add_trust(parser)


def run(options: argparse.Namespace) -> None:
    """Write figures and tables, and print the path of their summary."""
    from ..studies.analysis.summary import analyse
    from ..training.run_folder import Run

    runs = [Run.load(path, trust_code=options.trust_code) for path in options.runs]
    print(analyse(runs, options.out, images=options.images, seed=options.seed))
