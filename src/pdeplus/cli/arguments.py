"""The arguments of each command, and the example its --help shows."""

import argparse
from collections.abc import Callable
from fractions import Fraction
from typing import Any, NoReturn, final

from .. import __version__

FAMILIES = ("methods", "models", "data", "augment", "corruptions", "experiments")
SUITES = ("clean", "corruptions", "all_corruptions", "domains", "adversarial")
ATTACKS = ("fgsm", "pgd", "apgd_ce", "apgd_dlr")
Fail = Callable[[str], NoReturn]


def build_parser(fail: Fail) -> argparse.ArgumentParser:
    """The parser of the whole command line; `options.command` is the chosen command's name.

    A mistake is handed to `fail` in one line.
    """

    @final
    class Parser(argparse.ArgumentParser):
        def error(self, message: str) -> NoReturn:
            fail(f"{message}; see: {self.prog} --help")

    parser = Parser(
        prog="pdeplus",
        description="Train image classifiers that hold up under distribution shift.",
        epilog="example: pdeplus demo",
    )
    parser.add_argument("--version", action="version", version=f"pdeplus {__version__}")
    commands = parser.add_subparsers(title="commands", required=True, metavar="COMMAND")
    work = (_demo, _train, _evaluate, _report, _analyse, _reproduce, _theory)
    for define in (*work, _predict, _export, _corrupt, _data, _list):
        define(commands)
    return parser


