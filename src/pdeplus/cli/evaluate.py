"""Test models on clean, corrupted or attacked images; what is already measured is kept.

pdeplus evaluate timm:resnet18.a1_in1k --data my_pictures --report robust.html
pdeplus evaluate runs/erm runs/pde
pdeplus evaluate runs/pde --samples 0 1 5 10
pdeplus evaluate runs/pde --files CIFAR-10-C
pdeplus evaluate runs/erm runs/pde --suite cbar
pdeplus evaluate runs/erm runs/pde --suite adversarial --attack pgd --steps 20 --epsilon 2/255 8/255
pdeplus evaluate model.onnx --data cifar10 --name mine --out mine
"""

import argparse
import re
import shlex
import warnings
from collections.abc import Sequence
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import Any

from .._lib.files import unused
from .._lib.registry import FILES, PYTHON, choices
from ..attacks.gradient_attacks import ATTACKS
from ..attacks.steps import Norm
from ..core.prediction import Average
from ..data.image_folder import ImageFolder
from ..errors import UserError
from ..evaluation.given_models import folder_for, is_run
from ..evaluation.loop import evaluate
from ..evaluation.records import Record, Selection, identity, in_words
from ..evaluation.summary import Series, accuracies_by_test, on_measured_tests, scores, series_of
from ..evaluation.test_sets import Wanted, is_folder
from ..training.run_folder import Run
from .base import add_choice, add_trust, build_data, pick


def arguments(parser: argparse.ArgumentParser) -> None:
    about = "run folder, URI (timm:NAME, torchvision:NAME, hf:NAME), .onnx, .pt2 or .safetensors file, dotted name"
    parser.add_argument("models", nargs="*", metavar="MODEL", help=about)
    add_choice(parser, "--suite", Wanted, default="corruptions", help="which test sets (default: corruptions)")
    parser.add_argument("--samples", nargs="+", type=int, metavar="E", help="noisy passes; several numbers: a curve")
    add_choice(parser, "--average", Average, help="what is averaged over the noisy passes")
    selection = (
        "weights of which epoch: last, best on validation images (default), or best on the test sets, as the authors do"
    )
    selections = [name for name in choices(Selection) if name != "given"]  # which is a model without a choice
    parser.add_argument("--selection", choices=selections, default="validation", help=selection)
    about = "folder of class folders, or another data set, and its options"
    parser.add_argument("--data", nargs="+", metavar=("FOLDER", "KEY=VALUE"), help=about)
    parser.add_argument(
        "--report",
        metavar="FILE",
        help="write a page with the verdict, figures, and pictures misclassified once corrupted",
    )
    parser.add_argument("--files", metavar="DIR", help="read corrupted images from here, e.g. CIFAR-10-C")
    about = "some corruptions only, also your own by dotted name (default: the suite's)"
    parser.add_argument("--corruption", nargs="+", metavar="NAME", help=about)
    parser.add_argument("--severity", nargs="+", type=int, metavar="N", help="severities, 1 to 5 (default: all)")
    parser.add_argument("--limit", type=int, default=0, metavar="N", help="images per test set (default: all)")
    extent = parser.add_mutually_exclusive_group()
    quick = "300 images, severities 1, 3 and 5 (default for images of more than 128 pixels)"
    extent.add_argument("--quick", action="store_true", help=quick)
    extent.add_argument("--full", action="store_true", help="all images, all severities")
    about = 'also test with BatchNorm adapted to each test batch, in a row marked "uses test images"'
    parser.add_argument("--adapt", action="store_true", help=about)
    parser.add_argument("--seed", type=int, default=0, metavar="N", help="seed of corruptions and attack (default: 0)")
    parser.add_argument("--name", help="name of the model in tables (default: its method)")
    parser.add_argument("--compile", action="store_true", help="use torch.compile: faster after the first seconds")
    parser.add_argument("--out", metavar="DIR", help="folder for records.jsonl (default: the run folder)")
    add_trust(parser)
    attack = parser.add_argument_group("options of --suite adversarial")
    attack.add_argument("--attack", choices=tuple(ATTACKS), help="which attack (default: pgd)")
    attack.add_argument("--norm", choices=choices(Norm), help="norm of an image's change (default: linf)")
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
        raise argparse.ArgumentTypeError(f"{text!r} is not a number such as 0.03 or 8/255") from error


def run(options: argparse.Namespace) -> None:
    """Evaluate each model with each number of samples, and print a line of results for each.

    Sanity checks follow an attack; with a report, or a model that is no run, a verdict and what to try
    next. No result is printed before all are done.
    """
    sort_words(options)
    chosen = pick(options, "suite", "selection", "average", "files", "limit", "seed", "name")
    chosen |= pick(options, "compile", "trust_code")
    chosen |= {"severities": tuple(sorted(set(options.severity)))} if options.severity else {}
    chosen |= {"corruptions": options.corruption, "say": print, **_threat(options)}
    chosen["quick"] = options.quick or (None if not (options.full or options.limit or options.severity) else False)
    data, lines, measured, folders = _data(options), list[str](), list[Record](), dict[Path, None]()
    for model in options.models:
        out = options.out or _folder_beside(options.report, model)
        folders |= {Path(out or model): None}
        for samples in options.samples or [None]:
            records = _measured(options, model, {**chosen, "data": data, "samples": samples, "out": out})
            measured += records
            lines += [describe(series) for series in on_measured_tests(series_of(records))]
            if not is_run(model) and not out:
                lines.append("  these records are not kept; --out DIR keeps them for pdeplus report")
            r = records[0]
            if r.suite == "adversarial":
                from ..evaluation.adversarial import sanity_lines

                folder = Path(out or model) / ("oracle" if r.selection == "oracle" else "")
                found = sanity_lines(folder, r.model, r.origin, r.weights, r.samples)
                lines += [f"  sanity: {line}" for line in found]
    print("\n".join(lines))
    if options.report or not all(map(is_run, options.models)):
        _conclude(options, measured, list(folders))


