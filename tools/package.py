"""Build sdist and wheel, install each into a fresh environment with core dependencies alone, and use it there.

    python tools/package.py [sdist] [wheel] [--keep DIR]

Versions are those of constraints.txt. Nothing is kept but, with --keep, what has passed.
"""

import argparse
import shutil
import subprocess
import sys
import tempfile
import venv
from pathlib import Path

ROOT = Path(__file__).parents[1]
TINY = [
    "data.name=synthetic",
    "data.size=16",
    "train.limit=60",
    "train.epochs=1",
    "model.name=plain_cnn",
    "model.width=2",
]
WORKS = (
    ["--version"],
    ["--help"],
    ["list", "methods"],
    ["data", "list"],
    ["train", "demo", "method.name=erm", *TINY, "--out", "run"],
    ["evaluate", "run", "--suite", "clean", "--limit", "20"],
    ["corrupt", "synthetic", "size=16", "--out", "c", "--corruption", "contrast"],
    ["export", "run", "--format", "torch"],
)
"""The first steps, which need no extra."""
LACKS = (
    (["demo"], "pip install 'pdeplus[plots]'"),
    (["corrupt", "synthetic", "size=16", "--sheet", "sheet.png"], "pip install 'pdeplus[plots]'"),
    (["report", "run", "--out", "page.html"], "pip install 'pdeplus[plots]'"),
    (["export", "run", "--format", "onnx"], "pip install 'pdeplus[onnx]'"),
    (["train", "demo", "data.name=digits", "--out", "other"], "pip install 'pdeplus[digits]'"),
)
"""What needs an extra, and the line that says so."""
STRICT = (
    "import sys, warnings; warnings.filterwarnings('error', module='pdeplus'); from pdeplus.cli import main; main()"
)
"""The command, with warnings of our own as errors."""
IMPORTS = "import pdeplus as pp; [getattr(pp, name) for name in pp.__all__]; print(pp.__file__)"


def run(*words: object, cwd: Path, code: int = 0) -> str:
    """What a command prints; any other exit code ends the trial."""
    done = subprocess.run([*map(str, words)], cwd=cwd, capture_output=True, text=True)
    shown = done.stdout + done.stderr
    if done.returncode != code:
        sys.exit(f"{' '.join(map(str, words[1:]))} ended with {done.returncode}, not {code}:\n{shown}")
    return shown


def environment(folder: Path) -> Path:
    """The Python of a new environment."""
    venv.create(folder, with_pip=True)
    return folder / ("Scripts" if sys.platform == "win32" else "bin") / "python"


def build(folder: Path) -> dict[str, Path]:
    """Sdist and wheel of this source."""
    python = environment(folder / "build")
    run(python, "-m", "pip", "install", "--quiet", "hatchling", cwd=ROOT)
    run(python, "-m", "hatchling", "build", "-d", folder / "dist", cwd=ROOT)
    sdist, wheel = (next((folder / "dist").glob(pattern)) for pattern in ("*.tar.gz", "*.whl"))
    return {"sdist": sdist, "wheel": wheel}


def attempt(kind: str, artefact: Path, folder: Path) -> None:
    """Install it and take the first steps."""
    python, work = environment(folder / f"{kind}-environment"), folder / f"{kind}-work"
    work.mkdir()
    run(python, "-m", "pip", "install", "--quiet", "-c", ROOT / "constraints.txt", artefact, cwd=work)
    where = run(python, "-W", "error::DeprecationWarning:pdeplus", "-c", IMPORTS, cwd=work)
    installed = Path(where.strip().splitlines()[-1]).parent
    for name in ("py.typed", "__init__.pyi", "training/presets/demo.toml"):
        if not (installed / name).is_file():
            sys.exit(f"{kind}: {name} is not installed")
    for words in WORKS:
        run(python, "-c", STRICT, *words, cwd=work)
    for words, line in LACKS:
        shown = run(python, "-c", STRICT, *words, cwd=work, code=2)
        if line not in shown or len(shown.strip().splitlines()) != 1:
            sys.exit(f"{' '.join(words)} is answered with: {shown}")
    versions = run(python, "-m", "pip", "list", "--format", "freeze", cwd=work)
    torch = next(line for line in versions.splitlines() if line.startswith("torch=="))
    print(
        f"{kind}: {len(WORKS)} commands work, {len(LACKS)} name the extra they need; {sys.version.split()[0]}, {torch}"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("kinds", nargs="*", metavar="KIND", help="sdist, wheel (default: both)")
    parser.add_argument("--keep", type=Path, metavar="DIR", help="where to put what has passed")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="package-") as scratch:
        folder = Path(scratch)
        built = build(folder)
        for kind in options.kinds or built:
            attempt(kind, built[kind], folder)
            if options.keep:
                options.keep.mkdir(parents=True, exist_ok=True)
                print(shutil.copy2(built[kind], options.keep))


if __name__ == "__main__":
    main()
