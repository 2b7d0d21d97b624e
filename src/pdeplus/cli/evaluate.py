"""Test runs or an .onnx file on clean, corrupted or attacked images; what is already measured is kept.

pdeplus evaluate runs/erm runs/pde
pdeplus evaluate runs/pde --samples 0 1 5 10
pdeplus evaluate runs/pde --files CIFAR-10-C
pdeplus evaluate runs/erm runs/pde --suite cbar
pdeplus evaluate runs/erm runs/pde --suite adversarial --attack pgd --steps 20 --epsilon 2/255 8/255
pdeplus evaluate model.onnx --data cifar10 --name mine --out mine
"""

import argparse
import warnings
from fractions import Fraction
from pathlib import Path
from typing import Any

from .._lib.long_work import counting_bar
from .._lib.registry import choices
from ..attacks.gradient_attacks import ATTACKS
from ..attacks.steps import Norm
from ..core.prediction import Average
from ..errors import UserError
from ..evaluation.loop import evaluate
from ..evaluation.records import Selection
from ..evaluation.summary import Series, accuracies_by_test, scores, series_of
from ..evaluation.test_sets import Wanted
from .base import add_choice, add_trust, build_data, pick


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("models", nargs="+", metavar="RUN", help="run folder or .onnx file")
    add_choice(parser, "--suite", Wanted, default="corruptions", help="which test sets (default: corruptions)")
    parser.add_argument("--samples", nargs="+", type=int, metavar="E", help="noisy passes; several numbers: a curve")
    add_choice(parser, "--average", Average, help="what the noisy passes average")
    selection = (
        "weights: last epoch, best on validation images (default), or best on the tests themselves, as the authors do"
    )
    selections = [name for name in choices(Selection) if name != "given"]  # which is a model without a choice
    parser.add_argument("--selection", choices=selections, default="validation", help=selection)
    parser.add_argument("--data", nargs="+", metavar=("NAME", "KEY=VALUE"), help="another data set and its options")
    parser.add_argument("--files", metavar="DIR", help="read corrupted images from here, e.g. CIFAR-10-C")
    parser.add_argument("--severity", nargs="+", type=int, metavar="N", help="severities, 1 to 5 (default: all)")
    parser.add_argument("--limit", type=int, default=0, metavar="N", help="images per test set (default: all)")
    parser.add_argument("--seed", type=int, default=0, metavar="N", help="seed of corruptions and attack (default: 0)")
    parser.add_argument("--name", help="what tables call the model (default: its method)")
    parser.add_argument("--compile", action="store_true", help="use torch.compile: faster after the first seconds")
    parser.add_argument("--out", metavar="DIR", help="folder for records.jsonl (default: the run folder)")
    add_trust(parser)
    attack = parser.add_argument_group("options of --suite adversarial")
    attack.add_argument("--attack", choices=tuple(ATTACKS), help="which attack (default: pgd)")
    attack.add_argument("--norm", choices=choices(Norm), help="how the change of an image is measured (default: linf)")
    sizes = "size of the change (default: 1/255 2/255 4/255 8/255, or 0.1 0.25 0.5 1 in l2)"
    attack.add_argument("--epsilon", nargs="+", type=_fraction, metavar="EPS", help=sizes)
    attack.add_argument("--steps", type=int, metavar="N", help="steps of the attack (default: 10, or 100 for apgd)")
    attack.add_argument("--restarts", type=int, metavar="N", help="random restarts (default: 1)")
    eot = "noisy passes the attack averages if the model predicts with noise (default: 10)"
    attack.add_argument("--eot", type=int, metavar="N", help=eot)


def _fraction(text: str) -> float:
    """0.03 or 8/255."""
    try:
        return float(Fraction(text))
    except (ValueError, ZeroDivisionError) as error:
        raise argparse.ArgumentTypeError(f"{text!r} is no number such as 0.03 or 8/255") from error


def run(options: argparse.Namespace) -> None:
    """Evaluate each model with each number of samples, and print a line of results for each.

    Behind an attacked one come the sanity checks. Nothing is printed before all are done.
    """
    chosen = pick(options, "suite", "selection", "average", "files", "limit", "seed", "name", "out")
    chosen |= pick(options, "compile", "trust_code")
    chosen |= {"severities": sorted(set(options.severity))} if options.severity else {}
    chosen |= _threat(options)
    lines = list[str]()
    for model in options.models:
        for samples in options.samples or [None]:
            title = model if samples is None else f"{model} E={samples}"
            data = build_data(options.data[0], options.data[1:]) if options.data else None
            with counting_bar(title, None, " images") as watch, warnings.catch_warnings():
                warnings.filterwarnings("ignore", "sanity of ", UserWarning)  # told below
                records = evaluate(model, data=data, samples=samples, watch=watch, **chosen)
            lines += [describe(series) for series in series_of(records)]
            if model.endswith(".onnx") and not options.out:
                lines.append("  these records are not kept; --out DIR keeps them for pdeplus report")
            r = records[0]
            if r.suite == "adversarial":
                from ..evaluation.adversarial import sanity_lines

                folder = Path(options.out or model) / ("oracle" if r.selection == "oracle" else "")
                found = sanity_lines(folder, r.model, r.origin, r.weights, r.samples)
                lines += [f"  sanity: {line}" for line in found]
    print("\n".join(lines))


def _threat(options: argparse.Namespace) -> dict[str, Any]:
    """The options of the adversarial suite as `evaluate` takes them; those not given are left out."""
    threat = pick(options, "attack", "norm", "epsilon", "steps", "restarts", "eot")
    given = {name: value for name, value in threat.items() if value is not None}
    if options.suite != "adversarial":
        if given:
            name, value = next(iter(given.items()))
            raise UserError(f"--{name} {value} is for --suite adversarial; the suite is {options.suite}")
        return {}
    from ..attacks.gradient_attacks import build_attack
    from ..evaluation.adversarial import EPSILONS

    attack = build_attack(given.get("attack", "pgd"), **pick(options, "norm", "steps", "restarts"))
    return {"attack": attack, "epsilons": given.get("epsilon", EPSILONS[attack.norm]), "eot": options.eot}


def describe(series: Series) -> str:
    """One line: what was tested and how well it did."""
    found, cells = scores(series), accuracies_by_test(series)
    noise = f", E={series.samples}" if series.samples else ""
    shown = [f"{label} {100 * found[name].mean:.2f} %" for name, label in _SHOWN.items() if name in found]
    shown += [f"{name} {100 * cells[name, 0].mean:.2f} %" for name in series.attacks]
    gaps = [f"{len(cells)} of {len(series.wanted)} test sets missing" for cells in series.gaps.values()]
    leak = ", chosen on these very test sets" if series.selection == "oracle" else ""
    return f"{series.label} ({series.selection}{noise}{leak}), {series.origin}: {', '.join(shown + gaps)}"


_SHOWN = {
    "clean": "clean",
    "corrupted": "corrupted",
    "severe": "severity 5",
    "cbar": "C̄",
    "severe_cbar": "severity 5",
    "domains": "other domains",
    "ece": "ECE",
}
