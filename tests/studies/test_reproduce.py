"""Experiments: every one runs at size smoke; finished cells are kept, failed ones retried, none takes others along."""

import csv
import json
import sys
from dataclasses import replace

import numpy as np
import pytest
from PIL import Image

from pdeplus.cli import main
from pdeplus.errors import RunFailed, UserError
from pdeplus.evaluation.records import append_records, read_records
from pdeplus.studies.cells import Failure, attempt, collect, note_of, plan, run_cell
from pdeplus.studies.estimates import estimate, format_estimates
from pdeplus.studies.experiment import experiments, load_experiment
from pdeplus.studies.ray import where_is
from pdeplus.studies.reproduction import prepare, reproduce

pytestmark = [pytest.mark.timeout(1800), pytest.mark.usefixtures("cells_here")]
"""Against hanging, not against a machine that is busy with other work."""
SIZES = ("full", "small", "smoke")
TWO_ROWS = """
title = "Two rows"
outcome = "scores"
expect = "nothing"
preset = "demo"
rows = ["erm", {{ name = "other", method = "augmix", set = [{other}] }}]
"""


@pytest.fixture(scope="session")
def home(tmp_path_factory):
    """One folder for all smoke runs, which share cells as a user's do."""
    return tmp_path_factory.mktemp("reproduced")


def own(folder, other: str = ""):
    """A file of two rows; `other` are settings of the second."""
    path = folder / "own.toml"
    path.write_text(TWO_ROWS.format(other=other))
    return path


@pytest.mark.parametrize("name", experiments())
@pytest.mark.parametrize("size", SIZES)
def test_every_experiment_can_be_planned(name, size):
    experiment = load_experiment(name)
    assert experiment.expect.strip()
    if experiment.parts:
        assert {cell.experiment for cell in prepare(name, size, None, [])[2]} == set(experiment.parts)
        return
    cells = plan(experiment, experiment.sizes[size])
    places = experiment.places(experiment.sizes[size])
    repeated = sum(1 if row.once else experiment.sizes[size].seeds for row in experiment.rows)
    assert len(cells) == repeated * len(places)
    assert len({cell.folder for cell in cells}) == len(cells)
    for place in places:
        labels = [cell.label for cell in cells if cell.place == place and cell.config.seed == 0]
        assert len(set(labels)) == len(labels), "rows of a table must have names of their own"


@pytest.mark.parametrize("name", experiments())
def test_every_experiment_runs_at_size_smoke(home, name):
    folder = reproduce(name, size="smoke", out=home)
    text = (folder / "result.md").read_text()
    experiment, _, cells = prepare(name, "smoke", None, [])
    assert "scale smoke" in text.partition("\n")[0]
    assert "not done" not in text
    table = text.partition("\n| ")[2]
    no_labels = experiment.outcome in ("coverage", "scale", "losses", "parts")
    shown = experiment.parts if no_labels else [cell.label for cell in cells]
    assert all(label.replace("_", "\\_") in table for label in shown)
    pictures = list(folder.glob("*.png"))
    drawn = experiment.outcome not in ("scores", "per_corruption", "parts") or "reference" in experiment.options
    assert bool(pictures) == drawn
    for picture in pictures:
        with Image.open(picture) as image:
            assert np.asarray(image.convert("L")).std() > 5, f"{picture.name} is blank"
    if cells:
        assert {cell["state"] for cell in json.loads((folder / "cells.json").read_text())} == {"done"}


def test_full_size_is_the_papers():
    experiment = load_experiment("table1_cifar10")
    cells = plan(experiment, experiment.sizes["full"])
    assert len(cells) == 5 * 18
    for cell in cells:
        assert cell.config.train.epochs == 200
        assert cell.config.train.limit == 0
        assert cell.config.model.name == "resnet18"
        assert dict(cell.config.model.options).get("width", 64) == 64
        assert cell.limit == 0


def test_a_row_goes_over_the_regime_of_the_size_and_the_experiment_does_not():
    experiment = load_experiment("fast_accuracy")
    rows = {cell.name: cell.config for cell in plan(experiment, experiment.sizes["fast"])}
    assert rows["erm"].train.shift == 2
    assert rows["erm_longer"].train.shift == 4
    assert rows["erm_longer"].train.optimizer == "muon"
    assert rows["erm_wide"].train.epochs == 9
    table = load_experiment("table2_pacs")
    assert {cell.config.train.optimizer for cell in plan(table, table.sizes["fast"])} == {"muon"}


