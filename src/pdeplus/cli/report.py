"""Write tables, figures and one self-contained page about evaluated runs.

pdeplus report runs/erm runs/pde --out report.html --files tables
"""

import argparse


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("runs", nargs="+", metavar="RUN", help="evaluated run folder, or a records.jsonl")
    parser.add_argument("--out", default="report.html", metavar="FILE", help="the page (default: report.html)")
    parser.add_argument("--baseline", default="ERM", metavar="NAME", help="reference series of mCE (default: ERM)")
    files = "also write tables (Markdown, CSV, LaTeX) and figures (PNG, PDF, SVG) into this folder"
    parser.add_argument("--files", metavar="DIR", help=files)
    parser.add_argument("--title", default="Robustness report", help="title of the page (default: Robustness report)")


def run(options: argparse.Namespace) -> None:
    """Write the page and print its path."""
    from ..reports.page import report

    print(report(options.runs, options.out, baseline=options.baseline, files=options.files, title=options.title))
