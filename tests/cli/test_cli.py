"""The command as a user meets it, in this process or in one of its own."""

import functools
import shlex
import signal
import subprocess
import sys
import tomllib
from importlib import resources

import pytest
from support.commands import answer, call

from pdeplus._lib.registry import choices
from pdeplus.attacks.gradient_attacks import ATTACKS
from pdeplus.attacks.steps import Norm
from pdeplus.cli import build_parser, command_files, main, parse
from pdeplus.core.prediction import Average
from pdeplus.corruptions.base import Constants
from pdeplus.corruptions.copies import Layout
from pdeplus.errors import UserError
from pdeplus.evaluation.deployment import Format
from pdeplus.evaluation.test_sets import Wanted
from pdeplus.studies.experiment import SizeName
from pdeplus.training.config import config_hash, load_config
from pdeplus.training.run_folder import Selection

QUICK = ["model.width=2", "data.size=8", "train.limit=80", "train.epochs=1"]


FIRST = ["demo", "train", "evaluate", "report"]
COMMANDS = [*FIRST, "analyse", "corrupt", "data", "export", "list", "predict", "reproduce", "sweep", "theory"]


def test_help_names_every_command_in_order(capsys):
    code, out, _ = answer(capsys, "--help")
    assert code == 0
    assert "example: pdeplus demo" in out
    assert list(command_files()) == COMMANDS
    assert [line.split()[0] for line in out.splitlines() if line[:4].isspace() and line[4:5].isalpha()] == COMMANDS


