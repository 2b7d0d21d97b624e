"""Experiments that consist of others, and rows that are run once."""

import json

import pytest

from pdeplus.errors import UserError
from pdeplus.evaluation.records import read_records
from pdeplus.studies.cells import known_cells
from pdeplus.studies.estimates import estimate, format_estimates
from pdeplus.studies.experiment import load_experiment
from pdeplus.studies.reproduction import prepare, reproduce

pytestmark = pytest.mark.usefixtures("cells_here")
PART = """
title = "Part {name}"
outcome = "scores"
expect = "nothing"
preset = "demo"
rows = ["erm", {{ method = "{other}", once = true }}]
[smoke]
seeds = 2
set = ["data.size=8"]
"""


@pytest.fixture
def whole(tmp_path):
    """An experiment of two parts that share a row."""
    for name, other in (("first", "augmix"), ("second", "mixup")):
        (tmp_path / f"{name}.toml").write_text(PART.format(name=name, other=other))
    path = tmp_path / "whole.toml"
    parts = [str(tmp_path / "first.toml"), str(tmp_path / "second.toml")]
    path.write_text(f'title = "Whole"\noutcome = "parts"\nexpect = "both"\nparts = {json.dumps(parts)}\n')
    return path


def test_a_row_is_run_once(whole):
    cells = prepare(whole.parent / "first.toml", "smoke", None, [])[2]
    assert [(cell.label, cell.config.seed) for cell in cells] == [("ERM", 0), ("ERM", 1), ("AugMix", 0)]
    more = prepare(whole.parent / "first.toml", "smoke", 3, [])[2]
    assert [cell.label for cell in more] == ["ERM"] * 3 + ["AugMix"]


def test_all_parts_are_run_and_written(whole, tmp_path):
    folder = reproduce(whole, size="smoke", out=tmp_path / "out")
    home = folder.parent
    assert len(list((home / "runs").iterdir())) == 4, "what the parts share is trained once"
    for name, labels in (("first", ["ERM", "AugMix"]), ("second", ["ERM", "Mixup"])):
        assert {r.model for r in read_records(home / name / "records.jsonl")} == set(labels)
        assert all(label in (home / name / "result.md").read_text() for label in labels)
    text = (folder / "result.md").read_text()
    assert text.startswith("# Whole (scale smoke")
    assert text.splitlines()[0].endswith("1 to 2 seeds)")
    assert "| first/ | Part first | 3 | 3 |" in text
    assert "Mixup" in (folder / "report.html").read_text()
    assert [cell["state"] for cell in json.loads((folder / "cells.json").read_text())] == ["done"] * 6


def test_a_page_of_parts_tells_schedules_apart(whole, tmp_path):
    second = whole.parent / "second.toml"
    second.write_text(second.read_text().replace('"erm"', '{ method = "erm", stretch = 2 }'))
    folder = reproduce(whole, size="smoke", seeds=1, out=tmp_path / "out")
    assert {r.model for r in read_records(folder.parent / "second" / "records.jsonl")} == {"ERM", "Mixup"}
    page = (folder / "report.html").read_text()
    short, long = (prepare(whole.parent / f"{name}.toml", "smoke", 1, [])[2][0].config for name in ("first", "second"))
    assert long.train.epochs == 2 * short.train.epochs
    assert f">ERM, {long.train.epochs} epochs<" in page
    assert ">ERM<" in page
    assert f"ERM, {short.train.epochs} epochs" not in page


def test_a_page_of_parts_has_a_shared_row_on_all_its_test_sets(whole, tmp_path):
    second = whole.parent / "second.toml"
    second.write_text(
        second.read_text()
        .replace('outcome = "scores"', 'outcome = "distributions"\ntests = "augmented"')
        .replace("[smoke]", '[options]\naugmentations = ["rotation"]\n[smoke]')
    )
    page = (reproduce(whole, size="smoke", seeds=1, out=tmp_path / "out") / "report.html").read_text()
    assert page.count(">ERM<") > page.count(">AugMix<") > 0
    assert "mean accuracy on other domains" in page
    assert "there is no baseline" not in page


def test_parts_have_no_parts(whole):
    outer = whole.parent / "outer.toml"
    outer.write_text(whole.read_text().replace("first.toml", "whole.toml"))
    with pytest.raises(UserError, match=r"experiment outer: its part .*whole.toml has parts itself"):
        prepare(outer, "smoke", None, [])


def test_a_dry_run_counts_shared_cells_once(whole, tmp_path):
    cells = prepare(whole, "smoke", None, [])[2]
    told = estimate(cells, tmp_path)
    assert [one.state for one in told] == ["to do"] * 3 + ["shared"] * 2 + ["to do"]
    assert [one.hours > 0 for one in told] == [True] * 3 + [False] * 2 + [True]
    assert "4 of 6 runs to do" in format_estimates(told)


def test_a_row_may_train_longer_or_shorter(tmp_path):
    rows = ["erm", {"method": "augmix", "stretch": 2.4}, {"method": "mixup", "stretch": 0.1}]
    written = ", ".join(json.dumps(row).replace('":', '" =') for row in rows)
    path = tmp_path / "own.toml"
    path.write_text(f'title = "T"\noutcome = "scores"\nexpect = "e"\nrows = [{written}]\n')
    epochs = [cell.config.train.epochs for cell in prepare(path, "smoke", None, ["train.epochs=5"])[2]]
    assert epochs == [5, 12, 1]


@pytest.mark.parametrize("wrong", ['outcome = "parts"', 'outcome = "scores"\nparts = ["demo"]'])
def test_parts_and_rows_do_not_mix(tmp_path, wrong):
    path = tmp_path / "wrong.toml"
    path.write_text(f'title = "Wrong"\nexpect = "nothing"\n{wrong}\n')
    with pytest.raises(UserError, match="experiment wrong: parts need the outcome 'parts' and no rows"):
        load_experiment(path)


def test_a_row_may_be_tested_after_its_last_epoch(tmp_path):
    path = tmp_path / "own.toml"
    rows = '"erm", { name = "last", method = "erm", label = "ERM, last", selection = "last" }'
    path.write_text(f'tests = "clean"\nrows = [{rows}]\n')
    folder = reproduce(path, size="smoke", out=tmp_path, overrides=["train.epochs=2"])
    records = read_records(folder / "records.jsonl")
    assert {(r.model, r.selection) for r in records} == {("ERM", "validation"), ("ERM, last", "last")}
    cells = prepare(path, "smoke", None, ["train.epochs=2"])[2]
    known = known_cells(cells, tmp_path / "nowhere", folder)
    assert [known[i].records[0].selection for i in (0, 1)] == ["validation", "last"]
    path.write_text('rows = [{ method = "erm", selection = "oracle" }]')
    with pytest.raises(UserError, match="row erm: selection='oracle' is not known"):
        load_experiment(path)
