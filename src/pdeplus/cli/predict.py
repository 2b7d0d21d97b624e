"""Classify pictures with a run or another model, and say how sure it is.

pdeplus predict runs/pde a.png holiday_pictures --samples 10
"""

import argparse

from ..evaluation.deployment import Prediction, format_predictions, predict_pictures
from ..evaluation.given_models import open_run_or_model
from .base import add_selection, add_trust, pick


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("run", metavar="MODEL", help="run folder, URI such as timm:NAME, or .onnx or .pt2 file")
    parser.add_argument("images", nargs="+", metavar="IMAGE", help="picture or folder of pictures")
    parser.add_argument("--samples", type=int, metavar="E", help="noisy passes (default: the method's own; 0: none)")
    add_selection(parser)
    parser.add_argument("--top", type=int, default=3, metavar="K", help="how many classes to name (default: 3)")
    parser.add_argument("--json", action="store_true", help="one JSON object per line instead of a table")
    add_trust(parser)
    parser.add_argument("--seed", type=int, default=0, metavar="N", help="seed of the noise (default: 0)")


def run(options: argparse.Namespace) -> None:
    """Print a table of predictions, or a JSON line as soon as each is known."""
    chosen = pick(options, "samples", "selection", "top", "seed")
    rows = list[Prediction]()
    try:
        for row in predict_pictures(open_run_or_model(options.run, options.trust_code), options.images, **chosen):
            if options.json:
                print(row.to_json())
            else:
                rows.append(row)
    finally:  # pictures that cannot be read are named at the end, after the predictions for the others
        if rows:
            print(format_predictions(rows))
