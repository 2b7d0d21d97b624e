"""`pdeplus evaluate` as a user meets it."""

import re
import shlex
import shutil
from pathlib import Path

import pytest
from support.commands import answer, call
from support.data_files import write_class_folders
from support.peers import peer
from support.runs import trained

from pdeplus.cli import parse
from pdeplus.cli.evaluate import _try_next
from pdeplus.errors import UserError
from pdeplus.evaluation import loop as _measure
from pdeplus.evaluation.records import read_records
from pdeplus.training.config import load_config
from pdeplus.training.run_folder import fitted, prepare

FEW = ("--limit", "20")


@pytest.fixture
def runs(erm, pde, tmp_path, monkeypatch) -> Path:
    """A folder with a copy of each run, to work in."""
    for name, run in (("erm", erm), ("pde", pde)):
        shutil.copytree(run.path, tmp_path / name)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def percent(line: str, name: str) -> float:
    """The number behind a name in a line of results."""
    return float(re.search(rf"\b{name} (\d+\.\d\d) %", line)[1])


def test_two_runs_have_a_line_each_with_the_numbers_of_their_records(capsys, runs):
    code, out, err = answer(capsys, "evaluate", "erm", "pde", *FEW)
    assert code == 0
    told = err.splitlines()  # one line for each test set, as there is no terminal
    assert len(told) == 2 * 76
    assert re.fullmatch(r"erm: clean: accuracy \d+\.\d % \(1 of 76\)", told[0])
    assert re.fullmatch(r"pde: jpeg_compression 5: accuracy \d+\.\d % \(76 of 76\)", told[-1])
    first, second = out.splitlines()
    for line, name, label in ((first, "erm", "ERM"), (second, "pde", "PDE+")):
        assert line.startswith(f"{label} (validation), test images of digits, corrupted by pdeplus")
        records = read_records(runs / name / "records.jsonl")
        assert len(records) == 76
        assert percent(line, "clean") == pytest.approx(100 * records[0].accuracy, abs=0.01)
        mean = sum(r.accuracy for r in records[1:]) / 75
        assert percent(line, "corrupted") == pytest.approx(100 * mean, abs=0.01)
        severe = sum(r.accuracy for r in records if r.severity == 5) / 15
        assert percent(line, "severity 5") == pytest.approx(100 * severe, abs=0.01)


def test_a_second_call_measures_nothing_and_says_the_same(capsys, runs, monkeypatch):
    first = answer(capsys, "evaluate", "erm", *FEW)
    monkeypatch.setattr(_measure, "_measure_one", None)
    assert answer(capsys, "evaluate", "erm", *FEW) == (*first[:2], "")
    assert first[0] == 0


def test_after_an_interruption_the_same_command_goes_on(capsys, runs, monkeypatch):
    written = []
    original = _measure.append_records

    def stop(path, records):
        if len(written) == 9:
            raise KeyboardInterrupt
        original(path, records)
        written.append(records[0].cell)

    monkeypatch.setattr(_measure, "append_records", stop)
    code, out, err = answer(capsys, "evaluate", "erm", *FEW)
    assert (code, out) == (130, "")
    assert "interrupted; the same command continues where it stopped" in err
    assert err.count("\n") == 9 + 1  # of each test set that was done, and of the end
    monkeypatch.setattr(_measure, "append_records", lambda path, r: original(path, r) or written.append(r[0].cell))
    code, out, _ = answer(capsys, "evaluate", "erm", *FEW)
    assert code == 0
    assert len(written) == len(set(written)) == 76
    shutil.copytree(runs / "erm", runs / "again")
    (runs / "again" / "records.jsonl").unlink()
    assert answer(capsys, "evaluate", "again", *FEW)[1] == out


def test_several_numbers_of_samples_have_a_line_each(capsys, runs):
    code, out, _ = answer(capsys, "evaluate", "pde", *FEW, "--severity", "3", "--samples", "0", "2", "--name", "ours")
    assert code == 0
    none, two = out.splitlines()
    assert none.startswith("ours (validation), ")
    assert two.startswith("ours (validation, E=2), ")
    records = read_records(runs / "pde" / "records.jsonl")
    for line, samples in ((none, 0), (two, 2)):
        found = [r.accuracy for r in records if r.samples == samples and r.severity]
        assert f"corrupted (15 × severity 3) {100 * sum(found) / 15:.2f} %" in line
        assert "missing" not in line
    assert {r.samples for r in read_records(runs / "pde" / "records.jsonl")} == {0, 2}