@pytest.mark.parametrize("words", [["--help"], ["train", "--help"], ["list", "--help"], ["--version"], ["bench"], []])
def test_torch_is_not_imported_where_nothing_needs_it(words):
    code = (
        "import sys; from pdeplus.cli import main\n"
        f"try: main({words})\n"
        "finally: print('torch' in sys.modules, 'numpy' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.stdout.splitlines()[-1] == "False False"


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_has_help_and_examples_that_parse(capsys, command):
    code, out, _ = answer(capsys, command, "--help")
    assert code == 0
    _, found, examples = out.partition("\nexample:\n")
    assert found
    lines = [shlex.split(line) for line in examples.splitlines()]
    assert any(words[1] == command for words in lines)
    for program, *words in lines:
        assert program == "pdeplus"
        assert parse(words).command == words[0]


@pytest.mark.parametrize(
    ("words", "flag", "expected"),
    [
        ("evaluate run", "suite", choices(Wanted)),
        ("evaluate run", "average", choices(Average)),
        ("evaluate run", "selection", (*choices(Selection), "oracle")),
        ("evaluate run", "attack", tuple(ATTACKS)),
        ("evaluate run", "norm", choices(Norm)),
        ("predict run image", "selection", choices(Selection)),
        ("export run --format onnx", "selection", choices(Selection)),
        ("export run", "format", choices(Format)),
        ("corrupt digits", "constants", choices(Constants)),
        ("corrupt digits", "layout", choices(Layout)),
        ("reproduce demo", "size", choices(SizeName)),
        ("reproduce demo", "on", ("local", "ray", "slurm", "none")),
    ],
)
def test_a_flag_takes_what_its_type_allows(words, flag, expected):
    for choice in expected:
        assert getattr(parse([*words.split(), f"--{flag}", choice]), flag) == choice
    with pytest.raises(UserError, match=f"argument --{flag}: invalid choice: 'moon' .*; see: pdeplus .* --help"):
        parse([*words.split(), f"--{flag}", "moon"])


def test_old_spellings_mean_the_new_ones():
    assert parse(["reproduce", "demo"]).size == "small"
    assert parse(["reproduce", "demo", "--scale", "smoke"]).size == "smoke"
    assert parse(["corrupt", "digits"]).constants is None
    assert parse(["corrupt", "digits", "--scale", "tiny"]).constants == "tiny"


def test_settings_may_stand_behind_options():
    options = parse(["train", "demo", "a=1", "--out", "x", "b=2"])
    assert (options.preset, options.overrides, options.out) == ("demo", ["a=1", "b=2"], "x")
    assert build_parser().parse_args(["list", "methods"]).command == "list"


def test_train_then_resume_then_refusals(capsys, tmp_path):
    words = ["train", "demo", *QUICK, "--out", str(tmp_path / "run")]
    code, out, err = answer(capsys, *words)
    assert code == 0
    assert err.startswith("training: epoch 1 of 1: loss ")  # no progress bar where there is no terminal
    assert err.count("\n") == 1
    assert "1 epoch, validation accuracy" in out
    code, out, err = answer(capsys, *words)
    assert (code, out) == (2, "")
    assert err.count("\n") == 1
    assert "already holds a run" in err


def test_a_process_has_the_exit_code_and_the_line():
    done = call("dance")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.count("\n") == 1
    assert done.stderr.startswith("pdeplus: ")


def test_a_dry_run_says_what_training_would_take_and_writes_nothing(capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    settings = ["data.name=digits", "train.batch_size=64", "train.lr=1e30"]  # a rate that would diverge can be timed
    code, out, _ = answer(capsys, "train", "fast", *settings, "--dry-run")
    first, second, third = out.splitlines()
    assert code == 0
    assert "fast: fast_cnn trained with erm on 1,168 images of digits, 10 epochs in batches of 64" in first
    assert "PFLOP; about" in second
    assert "images a second" in second
    assert "were not measured" in third
    assert not list(tmp_path.iterdir())


def test_the_preset_fast_has_an_accuracy_to_expect():
    known = tomllib.loads((resources.files("pdeplus.studies") / "expected.toml").read_text("utf-8"))
    assert config_hash(load_config("fast")) in known
    assert config_hash(load_config("fast", ["method.name=augmix"])) in known


def test_default_folder_is_named_after_the_run(capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert answer(capsys, "train", "demo", *QUICK, "method.name=erm", "seed=3")[0] == 0
    assert (tmp_path / "runs" / "demo-erm-seed3" / "model.safetensors").exists()


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["train", "nonsense"], ["nonsense", "known:", "demo"]),
        (["train", "demo", "train.epochz=3"], ["train.epochz", "epochs"]),
        (["train", "demo", "epochs=3"], ["epochs=3: the key is not known; did you mean train.epochs?"]),
        (["train", "demo", "model.name=wide_resnet", "depth=3"], ["did you mean model.depth?"]),
        (["train", "epochs=3"], ["epochs=3 is a setting; a PRESET comes first: pdeplus train demo epochs=3"]),
        (["train", "demo", "model.width=100000"], ["resnet18 would have 27,240,", "million parameters", "model.width"]),
        (["train", "demo", "data.size=100000"], ["data.size=100000 must be at most 4096"]),
        (["train", "demo", "method.name=magic"], ["magic", "erm", "pde_plus"]),
        (["train", "demo", "train.lr=fast"], ["train.lr='fast'", "a number"]),
        (["train", "demo", "method.placement=['layer7']"], ["layer7", "layer1"]),
        (["train", "demo", "model.name=plain_cnn", "model.width=2", "data.size=4"], ["4×4", "8×8"]),
        (["train", "demo", "train.batch_size=1", "model.width=2"], ["train.batch_size=1", "2 or more"]),
        (["train", "demo", "data.size=0"], ["data.size=0", "at least 1"]),
        (["train", "demo", "method.samples=-1"], ["method.samples=-1", "0 or more"]),
        (["train", "demo", "train.label_smoothing=2"], ["train.label_smoothing=2.0", "between 0 and 1"]),
        (["train", "demo", "method.initial_scale=-1", "model.width=2"], ["initial_scale=-1.0", "above"]),
        (["train"], ["PRESET", "--resume"]),
        (["train", "--resume", "runs/x", "--dry-run"], ["--dry-run needs a PRESET"]),
        (["train", "fast", "data.name=digits", "model.widths=[1,2]"], ["model.widths=[1, 2]", "three numbers"]),
        (["train", "demo", "--epochs", "3"], ["--epochs 3 is not understood", "--help"]),
        (["train", "demo", "method.name=my_package.idea"], ["my_package.idea", "cannot be imported"]),
        (["list", "planets"], ["planets", "methods", "presets"]),
        (["list", "methods", "size=3"], ["size=3 is not understood; see: pdeplus list --help"]),
        (["data", "get"], ["data get NAME takes one"]),
        (["reproduce", "demo", "--cell", "1", "--cpus", "2"], ["--cell N does one run here"]),
        (
            ["bench", "step", "--quick"],
            ["bench is not a command; benchmarks live in the repository: python -m benchmarks"],
        ),
        ([], ["COMMAND", "--help"]),
        (["dance"], ["dance", "demo"]),
        (["train", "--resume", "nowhere"], ["nowhere", "not a run folder"]),
        (["train", "demo", "--out", "/proc/run"], ["/proc/run"]),
    ],
)
def test_mistakes_cost_one_line_and_exit_code_2(capsys, tmp_path, monkeypatch, arguments, words):
    monkeypatch.chdir(tmp_path)
    code, out, err = answer(capsys, *arguments)
    assert (code, out) == (2, "")
    assert err.startswith("pdeplus: ")
    assert err.count("\n") == 1
    assert all(word in err for word in words), err
    assert list(tmp_path.iterdir()) == []  # nothing half-written


def test_a_failing_run_exits_with_1(capsys, tmp_path):
    options = [*QUICK, "train.lr=1e30", "method.name=erm", "train.batch_size=16"]
    code, _, err = answer(capsys, "train", "demo", *options, "--out", str(tmp_path / "run"))
    assert code == 1
    assert "loss is" in err
    assert err.count("\n") == 1


