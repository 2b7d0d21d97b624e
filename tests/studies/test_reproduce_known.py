"""Cells done elsewhere: records are enough, but only all of one network, on the very same test images."""

import json
import shutil

import pytest

from pdeplus.cli import main
from pdeplus.errors import RunFailed, UserError
from pdeplus.evaluation.records import read_records, to_json
from pdeplus.studies.cells import KnownRecords
from pdeplus.studies.reproduction import prepare, reproduce

pytestmark = pytest.mark.usefixtures("cells_here")
OWN = """
title = "Own"
outcome = "comparison"
expect = "nothing"
preset = "demo"
rows = ["erm", {{ name = "noisy", method = "pde_plus", label = "{label}", samples = [0, 2] }}]
[smoke]
set = ["data.size=8"]
"""


def own(folder, label="PDE+"):
    path = folder / "own.toml"
    path.write_text(OWN.format(label=label))
    return path


@pytest.fixture(scope="module")
def earlier(tmp_path_factory):
    """An outcome with its records; the run folders are gone."""
    folder = tmp_path_factory.mktemp("earlier")
    outcome = reproduce(own(folder), size="smoke", out=folder)
    shutil.rmtree(outcome.parent / "runs")
    return outcome


@pytest.fixture
def no_training(monkeypatch):
    monkeypatch.setattr("pdeplus.training.run_folder.fit", lambda *a, **k: pytest.fail("trained again"))


def changed(earlier, folder, change):
    """A folder with the earlier records as `change` leaves them."""
    lines = [to_json(record) + "\n" for record in change(read_records(earlier / "records.jsonl"))]
    (folder / "some").mkdir(parents=True)
    (folder / "some" / "records.jsonl").write_text("".join(lines))
    return folder


@pytest.mark.usefixtures("no_training")
def test_records_are_enough_for_the_outcome(earlier, tmp_path):
    again = reproduce(own(tmp_path), size="smoke", out=tmp_path, records=earlier)
    for name in ("table.csv", "methods.csv", "records.jsonl"):
        assert (again / name).read_text() == (earlier / name).read_text()
    assert [cell["state"] for cell in json.loads((again / "cells.json").read_text())] == ["done", "done"]
    assert not (again.parent / "runs").exists()


@pytest.mark.usefixtures("no_training")
def test_a_row_may_have_another_label_now(earlier, tmp_path):
    again = reproduce(own(tmp_path, "Ours"), size="smoke", out=tmp_path, records=earlier)
    assert {record.model for record in read_records(again / "records.jsonl")} == {"ERM", "Ours"}


def test_only_what_lacks_is_run(earlier, tmp_path):
    some = changed(earlier, tmp_path / "known", lambda records: [r for r in records if r.model == "ERM"])
    again = reproduce(own(tmp_path), size="smoke", out=tmp_path, records=some)
    (run,) = (again.parent / "runs").iterdir()
    assert "pde_plus" in run.name
    assert (again / "table.csv").read_text() == (earlier / "table.csv").read_text()


def test_incomplete_records_and_other_images_do_not_count(earlier, tmp_path):
    def without_one(records):
        return [r for r in records if (r.corruption, r.severity) != ("fog", 3)]

    def of_two_networks(records):
        half = len(records) // 2
        return [type(r)(**vars(r) | {"weights": "other" if i < half else r.weights}) for i, r in enumerate(records)]

    def of_other_images(records):
        return [type(r)(**vars(r) | {"origin": r.origin[:-1] + "x"}) for r in records]

    cells = prepare(own(tmp_path), "smoke", None, [])[2]
    found = [KnownRecords(earlier).records_of(cell) for cell in cells]
    assert [len(records or []) for records in found] == [76, 2 * 76]
    for number, change in enumerate((without_one, of_other_images)):
        known = KnownRecords(changed(earlier, tmp_path / str(number), change))
        assert [known.records_of(cell) for cell in cells] == [None, None]
    mixed = KnownRecords(changed(earlier, tmp_path / "mixed", of_two_networks))
    assert mixed.records_of(cells[1]) is None, "half of the records are of other weights"


def test_of_networks_trained_alike_an_experiment_keeps_its_own(earlier, tmp_path):
    def all_right(records):
        return [type(r)(**vars(r) | {"weights": "other", "correct": r.n, "hits": ""}) for r in records]

    (cell, _) = prepare(own(tmp_path), "smoke", None, [])[2]
    for first, second, changed_one in (("another", "own", False), ("own", "zebra", True)):
        home = tmp_path / first
        for name, change in ((first, all_right), (second, list)):
            changed(earlier, home, change)
            (home / "some").rename(home / name)
        found = KnownRecords(home).records_of(cell)
        assert {record.weights == "other" for record in found} == {changed_one}


def test_other_settings_are_other_cells(earlier, tmp_path):
    cells = prepare(own(tmp_path), "smoke", 2, ["train.lr=0.011"])[2]
    assert not any(KnownRecords(earlier).records_of(cell) for cell in cells)
    seeds = [
        cell.config.seed for cell in prepare(own(tmp_path), "smoke", 2, [])[2] if KnownRecords(earlier).records_of(cell)
    ]
    assert seeds == [0, 0]


@pytest.mark.usefixtures("no_training")
@pytest.mark.parametrize(
    ("more", "said"),
    [
        (("--dry-run",), "0 of 2 runs to do"),
        (("--on", "none"), "PDE+, E=2"),
        (("--cell", "2"), "own"),
        (("--on", "slurm", "--dry-run"), "--records"),
    ],
)
def test_the_command_takes_records(earlier, tmp_path, capsys, more, said):
    words = ["reproduce", str(own(tmp_path)), "--size", "smoke", "--out", str(tmp_path / "out")]
    with pytest.raises(SystemExit) as left:
        main([*words, "--records", str(earlier), *more])
    assert left.value.code == 0
    printed = capsys.readouterr().out
    assert said in printed
    assert (more[0] != "--cell") or printed.strip() == str(earlier)


def test_a_folder_without_records_is_refused(tmp_path):
    with pytest.raises(UserError, match=r"--records .*nowhere: there is no records.jsonl in it or below it"):
        reproduce(own(tmp_path), size="smoke", out=tmp_path, records=tmp_path / "nowhere")


def test_what_is_not_known_is_told_by_name(earlier, tmp_path):
    some = changed(earlier, tmp_path / "known", lambda records: [r for r in records if r.model == "ERM"])
    with pytest.raises(RunFailed, match="1 of 2 runs are not done, the first is noisy: not trained yet"):
        reproduce(own(tmp_path), size="smoke", out=tmp_path, records=some, on="none")