def test_domains(capsys, tmp_path):
    run = trained(tmp_path / "run", "data.name=synthetic", "method.name=erm", "train.epochs=1", "train.limit=140")
    code, out, _ = answer(capsys, "evaluate", str(run.path), "--suite", "domains", "--limit", "70")
    assert code == 0
    records = read_records(run.path / "records.jsonl")
    assert [r.corruption for r in records] == ["clean", "art", "cartoon", "sketch"]
    assert "learnt from photo" in out
    assert percent(out, "other domains") == pytest.approx(100 * sum(r.accuracy for r in records[1:]) / 3, abs=0.01)


def test_another_data_set_with_options_into_another_folder(capsys, runs):
    options = ("--data", "digits", "size=16", "--suite", "clean", "--out", "elsewhere", "--selection", "last")
    code, out, _ = answer(capsys, "evaluate", "erm", *options)
    assert code == 0
    assert "ERM (last), test images of digits, 3×16×16, #" in out
    assert not (runs / "erm" / "records.jsonl").exists()
    (record,) = read_records(runs / "elsewhere" / "records.jsonl")
    assert (record.n, record.selection) == (500, "last")


def test_the_oracle_is_called_what_it_is(capsys, tmp_path):
    options = ("method.name=erm", "train.epochs=2", "train.keep_every=1", "train.limit=80")
    run = trained(tmp_path / "run", *options)
    code, out, _ = answer(capsys, "evaluate", str(run.path), *FEW, "--severity", "1", "--selection", "oracle")
    assert code == 0
    assert out.startswith("ERM (oracle, chosen on these very test sets), ")


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["nowhere"], ["nowhere is not a run folder"]),
        (["--data", "digits", "size=8"], ["evaluate needs a MODEL"]),
        (["erm", "--suite", "adversarial", "--epsilon", "8"], ["epsilon 8 is more than", "did you mean 8/255?"]),
        (["erm", "--corruption", "fogg"], ["'fogg' is not known; did you mean 'fog'"]),
        (["erm", "--corruption", "fog", "--suite", "clean"], ["the suite is 'clean'"]),
        (["erm", "--quick", "--full"], ["not allowed with"]),
        (["timm:resnet18"], ["say what to test on"]),
        (["nothing.onnx", "--data", "digits"], ["nothing.onnx: there is no such file"]),
        (["erm", "--suite", "galaxies"], ["galaxies", "corruptions"]),
        (["erm", "--samples", "2"], ["samples=2: the method erm has no noise"]),
        (["pde", "--samples", "-1"], ["samples=-1"]),
        (["erm", "--data", "synthetic"], ["has 10 classes, synthetic has 7"]),
        (["erm", "--data", "digits", "size"], ["'size' is not of the form key=value"]),
        (["erm", "--data", "digits", "colour=3"], ["colour"]),
        (["erm", "--data", "digits", "channels=1"], ["takes images of 3 channels", "have 1"]),
        (["erm", "--suite", "domains"], ["digits has one test set"]),
        (["erm", "--severity", "6"], ["severities=[6] must be some of 1, 2, 3, 4, 5"]),
        (["erm", "--limit", "-3"], ["limit=-3"]),
        (["erm", "--files", "nowhere"], ["nowhere has no gaussian_noise at severity 1"]),
        (["erm", "--selection", "oracle"], ["kept no epochs", "train.keep_every=1"]),
        ([], ["RUN", "--help"]),
    ],
)
def test_mistakes_cost_one_line_and_exit_code_2(capsys, runs, arguments, words):
    code, out, err = answer(capsys, "evaluate", *arguments)
    assert (code, out) == (2, "")
    assert err.startswith("pdeplus: ")
    assert err.count("\n") == 1
    assert all(word in err for word in words), err
    assert not list(runs.rglob("records.jsonl"))


def test_a_damaged_records_file_is_named_by_its_line(capsys, runs):
    (runs / "erm" / "records.jsonl").write_text("nonsense\n")
    code, _, err = answer(capsys, "evaluate", "erm", *FEW, "--suite", "clean")
    assert code == 2
    assert "records.jsonl line 1 is damaged" in err
    assert err.count("\n") == 1


