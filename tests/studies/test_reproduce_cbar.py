"""C̄ as the second test of an experiment: measured where it is asked for, shown in a column, never needed."""

import csv
from dataclasses import replace

import pytest
from support.hand_records import one_seed, record

from pdeplus.corruptions.base import SEVERITIES
from pdeplus.corruptions.suite import CBAR
from pdeplus.errors import UserError
from pdeplus.evaluation.records import CLEAN, read_records, to_json
from pdeplus.studies.cells import Done, plan
from pdeplus.studies.estimates import CBAR_SETS, TEST_SETS
from pdeplus.studies.experiment import load_experiment
from pdeplus.studies.outcomes import OUTCOMES
from pdeplus.studies.reproduction import prepare, reproduce
from pdeplus.studies.study import Study
from pdeplus.training.config import config_hash
from pdeplus.training.run_folder import Run

pytestmark = pytest.mark.timeout(1800)
"""Against hanging, not against a machine that is busy with other work."""
OWN = """
title = "Own"
outcome = "scores"
expect = "nothing"
preset = "demo"
rows = ["erm"]
[smoke]
set = ["data.size=8", "model.name=plain_cnn"]
"""


def own(folder, more="cbar = true\n", tests=""):
    path = folder / "own.toml"
    path.write_text(tests + OWN + more)
    return path


def column(folder) -> str:
    (row,) = csv.DictReader((folder / "table.csv").read_text().splitlines())
    return row["C̄"]


@pytest.fixture(scope="module")
def tested(tmp_path_factory):
    """An outcome with C̄, and its run."""
    folder = tmp_path_factory.mktemp("cbar")
    return reproduce(own(folder), size="smoke", out=folder)


def test_the_column_is_the_mean_over_ten_corruptions_and_five_severities(tested):
    records = read_records(tested / "records.jsonl")
    second = [r for r in records if r.suite == "cbar"]
    wanted = {(CLEAN, 0), *((name, severity) for name in CBAR for severity in SEVERITIES)}
    assert {(r.corruption, r.severity) for r in second} == wanted
    assert len(second) == CBAR_SETS
    assert len(records) - len(second) == TEST_SETS["corruptions"]
    mean = sum(r.correct / r.n for r in second if r.severity) / 50
    assert float(column(tested)) == pytest.approx(100 * mean, abs=0.006)


def test_nothing_is_selected_on_it(tested, tmp_path):
    """The same run, the same weights, with and without: what is trained and chosen knows nothing of it."""
    records = read_records(tested / "records.jsonl")
    assert len({r.weights for r in records}) == 1
    assert {r.selection for r in records} == {"validation"}
    (with_it,) = prepare(own(tmp_path), "smoke", None, [])[2]
    (without,) = prepare(own(tmp_path, more=""), "smoke", None, [])[2]
    assert (with_it.cbar, without.cbar) == (True, False)
    assert with_it.folder == without.folder


def test_records_from_before_leave_the_column_empty(tested, tmp_path, monkeypatch):
    monkeypatch.setattr("pdeplus.training.run_folder.fit", lambda *a, **k: pytest.fail("trained again"))
    old = tmp_path / "old" / "records.jsonl"
    old.parent.mkdir()
    first = [r for r in read_records(tested / "records.jsonl") if r.suite != "cbar"]
    old.write_text("".join(to_json(r) + "\n" for r in first))
    again = reproduce(own(tmp_path), size="smoke", out=tmp_path, records=old.parent)
    assert not column(again)
    assert column(reproduce(own(tmp_path), size="smoke", out=tmp_path / "all", records=tested)) == column(tested)


def test_a_run_from_before_is_collected_without_it_and_tested_when_asked(tested, tmp_path):
    (run,) = (tested.parent / "runs").iterdir()
    kept, measured = (run / "records.jsonl").read_text(), column(tested)
    (run / "records.jsonl").write_text("".join(line + "\n" for line in kept.splitlines() if '"cbar"' not in line))
    home = tested.parent.parent
    assert column(reproduce(own(tmp_path), size="smoke", out=home, on="none")) == ""
    assert column(reproduce(own(tmp_path), size="smoke", out=home)) == measured


@pytest.mark.parametrize("name", ["study_methods", "table1_cifar10", "table3_per_corruption", "time_to_accuracy"])
def test_every_table_has_the_column_by_hand(name):
    experiment = load_experiment(name)
    rows = tuple(row for row in experiment.rows if row.name in ("erm", "augmix"))
    size = replace(experiment.sizes["full"], seeds=1, cbar=True)
    experiment = replace(experiment, rows=rows)
    cells, done = plan(experiment, size), []
    for cell in cells:
        about = {"model": cell.label, "config": config_hash(cell.config), "data": cell.config.data.name}
        records = one_seed(lambda corruption, level: 0.4 if level else 0.0, **about)
        if cell.label == "AugMix":
            tests = [(CLEAN, 0), *((corruption, severity) for corruption in CBAR for severity in SEVERITIES)]
            records += [
                record(suite="cbar", corruption=c, severity=s, correct=1000 - 100 * s, origin="cbar", **about)
                for c, s in tests
            ]
        done.append(Done(cell=cell, run=Run(None), records=records))
    study = Study(experiment=experiment, size=size, cells=cells, done=done)
    table = OUTCOMES[experiment.outcome](study).tables[0]
    shown = {row[0]: dict(zip(table.columns, row, strict=True)) for row in table.rows}
    assert shown["AugMix"]["C̄"] in ("70.00", "70.0")  # 90, 80, 70, 60 and 50 %
    assert shown["ERM"]["C̄"] == "—"
    assert len([row for row in shown if "AugMix" in row and "paper" not in row]) == 1
    assert any("nothing is selected on" in note for note in table.notes)


def test_the_study_has_it_in_the_fast_regime_and_domains_never(tmp_path):
    for name in ("study_methods", "study_compute", "study_default", "study_longer", "time_to_accuracy"):
        sizes = load_experiment(name).sizes
        assert [size for size in sizes if sizes[size].cbar] == ["fast"]
    with pytest.raises(UserError, match="cbar=true needs tests = 'corruptions' or 'clean'"):
        load_experiment(own(tmp_path, tests='tests = "domains"\n'))