def test_the_baseline_comes_first():
    experiment = load_experiment("table2_pacs")
    labels = [cell.label for cell in plan(experiment, experiment.sizes["full"])]
    assert set(labels[:20]) == {"ERM"}
    assert "ERM" not in labels[20:]


def test_experiments_share_the_runs_they_have_in_common():
    def folders(name, size):
        return {cell.folder for cell in prepare(name, size, None, [])[2]}

    assert folders("fig_losses", "small") < folders("fig_scale", "small")
    assert folders("fig_severity", "full") < folders("table1_cifar10", "full") | folders("table1_cifar100", "full")
    assert folders("fig1_motivation", "small") < folders("fig_unseen", "small")


def test_done_cells_are_kept(home, monkeypatch):
    folder = reproduce("fig_losses", size="smoke", out=home)
    before = {path: path.stat().st_mtime_ns for path in home.rglob("*.safetensors")}
    first = (folder / "table.csv").read_text()
    monkeypatch.setattr("pdeplus.training.run_folder.fit", lambda *a, **k: pytest.fail("trained again"))
    assert (reproduce("fig_losses", size="smoke", out=home) / "table.csv").read_text() == first
    assert {path: path.stat().st_mtime_ns for path in home.rglob("*.safetensors")} == before


def test_an_interrupted_cell_goes_on(tmp_path, monkeypatch):
    cell = prepare("fig_losses", "smoke", None, [])[2][0]

    def stop(step, steps, progress, logs):
        if step == 1:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run_cell(cell, tmp_path, stop)
    assert run_cell(cell, tmp_path).run.finished


def test_a_failing_cell_loses_no_other_and_is_tried_again(tmp_path):
    path, runs = own(tmp_path), tmp_path / "out" / "smoke" / "runs"
    cell = prepare(path, "smoke", None, [])[2][1]
    runs.mkdir(parents=True)
    (runs / cell.folder).write_text("in the way")
    with pytest.raises(RunFailed, match="1 of 2 runs failed, the first is other: .*same command tries the failed"):
        reproduce(path, size="smoke", out=tmp_path / "out")
    folder = tmp_path / "out" / "smoke" / "own"
    states = {cell["cell"]: cell["state"] for cell in json.loads((folder / "cells.json").read_text())}
    assert states == {"erm": "done", "other": "failed"}
    text = (folder / "result.md").read_text()
    assert "| ERM |" in text
    assert "not done: AugMix" in text
    assert "already holds files" in text
    assert "Traceback" in (runs / f"{cell.folder}.failed.txt").read_text()
    (runs / cell.folder).unlink()
    reproduce(path, size="smoke", out=tmp_path / "out")
    assert "not done" not in (folder / "result.md").read_text()
    assert not list(runs.glob("*.failed.txt"))


def test_a_cell_fails_alone_where_nothing_can_be_written_or_its_notes_are_damaged(tmp_path):
    cell = prepare(own(tmp_path), "smoke", None, [])[2][0]
    (tmp_path / "runs").write_text("in the way")
    result = attempt(cell, tmp_path / "runs")
    assert isinstance(result, Failure)
    assert "cannot be created: Not a directory" in result.reason
    note_of(cell, tmp_path).write_bytes(b"Traceback\n\xff: no\n")
    ((_, result),) = collect([cell], tmp_path)
    assert isinstance(result, Failure)
    assert result.reason == "not trained: \ufffd: no"
    (tmp_path / "sign").write_bytes(b"[" * 100_000)
    assert where_is(tmp_path / "sign") == ""


def test_the_plotting_extra_is_asked_for_before_any_training(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "vl_convert", None)
    with pytest.raises(UserError, match=r"^pdeplus reproduce needs vl_convert: pip install 'pdeplus\[plots\]'$"):
        reproduce("fig1_motivation", size="smoke", out=tmp_path)
    assert not list(tmp_path.iterdir())


def test_mce_needs_its_erm(tmp_path):
    path = tmp_path / "lonely.toml"
    path.write_text(TWO_ROWS.format(other="").replace('"erm", ', ""))
    text = (reproduce(path, size="smoke", out=tmp_path / "out") / "result.md").read_text()
    row = next(line for line in text.splitlines() if line.startswith("| AugMix"))
    _, _, clean, corrupted, mce, *_ = (part.strip() for part in row.split("|"))
    assert mce == "—"
    assert "—" not in clean + corrupted