def test_in_a_process_of_its_own(runs):
    done = call("evaluate", "erm", "--suite", "clean", *FEW)
    assert (done.returncode, done.stderr.count("\n")) == (0, 1)
    assert done.stdout.startswith("ERM (validation), test images of digits, 3×8×8, 20 of each, #")
    assert (
        read_records(runs / "erm" / "records.jsonl")[0].command == f"pdeplus evaluate erm --suite clean {' '.join(FEW)}"
    )


def test_a_model_behind_the_options_of_data_is_a_model(capsys, runs):
    words = ("--suite", "clean", *FEW, "--out", "there")
    code, out, _ = answer(capsys, "evaluate", *words, "--data", "digits", "size=8", "erm", "--corruption", "fog", "pde")
    assert code == 2  # as corruptions are not clean
    code, out, _ = answer(capsys, "evaluate", *words, "--data", "digits", "size=8", "erm")
    assert (code, len(read_records(runs / "there" / "records.jsonl"))) == (0, 1)
    assert out.startswith("ERM (validation)")


def test_some_corruptions_and_a_report_with_a_verdict(capsys, runs):
    pytest.importorskip("vl_convert")
    words = ("--corruption", "fog", "contrast", "--severity", "5", *FEW, "--report", "page.html")
    code, out, _ = answer(capsys, "evaluate", "erm", *words)
    assert code == 0
    result, verdict, following, page = out.splitlines()
    clean, fog, contrast = read_records(runs / "erm" / "records.jsonl")
    assert f"corrupted (fog, contrast × severity 5) {50 * (fog.accuracy + contrast.accuracy):.2f} %" in result
    assert verdict.startswith(f"ERM classifies {100 * clean.accuracy:.2f} % of the clean images correctly, and ")
    lost = 100 * (clean.accuracy - contrast.accuracy)
    assert f"contrast (−{lost:.1f} points)" in verdict
    assert following == "Try next: pdeplus train erm/config.toml method.name=pde_plus --out erm-pde"
    text = (runs / page).read_text("utf-8")
    assert "Mistakes" in text
    assert "The same image, clean" in text
    assert "Confusion under corruption: ERM" in text
    for bad, words in (
        (["report", "erm", "--out", "."], ". is a folder"),
        (["report", "erm", "--baseline", "NOPE"], "--baseline 'NOPE' is not among the series: ERM"),
    ):
        code, out, err = answer(capsys, *bad)
        assert (code, out) == (2, "")
        assert words in err


@pytest.mark.parametrize(
    ("words", "learns"),
    [
        (["timm:test_resnet?pretrained=false", "--data", "my pictures"], True),
        (["timm:test_resnet?pretrained=false", "--data", "tests alone"], False),
        (["net.onnx", "--data", "my pictures"], True),
        (["net.onnx", "--data", "digits"], False),
        (["erm"], True),
    ],
)
def test_what_to_try_next_is_a_command_that_runs(runs, words, learns):
    peer("timm")
    write_class_folders(runs / "my pictures", ("cat", "dog"), 6, seed=0)
    write_class_folders(runs / "tests alone" / "test", ("cat", "dog"), 6, seed=0)
    (runs / "erm-pde").mkdir()
    (command,) = _try_next(parse(["evaluate", *words]))
    options = parse(shlex.split(command)[1:])
    assert not Path(options.out).exists()
    small = ["data.size=32", "train.batch_size=2", "model.name=timm:test_resnet", "model.pretrained=false"]
    config = load_config(options.preset, [*options.overrides, *(small if words[0] == "net.onnx" else [])])
    if learns:
        session, expects = prepare(fitted(config))
        assert len(expects.classes) == session.model.eval()(session.split.train.take(range(1)).floats()).shape[1]
        assert config.method.name == "pde_plus"
    else:
        assert "data.root=FOLDER_OF_TRAINING_PICTURES" in command
        with pytest.raises(UserError, match="FOLDER_OF_TRAINING_PICTURES.*no such folder"):
            prepare(fitted(config))


def test_noise_is_what_a_run_of_pde_plus_may_try_next(capsys, runs):
    (command,) = _try_next(parse(["evaluate", "pde"]))
    assert command == "pdeplus evaluate pde --samples 10"
    assert _try_next(parse(["evaluate", "pde", "--samples", "10"])) == []
    code, out, _ = answer(capsys, *shlex.split(command)[1:], "--suite", "clean", *FEW)
    assert (code, "E=10" in out) == (0, True)
