"""Export the network of a run, or one by URI, as one file, compared with the original before it is kept.

pdeplus export runs/pde --format onnx --out model.onnx
"""

import argparse

from ..evaluation.deployment import Format, export
from ..evaluation.given_models import open_run_or_model
from .base import add_choice, add_selection, add_trust


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("run", metavar="MODEL", help="run folder, URI such as timm:NAME, or dotted name")
    add_choice(parser, "--format", Format, required=True, help="ONNX, or torch's exported program")
    parser.add_argument("--out", metavar="FILE", help="new file (default: model.onnx or model.pt2 in the run folder)")
    add_selection(parser)
    add_trust(parser)
    parser.add_argument("--force", action="store_true", help="overwrite an existing file")


def run(options: argparse.Namespace) -> None:
    """Write the file, and print where it is and how closely it agrees."""
    run = open_run_or_model(options.run, options.trust_code)
    print(export(run, options.format, options.out, selection=options.selection, force=options.force))