def test_a_folder_with_another_run_is_refused(tmp_path):
    first, second = prepare("fig_scale", "smoke", None, [])[2]
    run_cell(first, tmp_path)
    (tmp_path / first.folder).rename(tmp_path / second.folder)
    with pytest.raises(UserError, match="holds a run with other settings"):
        run_cell(second, tmp_path)


def test_a_dry_run_tells_cells_hours_and_disk_and_writes_nothing(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SystemExit) as left:
        main(["reproduce", "demo", "--size", "smoke", "--seeds", "2", "--dry-run"])
    out = capsys.readouterr().out
    assert left.value.code == 0
    assert "6 of 6 runs to do" in out
    assert "hours on this machine" in out
    assert not list(tmp_path.iterdir())


def test_cells_tested_on_held_out_images_have_an_estimate(tmp_path):
    cell = prepare("study_strengths", "smoke", None, [])[2][0]
    (foretold,) = estimate([cell], tmp_path)
    assert cell.tests == "held_out"
    assert foretold.state == "to do"
    assert foretold.testing > 0


def test_the_disk_that_is_foretold_is_about_what_is_used(home):
    cell = prepare("fig_losses", "smoke", None, [])[2][0]
    (foretold,) = estimate([cell], home / "nowhere")
    reproduce("fig_losses", size="smoke", out=home)
    used = sum(path.stat().st_size for path in (home / "smoke" / "runs" / cell.folder).rglob("*") if path.is_file())
    assert 0.5 < foretold.gigabytes * 1e9 / used < 2
    assert foretold.hours > 0
    assert [one.state for one in estimate([cell], home / "smoke" / "runs")] == ["done"]


def read_rows(path):
    return list(csv.DictReader(path.read_text().splitlines()))


def test_figures_show_the_tables_numbers(home):
    folder = reproduce("study_compute", size="smoke", out=home)
    shown = read_rows(folder / "methods.csv")
    table = {row["method"]: row for row in read_rows(folder / "table.csv")}
    assert {row["row"].rpartition(" (")[0] for row in shown} == set(table)
    for row in shown:
        name, _, cost = row["row"].rpartition(" (")
        assert float(row["x"]) == pytest.approx(float(table[name][row["series"]]), abs=0.006)
        assert cost == f"{table[name]['cost']} ×)"
    order = [float(row["x"]) for row in shown if row["series"] == "corrupted"]
    assert order == sorted(order, reverse=True)

    folder = reproduce("ablations", size="smoke", out=home)
    gains = {row["row"]: row for row in read_rows(folder / "effects.csv")}
    told = {
        row["method"]: row["difference"].lstrip("'").partition(" ")[0]
        for row in read_rows(folder / "table.csv")
        if row["difference"]
    }
    assert gains.keys() == told.keys()
    for name, difference in told.items():
        assert float(gains[name]["x"]) == pytest.approx(float(difference), abs=0.006)
        assert float(gains[name]["low"]) <= float(gains[name]["x"]) <= float(gains[name]["high"])


def test_old_words_in_a_file_mean_the_same(tmp_path):
    new = own(tmp_path, '"train.lr=0.02"').read_text() + "[smoke]\nseeds = 2\n"
    old = new.replace("method = ", "recipe = ").replace("[smoke]", "[scales.smoke]")
    cells = list[list[str]]()
    for text in (new, new.replace("[smoke]", "[sizes.smoke]"), old):
        (tmp_path / "own.toml").write_text(text)
        cells.append([cell.folder for cell in prepare(tmp_path / "own.toml", "smoke", None, [])[2]])
    assert cells[0] == cells[1] == cells[2]
    assert len(cells[0]) == 4


def test_the_older_option_scale_means_size(capsys):
    said = list[str]()
    for option in ("--size", "--scale"):
        with pytest.raises(SystemExit):
            main(["reproduce", "demo", option, "huge"])
        said.append(capsys.readouterr().err.partition("invalid choice")[2])
    assert said[0] == said[1] != ""


@pytest.mark.parametrize("override", ["seed=7", "name=mine"])
def test_cells_keep_their_names_and_seeds(override):
    with pytest.raises(UserError, match=rf"{override}: each run has its own name and seed; --seeds"):
        prepare("demo", "smoke", None, [override])


