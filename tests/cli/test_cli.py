"""The command as a user meets it: in a process of its own."""

import subprocess
import sys
import time

import pytest
from support.commands import answer, call

QUICK = ["model.width=2", "data.size=8", "train.limit=80", "train.epochs=1"]


def test_help_answers_in_under_a_second_and_shows_an_example():
    call("--help")
    started = time.monotonic()
    done = call("--help")
    assert time.monotonic() - started < 1
    assert done.returncode == 0
    assert "pdeplus demo" in done.stdout
    assert "train" in done.stdout


@pytest.mark.parametrize("command", ["demo", "train", "list"])
def test_every_command_has_help_with_an_example(capsys, command):
    code, out, _ = answer(capsys, command, "--help")
    assert code == 0
    assert f"example:\n  pdeplus {command}" in out


def test_train_then_resume_then_refusals(tmp_path):
    run = tmp_path / "run"
    done = call("train", "demo", *QUICK, "--out", str(run))
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""  # no progress bar where there is no terminal
    assert "1 epochs, validation accuracy" in done.stdout
    again = call("train", "demo", *QUICK, "--out", str(run))
    assert (again.returncode, again.stdout) == (2, "")
    assert again.stderr.count("\n") == 1
    assert "already holds a run" in again.stderr


def test_default_folder_is_named_after_the_run(tmp_path):
    done = call("train", "demo", *QUICK, "method.name=erm", "seed=3", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "runs" / "demo-erm-seed3" / "model.safetensors").exists()


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["train", "nonsense"], ["nonsense", "known:", "demo"]),
        (["train", "demo", "train.epochz=3"], ["train.epochz", "epochs"]),
        (["train", "demo", "method.name=magic"], ["magic", "erm", "pde_plus"]),
        (["train", "demo", "train.lr=fast"], ["train.lr='fast'", "a number"]),
        (["train", "demo", "method.placement=['layer7']"], ["layer7", "layer1"]),
        (["train", "demo", "model.name=plain_cnn", "model.width=2", "data.size=4"], ["4×4", "8×8"]),
        (["train", "demo", "train.batch_size=1", "model.width=2"], ["train.batch_size=1", "2 or more"]),
        (["train", "demo", "data.size=0"], ["data.size=0", "at least 1"]),
        (["train", "demo", "method.samples=-1"], ["method.samples=-1", "0 or more"]),
        (["train", "demo", "method.label_smoothing=2"], ["method.label_smoothing=2.0", "between 0 and 1"]),
        (["train", "demo", "method.initial_scale=-1", "model.width=2"], ["initial_scale=-1.0", "above"]),
        (["train"], ["PRESET", "--resume"]),
        (["train", "demo", "--epochs", "3"], ["--epochs 3 is not understood", "--help"]),
        (["list", "planets"], ["planets", "methods"]),
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
    ("family", "words"),
    [
        ("methods", ["erm:", "pde_plus:", "schedule = 'fused'", "label_smoothing = 0.0"]),
        ("models", ["resnet18:", "wide_resnet:", "width = 64"]),
        ("data", ["digits:", "synthetic:"]),
        ("augment", ["augmix:", "severity = 3"]),
        ("experiments", ["paper", "authors", "pde_plus", "demo"]),
    ],
)
def test_list(capsys, family, words):
    code, out, _ = answer(capsys, "list", family)
    assert code == 0
    assert all(word in out for word in words)


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