def _command(commands: Any, name: str, help: str, example: str) -> argparse.ArgumentParser:
    parser: argparse.ArgumentParser = commands.add_parser(
        name,
        help=help,
        description=help[0].upper() + help[1:] + ".",
        epilog=f"example:\n  {example}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.set_defaults(command=name)
    return parser


def _demo(commands: Any) -> None:
    about = "the whole story in minutes on a laptop CPU, on data that comes with the install"
    demo = _command(commands, "demo", about, "pdeplus demo --out my_demo")
    demo.add_argument("--out", default="demo", metavar="DIR", help="folder for runs and report (default: demo)")
    demo.add_argument("overrides", nargs="*", metavar="KEY=VALUE", help="change a setting, e.g. train.epochs=3")


def _train(commands: Any) -> None:
    about = "train a network; an interrupted run goes on exactly where it stopped"
    example = "pdeplus train demo method.name=erm train.epochs=5 --out runs/erm\n  pdeplus train --resume runs/erm"
    train = _command(commands, "train", about, example)
    train.add_argument("preset", nargs="?", help="name (see: pdeplus list experiments) or a .toml file")
    train.add_argument("overrides", nargs="*", metavar="KEY=VALUE", help="change a setting; values as in TOML")
    train.add_argument("--out", metavar="DIR", help="new run folder (default: runs/PRESET-METHOD-seedN)")
    train.add_argument("--resume", metavar="DIR", help="go on with the run in this folder")


def _evaluate(commands: Any) -> None:
    about = "test runs or an .onnx file, clean and corrupted; what is measured already is kept"
    example = (
        "pdeplus evaluate runs/erm runs/pde\n"
        "  pdeplus evaluate runs/pde --samples 0 1 5 10\n"
        "  pdeplus evaluate runs/pde --files CIFAR-10-C\n"
        "  pdeplus evaluate runs/erm runs/pde --suite adversarial --attack pgd --steps 20 --epsilon 2/255 8/255\n"
        "  pdeplus evaluate model.onnx --data cifar10 --name mine --out mine"
    )
    evaluate = _command(commands, "evaluate", about, example)
    evaluate.add_argument("models", nargs="+", metavar="RUN", help="run folder or .onnx file")
    evaluate.add_argument("--suite", choices=SUITES, default="corruptions", help="which tests (default: corruptions)")
    evaluate.add_argument("--samples", nargs="+", type=int, metavar="E", help="noisy passes; several make a curve")
    evaluate.add_argument("--average", choices=("probabilities", "logits"), help="what these average")
    chosen = "weights by validation (default), last, or best on the test itself, as the authors have it"
    evaluate.add_argument("--selection", choices=("validation", "last", "oracle"), default="validation", help=chosen)
    evaluate.add_argument("--data", nargs="+", metavar=("NAME", "KEY=VALUE"), help="test on another data set")
    evaluate.add_argument("--files", metavar="DIR", help="read corrupted images from here, e.g. CIFAR-10-C")
    evaluate.add_argument("--severity", nargs="+", type=int, metavar="N", help="1 to 5 (default: all)")
    evaluate.add_argument("--limit", type=int, default=0, metavar="N", help="images of each test set (default: all)")
    evaluate.add_argument("--seed", type=int, default=0, metavar="N", help="of corruptions or attack (default: 0)")
    evaluate.add_argument("--name", help="what tables call the model (default: its method)")
    evaluate.add_argument("--compile", action="store_true", help="by torch.compile: faster after the first seconds")
    evaluate.add_argument("--out", metavar="DIR", help="folder for records.jsonl (default: the run's)")
    attack = evaluate.add_argument_group("of --suite adversarial")
    attack.add_argument("--attack", choices=ATTACKS, help="(default: pgd)")
    attack.add_argument("--norm", choices=("linf", "l2"), help="of the change of an image (default: linf)")
    sizes = "size of the change (default: 1/255 2/255 4/255 8/255, or 0.1 0.25 0.5 1 in l2)"
    attack.add_argument("--epsilon", nargs="+", type=_fraction, metavar="EPS", help=sizes)
    attack.add_argument("--steps", type=int, metavar="N", help="(default: 10, of apgd 100)")
    attack.add_argument("--restarts", type=int, metavar="N", help="(default: 1)")
    eot = "noisy passes the attack averages where the model predicts with noise (default: 10)"
    attack.add_argument("--eot", type=int, metavar="N", help=eot)


def _fraction(text: str) -> float:
    """0.03 or 8/255."""
    try:
        return float(Fraction(text))
    except (ValueError, ZeroDivisionError) as error:
        raise argparse.ArgumentTypeError(f"{text!r} is no number such as 0.03 or 8/255") from error


def _report(commands: Any) -> None:
    about = "tables, figures and one self-contained page of evaluated runs"
    example = "pdeplus report runs/erm runs/pde --out report.html --files tables"
    report = _command(commands, "report", about, example)
    report.add_argument("runs", nargs="+", metavar="RUN", help="evaluated run folder, or a records.jsonl")
    report.add_argument("--out", default="report.html", metavar="FILE", help="(default: report.html)")
    report.add_argument("--baseline", default="ERM", metavar="NAME", help="what mCE compares with (default: ERM)")
    report.add_argument("--files", metavar="DIR", help="also Markdown, CSV, LaTeX tables; PNG, PDF, SVG figures")
    report.add_argument("--title", default="Robustness report", help="of the page")


def _analyse(commands: Any) -> None:
    about = "why a trained network does what it does: coverage, diffusion scale, curves, smoothness, as figures"
    example = "pdeplus analyse runs/erm runs/pde --out analysis"
    analyse = _command(commands, "analyse", about, example)
    analyse.add_argument("runs", nargs="+", metavar="RUN", help="run folder; with train.keep_every=1 for coverage")
    analyse.add_argument("--out", default="analysis", metavar="DIR", help="folder for figures and tables")
    analyse.add_argument("--images", type=int, default=256, metavar="N", help="held-out images (default: 256)")
    analyse.add_argument("--seed", type=int, default=0, metavar="N", help="of what is drawn (default: 0)")


def _reproduce(commands: Any) -> None:
    about = "a table or figure of the paper, from training to the paper's value beside ours; finished cells are kept"
    example = (
        "pdeplus list experiments\n"
        "  pdeplus reproduce table1_cifar10 --scale small --dry-run\n"
        "  pdeplus reproduce table2_pacs --scale small data.root=DIR\n"
        "  pdeplus reproduce study --scale small --records results\n"
        "  pdeplus reproduce table1_cifar10 --scale full --on ray --cpus 8 --gpus 1\n"
        "  pdeplus reproduce table1_cifar10 --scale full --on slurm --cpus 8 --gpus 1 --dry-run"
    )
    reproduce = _command(commands, "reproduce", about, example)
    reproduce.add_argument("experiment", help="name (see: pdeplus list experiments) or a .toml file")
    reproduce.add_argument("overrides", nargs="*", metavar="KEY=VALUE", help="change a setting of every cell")
    scales = "the paper's own, minutes a cell on a CPU core (default), or seconds"
    reproduce.add_argument("--scale", choices=("full", "small", "smoke"), default="small", help=scales)
    reproduce.add_argument("--seeds", type=int, metavar="N", help="repetitions (default: the scale's)")
    reproduce.add_argument("--out", default="reproduced", metavar="DIR", help="(default: reproduced)")
    records = "folder with records of cells done elsewhere, such as results: those are not run again"
    reproduce.add_argument("--records", metavar="DIR", help=records)
    dry = "only say which cells, how many hours, how much disk; with --on slurm print its script"
    reproduce.add_argument("--dry-run", action="store_true", help=dry)
    on = "here one by one (default), on a Ray cluster, as Slurm jobs, or nowhere: the outcome of what is done"
    reproduce.add_argument("--on", choices=("local", "ray", "slurm", "none"), default="local", help=on)
    reproduce.add_argument("--cpus", type=int, metavar="N", help="CPUs of a cell on a cluster (default: 1)")
    gpus = "GPUs of a cell on a cluster (default: on Ray 1 where it has any, else 0)"
    reproduce.add_argument("--gpus", type=int, metavar="N", help=gpus)
    reproduce.add_argument("--cell", type=int, metavar="N", help="run only the Nth cell, and write no outcome")


def _theory(commands: Any) -> None:
    about = "the theory made visible: solver against Monte Carlo against closed forms, the theorems, figures, a page"
    theory = _command(commands, "theory", about, "pdeplus theory --out theory")
    theory.add_argument("--out", default="theory", metavar="DIR", help="folder for all of it (default: theory)")
    theory.add_argument("--quick", action="store_true", help="coarse and in seconds")
    theory.add_argument("--seed", type=int, default=0, metavar="N", help="of points and paths (default: 0)")


def _predict(commands: Any) -> None:
    about = "what a trained run says of pictures, and how sure it is"
    example = "pdeplus predict demo/pde_plus a.png holiday_pictures --samples 10"
    predict = _command(commands, "predict", about, example)
    predict.add_argument("run", help="run folder")
    predict.add_argument("images", nargs="+", metavar="IMAGE", help="picture or folder of pictures")
    predict.add_argument("--samples", type=int, metavar="E", help="noisy passes (default: the method's own; 0: none)")
    _add_selection(predict)
    predict.add_argument("--top", type=int, default=3, metavar="K", help="how many classes to name (default: 3)")
    predict.add_argument("--json", action="store_true", help="one JSON object per line instead of a table")
    predict.add_argument("--seed", type=int, default=0, metavar="N", help="of the noise (default: 0)")


def _export(commands: Any) -> None:
    about = "a trained run's network as one file, compared with the original before it is kept"
    example = "pdeplus export demo/pde_plus --format onnx --out digits.onnx"
    export = _command(commands, "export", about, example)
    export.add_argument("run", help="run folder")
    export.add_argument("--format", choices=("onnx", "torch"), required=True, help="ONNX, or torch's exported program")
    export.add_argument("--out", metavar="FILE", help="(default: model.onnx or model.pt2 in the run folder)")
    _add_selection(export)
    export.add_argument("--force", action="store_true", help="overwrite an existing file")


def _add_selection(parser: argparse.ArgumentParser) -> None:
    help = "weights of the best validation score (default) or of the last epoch"
    parser.add_argument("--selection", choices=("validation", "last"), default="validation", help=help)


def _corrupt(commands: Any) -> None:
    about = "corrupted copies of a data set's test images or of a folder of pictures; interrupted work goes on"
    example = (
        "pdeplus corrupt cifar10 --out CIFAR-10-C\n"
        "  pdeplus corrupt my_pictures --out my_pictures_c --corruption fog snow --severity 3\n"
        "  pdeplus corrupt my_pictures --sheet sheet.png"
    )
    corrupt = _command(commands, "corrupt", about, example)
    corrupt.add_argument("source", help="data set (see: pdeplus data list) or a folder of pictures")
    corrupt.add_argument("overrides", nargs="*", metavar="KEY=VALUE", help="the data set's options, e.g. size=64")
    corrupt.add_argument("--out", metavar="DIR", help="folder for the corrupted images")
    corrupt.add_argument("--corruption", nargs="+", metavar="NAME", help="which (default: all 19)")
    corrupt.add_argument("--severity", nargs="+", type=int, metavar="N", help="1 to 5 (default: all)")
    corrupt.add_argument("--scale", choices=("cifar", "tiny", "imagenet"), help="whose constants (default: by size)")
    corrupt.add_argument("--seed", type=int, default=0, help="of all randomness (default: 0)")
    corrupt.add_argument("--layout", choices=("npy", "folders"), help="of a data set (default: npy at scale cifar)")
    corrupt.add_argument("--workers", type=int, default=0, metavar="N", help="threads (default: one per core)")
    corrupt.add_argument("--sheet", metavar="FILE", help="draw the first image under every corruption instead")


def _data(commands: Any) -> None:
    example = "pdeplus data list\n  pdeplus data get cifar10 --root datasets"
    data = _command(commands, "data", "which data sets are here, and get the others", example)
    data.add_argument("action", choices=("list", "get"))
    data.add_argument("name", nargs="?", help="data set to get")
    where = "data folder (default: $PDEPLUS_DATA, else ~/.cache/pdeplus)"
    data.add_argument("--root", default="", metavar="DIR", help=where)


def _list(commands: Any) -> None:
    listing = _command(commands, "list", "what there is to choose from, with its options", "pdeplus list methods")
    listing.add_argument("family", choices=FAMILIES)