def test_noisy_passes_count_in_the_hours_of_tests(tmp_path, monkeypatch):
    monkeypatch.setattr("pdeplus.studies.estimates._seconds", lambda *about: (1.0, 1.0))
    cell = prepare("fig_severity", "smoke", None, [])[2][-1]
    (once,), (often,) = (estimate([replace(cell, samples=samples)], tmp_path) for samples in ((), (0, 1, 30)))
    assert often.testing == 32 * once.testing > 0


def test_collecting_tests_nothing(tmp_path):
    path, out = own(tmp_path), tmp_path / "out"
    reproduce(path, size="smoke", out=out)
    path.write_text(path.read_text().replace('"erm"', '{ method = "erm", label = "Renamed" }'))
    with pytest.raises(RunFailed, match="1 of 2 runs are not done, the first is erm: not tested yet"):
        reproduce(path, size="smoke", out=out, on="none")
    assert "not done: Renamed" in (out / "smoke" / "own" / "result.md").read_text()
    assert json.loads((out / "smoke" / "own" / "cells.json").read_text())[0]["state"] == "waiting"
    told = estimate(prepare(path, "smoke", None, [])[2], out / "smoke" / "runs")
    assert [(one.state, one.hours == one.testing > 0) for one in told] == [("to do", True), ("done", False)]
    assert not list((out / "smoke" / "runs").glob("*.failed.txt"))


def test_a_result_names_the_commits_of_its_cells(tmp_path):
    path, out = own(tmp_path), tmp_path / "out"
    first = (reproduce(path, size="smoke", out=out) / "result.md").read_text()
    assert "runs tested at" not in first
    for file in (out / "smoke" / "runs").glob("*/records.jsonl"):
        records = [replace(record, commit="0123456789ab") for record in read_records(file)]
        file.unlink()
        append_records(file, records)
    again = (reproduce(path, size="smoke", out=out) / "result.md").read_text()
    assert "; runs tested at commits 0123456789ab; " in again


def test_missing_data_is_answered_with_the_command_that_gets_it(tmp_path, monkeypatch):
    monkeypatch.setenv("PDEPLUS_DATA", str(tmp_path))
    _, _, cells = prepare("table1_cifar10", "small", None, [])
    told = format_estimates(estimate(cells[:2], tmp_path))
    assert told.count("pdeplus data get cifar10") == 1
    assert "without the 2 unknown" in told
    with pytest.raises(RunFailed, match="1 of 1 runs failed.*pdeplus data get cifar10"):
        reproduce("fig_losses", size="small", out=tmp_path / "out")


@pytest.mark.parametrize(
    ("words", "answer"),
    [
        (["table1_cifar"], "did you mean 'table1_cifar10'"),
        (["nowhere.toml"], "there is no such file"),
        (["paper"], "paper is a preset of one run; train it with: pdeplus train paper"),
        (["demo", "--seeds", "0"], "seeds=0 must be at least 1"),
        (["demo", "train.epoch=1"], "epoch"),
        (["demo", "--size", "huge"], "invalid choice"),
    ],
)
def test_wrong_input_is_one_line(capsys, words, answer):
    with pytest.raises(SystemExit) as left:
        main(["reproduce", *words])
    err = capsys.readouterr().err
    assert left.value.code == 2
    assert answer in err
    assert err.count("\n") == 1


@pytest.mark.parametrize(
    ("text", "answer"),
    [
        ("title = 'x'", "lacks rows"),
        ("title = 'x'\noutcome = 'pie'\nexpect = ''", "outcome='pie' is not known; choose from scores"),
        ("titel = 'x'", "'titel' is not known; did you mean 'title'"),
        ("title = 'x'\noutcome = 'scores'\nexpect = ''\nrows = ['erm2']", "method 'erm2' is not known"),
        ("title = 'x'\noutcome = 'scores'\nexpect = ''\nrows = [{ set = [] }]", "a row needs a name"),
        ("title =", "Invalid value"),
    ],
)
def test_a_wrong_file_is_one_line(tmp_path, text, answer):
    path = tmp_path / "mine.toml"
    path.write_text(text)
    with pytest.raises(UserError, match=answer) as caught:
        prepare(path, "smoke", None, [])
    assert "\n" not in str(caught.value)