@pytest.mark.parametrize(
    ("code", "place"),
    [
        ("def build(*, classes, channels):\n    return [][0]", "line 2, in build: IndexError: list index"),
        ("def build(*, classes, channels):\n    raise MemoryError('no room')", "memory does not suffice (MemoryError"),
    ],
)
def test_a_failure_of_the_users_own_code_is_told_apart(capsys, tmp_path, monkeypatch, code, place):
    (tmp_path / "our_nets").mkdir()
    (tmp_path / "our_nets" / "net.py").write_text(code)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "our_nets.net", raising=False)
    found, out, err = answer(capsys, "train", "demo", "model.name=our_nets.net", "--out", str(tmp_path / "run"))
    assert (found, out, err.count("\n")) == (1, "", 1)
    assert place in err
    assert ("your own code failed: " + str(tmp_path / "our_nets" / "net.py") in err) == ("IndexError" in place)


def test_a_fault_of_our_own_keeps_its_traceback(monkeypatch):
    monkeypatch.setattr("pdeplus.training.config.presets", functools.partial(int, "three"))
    with pytest.raises(ValueError, match="three"):
        main(["list", "presets"])


@pytest.mark.parametrize(
    ("family", "words"),
    [
        ("methods", ["erm:", "pde_plus:", "schedule = 'fused'", "jsd = 6.0"]),
        ("models", ["resnet18:", "wide_resnet:", "width = 64"]),
        ("data", ["digits:", "synthetic:"]),
        ("augment", ["augmix:", "severity = 3"]),
        ("corruptions", ["fog ", "weather", "validation", "frost: "]),
        ("presets", ["paper", "authors", "pde_plus", "demo", "pdeplus train PRESET"]),
        ("experiments", ["table1_cifar10", "fig_scale", "pdeplus reproduce EXPERIMENT", "pdeplus list presets"]),
    ],
)
def test_list(capsys, family, words):
    code, out, _ = answer(capsys, "list", family)
    assert code == 0
    assert all(word in out for word in words)


def test_experiments_and_presets_are_listed_apart(capsys):
    assert "authors" not in answer(capsys, "list", "experiments")[1]
    assert "table1_cifar10" not in answer(capsys, "list", "presets")[1]


@pytest.mark.parametrize(("world", "code"), [("2", 2), ("1", 0), ("", 0)])
def test_one_process_is_enough_for_all_but_training(capsys, monkeypatch, world, code):
    monkeypatch.setenv("WORLD_SIZE", world)
    found, _, err = answer(capsys, "list", "presets")
    assert found == code
    assert ("WORLD_SIZE=2: list works in one process; only train takes several" in err) == (code == 2)


@pytest.mark.parametrize(
    ("number", "code", "word"), [(signal.SIGINT, 130, "interrupted"), (signal.SIGTERM, 0, "stopped")]
)
def test_signals_are_answered_in_one_line(capsys, monkeypatch, number, code, word):
    monkeypatch.setattr("pdeplus.training.config.presets", lambda: signal.raise_signal(number))
    before = signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background job ignores it
    try:
        found, out, err = answer(capsys, "list", "presets")
    finally:
        signal.signal(signal.SIGINT, before)
    assert (found, out) == (code, "")
    assert err.startswith(f"pdeplus: {word}")
    assert err.count("\n") == 1


@pytest.mark.skipif(sys.platform == "win32", reason="pseudo-terminals are POSIX")
def test_a_terminal_sees_progress(tmp_path):
    import os
    import pty
    import termios

    screen, terminal = pty.openpty()
    termios.tcsetwinsize(terminal, (24, 140))
    command = [sys.executable, "-m", "pdeplus", "train", "demo", *QUICK, "--out", str(tmp_path / "run")]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=terminal) as process:
        os.close(terminal)
        seen = b""
        try:
            while chunk := os.read(screen, 4096):
                seen += chunk
        except OSError:
            pass  # the terminal closes with the process
        assert process.wait() == 0
    os.close(screen)
    for word in (b"training", b"loss", b"accuracy", b"images/s", b"epoch 1"):
        assert word in seen


def test_an_experiment_is_not_taken_for_a_preset(capsys):
    code, _, told = answer(capsys, "train", "table1_cifar10")
    assert code == 2
    assert told == "pdeplus: table1_cifar10 is an experiment; run it with: pdeplus reproduce table1_cifar10\n"


def test_a_reader_that_stops_early_is_no_error(tmp_path):
    command = [sys.executable, "-m", "pdeplus", "list", "methods"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        process.stdout.close()
        err = process.stderr.read()
    assert (process.returncode, err) == (0, b"")