def _measured(options: argparse.Namespace, model: str, chosen: dict[str, Any]) -> list[Record]:
    """The records of a model and, if asked for, of the same with adapted BatchNorm, where there is any."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "sanity of ", UserWarning)  # told with the results
        records = evaluate(model, progress=True, **chosen)
    if options.adapt:
        again: dict[str, Any] = {**chosen, "adapt": True, "say": _quiet}
        try:
            records += evaluate(model, progress=True, **again)
        except UserError as error:  # the model itself could be evaluated
            print(f"{model}: {error}")
    return records


def _quiet(line: str) -> None:
    """What was said of the model is not said again."""


def sort_words(options: argparse.Namespace) -> None:
    """Take models out of what --data and --corruption have swallowed; without any model that is refused."""
    given: list[list[str] | None] = [options.data, options.corruption]
    for words in (words for words in given if words):
        for word in [word for word in words[1:] if not re.match(r"[\w.]+=", word)]:
            if is_run(word) or Path(word.partition("?")[0]).suffix in FILES or ":" in word:
                words.remove(word)
                options.models.append(word)
    if not options.models:
        raise UserError("evaluate needs a MODEL: a RUN folder, a URI, an .onnx file; see: pdeplus evaluate --help")


def _data(options: argparse.Namespace) -> Any:
    """What to test on: one folder for all models, as the first takes it, or a named data set."""
    if not options.data:
        return None
    name, *settings = options.data
    if not is_folder(name):
        return build_data(name, settings)
    wrong = next((setting for setting in settings if "=" not in setting), None)
    if wrong is not None:
        raise UserError(f"{wrong!r} is not of the form key=value")
    text = f"{name}?{'&'.join(s.removeprefix('data.') for s in settings)}" if settings else name
    return folder_for(text, options.models, options.trust_code)


def _folder_beside(report: str | None, model: str) -> Path | None:
    """Where the records of a model without a folder go if there is a report: into a folder beside it."""
    if report is None or is_run(model):
        return None
    return Path(report).with_suffix("") / re.sub(r"[^\w.=-]+", "-", model).strip("-")


def _conclude(options: argparse.Namespace, records: Sequence[Record], folders: Sequence[Path]) -> None:
    """Print a verdict on each model and what to try next, and write the report."""
    from ..reports.inputs import gather, groups_of
    from ..reports.verdict import verdict

    groups = [group for group in groups_of(records, "ERM") if group.suite in ("corruptions", "cbar")]
    verdicts = [verdict(line, group.main_score) for group in groups for line in group.lines]
    tries = _try_next(options) if verdicts else []
    print("\n".join([*verdicts, *(f"Try next: {command}" for command in tries)]) or "", end="\n" * bool(verdicts))
    if options.report:
        from ..reports.page import report

        known, material = {identity(r) for r in records}, gather(folders)
        material = replace(material, records=tuple(r for r in material.records if identity(r) in known))
        print(report(material, options.report, title="How robust is it?", try_next=tries))


def _try_next(options: argparse.Namespace) -> list[str]:
    """Commands that may make the first model more robust, or show what would.

    Each runs as it stands, but where nothing to learn from is known: there a word in capitals stands for a folder.
    """
    model, data = options.models[0], list[str](options.data or [])
    if is_run(model):
        config = Run(Path(model), options.trust_code).config
        given = any(part.name.startswith(PYTHON) for part in (config.model, config.data))  # which no command can name
        if config.method.name == "erm" and not given:
            out = _free(Path(model).with_name(f"{Path(model).name}-pde"))
            return [shlex.join(["pdeplus", "train", f"{model}/config.toml", "method.name=pde_plus", "--out", out])]
        if config.method.name.startswith("pde_plus") and not options.samples and not given:
            return [shlex.join(["pdeplus", "evaluate", model, "--samples", "10", *(["--data", *data] if data else [])])]
        return []
    root = data[0].partition("?")[0] if data and is_folder(data[0]) else ""
    try:
        ImageFolder(root=root).train()
    except UserError:  # there is no folder, or one with test pictures alone
        root = "FOLDER_OF_TRAINING_PICTURES"
    exported = Path(model.partition("?")[0]).suffix in (".onnx", ".pt2")
    own = [] if exported else [f"model.name={model}"]
    words = ["pdeplus", "train", "finetune", f"data.root={root}", *own, "--out", _free(Path("runs/finetuned"))]
    return [shlex.join(words)]


def _free(folder: Path) -> str:
    """The folder, or one beside it where it is taken."""
    return str(unused(folder, "-") if folder.exists() else folder)


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
    if "part" in found:
        shown.insert(1, f"corrupted ({series.extent}) {100 * found['part'].mean:.2f} %")
    gaps = [f"{len(cells)} of {len(series.wanted)} test sets missing" for cells in series.gaps.values()]
    leak = ", chosen on these very test sets" if series.selection == "oracle" else ""
    return f"{series.label} ({series.selection}{noise}{leak}), {in_words(series.origin)}: {', '.join(shown + gaps)}"


_SHOWN = {
    "clean": "clean",
    "corrupted": "corrupted",
    "severe": "severity 5",
    "cbar": "C̄",
    "severe_cbar": "severity 5",
    "domains": "other domains",
    "ece": "ECE",
}
