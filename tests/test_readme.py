"""README's commands and code, and the examples, run as they stand."""

import re
import subprocess
import sys
from pathlib import Path

import pytest
from support.forkserver import finish, start, start_script

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text("utf-8")
PYTHON = re.findall(r"```python\n(.*?)```", README, re.S)
SHELL = [
    line.split("#")[0].strip()
    for block in re.findall(r"```bash\n(.*?)```", README, re.S)
    for line in block.splitlines()
]
COMMANDS = [line for line in SHELL if line.startswith("pdeplus ") and not line.startswith("pdeplus data get")]
FROM_A_HUB = [line for line in COMMANDS if "timm:" in line]
"""Their weights are not at hand; the tutorials' tests run the same commands with weights of their own."""
SCRIPTS = [line.removeprefix("python ") for line in SHELL if line.startswith("python ")]
SMALLER = ["model.width=2", "train.limit=80", "data.name=digits"]
"""What makes a training of README take a second, on data that needs no download."""


@pytest.mark.parametrize("code", PYTHON)
def test_python(code, tmp_path):
    script = tmp_path / "code.py"
    script.write_text(code)
    finish(start_script(script, cwd=tmp_path), tmp_path)


def test_commands_run_one_after_the_other(tmp_path):
    assert [line.split()[1] for line in FROM_A_HUB] == ["evaluate", "train"]
    for command in COMMANDS:
        if command not in FROM_A_HUB:
            words = command.split()[1:]
            finish(start(*words, *(SMALLER if words[0] == "train" else []), cwd=tmp_path), tmp_path)
    assert (tmp_path / "report.html").is_file()
    assert (tmp_path / "model.onnx").is_file()
    assert [script for script in SCRIPTS if not (ROOT / script).is_file()] == []  # a test of loops runs it


def test_readme_is_short():
    assert README.count("\n") < 90


def test_make_targets_of_the_readme_exist_and_ci_calls_the_test_command():
    targets = [line for line in SHELL if line.startswith("make ")]
    assert targets == ["make demo", "make test"]
    makefile = (ROOT / "Makefile").read_text()
    for target in targets:
        assert re.search(rf"^{target.split()[1]}:", makefile, re.M)
    assert (ROOT / ".ci" / "run").read_text().splitlines()[-1] == "make test"
    for tool in ("ruff check", "ruff format --check", "pyright", "pytest"):
        assert f"$(BIN)/{tool}" in makefile


def test_make_quick_names_tests_that_exist():
    words = (ROOT / "Makefile").read_text().partition("\nQUICK :=")[2].partition("\n\n")[0].replace("\\", "").split()
    assert words
    assert [word for word in words if not (ROOT / "tests" / word).exists()] == []


def example(name, cwd, *arguments):
    """What an example prints."""
    return finish(start_script(ROOT / "examples" / f"{name}.py", *arguments, cwd=cwd), cwd)


def test_example_wrap_your_model(tmp_path):
    shown = example("wrap_your_model", tmp_path)
    assert float(shown.split()[1].rstrip(",")) > 0.9


def test_example_corrupt_a_folder(tmp_path):
    shown = example("corrupt_a_folder", tmp_path)
    assert shown.count("mean change") == 4


def test_example_train_on_your_images(tmp_path):
    shown = example("train_on_your_images", tmp_path)
    assert float(shown.split()[2]) > 0.5


def test_example_compare_methods(tmp_path):
    tiny = ["--epochs", "1", "--limit", "5", "--methods", "mixup", "erm", "train.limit=60", "data.size=8"]
    shown = example("compare_methods", tmp_path, *tiny)
    assert [line.split()[0] for line in shown.splitlines()[:2]] == ["erm", "mixup"]
    assert "1.00 × the first's" in shown
    assert (tmp_path / "comparison" / "report.html").is_file()


def test_example_write_a_method(tmp_path):
    words = ["train", "demo", "method.name=examples.write_a_method", "method.noise=0.2", *SMALLER, "train.epochs=1"]
    command = [sys.executable, "-m", "pdeplus", *words, "--out", str(tmp_path / "run")]
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, timeout=200)  # which imports for itself
    assert done.returncode == 0, done.stderr


def test_make_benchmark_calls_what_there_is():
    target = (ROOT / "Makefile").read_text().partition("\nbenchmark:")[2].partition("\n\n")[0]
    calls = [line.split() for line in target.splitlines() if line.startswith("\t")]
    assert all(words[:3] == ["$(BIN)/python", "-m", "benchmarks"] for words in calls)
    assert {(ROOT / "benchmarks" / f"{name}.py").is_file() for name in calls[1][3:]} == {True}
