"""Tables: numbers worked out by hand, every format's escaping, gaps that say why."""

import csv
import io

import pytest
from support.records import HOSTILE, made_cells, made_domains, made_record, made_records

from pdeplus.corruptions.base import SEVERITIES
from pdeplus.corruptions.suite import CBAR, CORRUPTIONS
from pdeplus.evaluation.records import CLEAN, Record
from pdeplus.reports.charts import figures_of
from pdeplus.reports.content import tables_of
from pdeplus.reports.inputs import Group, groups_of
from pdeplus.reports.tables import Table, escape_csv, escape_latex, escape_markdown
from pdeplus.reports.words import finding, protocol

CELLS = [(CLEAN, 0), *((name, severity) for name in CORRUPTIONS for severity in SEVERITIES)]


def right_of_ten(model: str, clean: int, corrupted: int, **more: object) -> list[Record]:
    """Ten images: so many right when clean, so many in every corrupted cell."""
    common = {"n": 10, "hits": "", **more}
    return [made_record(model, cell, 0.5, correct=clean if cell[0] == CLEAN else corrupted, **common) for cell in CELLS]


def only_group(records: list[Record], baseline: str = "ERM") -> Group:
    (group,) = groups_of(records, baseline)
    return group


def row(table: Table, name: str) -> dict[str, str]:
    (found,) = [cells for cells in table.rows if cells[0] == name]
    return dict(zip(table.columns, found, strict=True))


def said(table: Table) -> str:
    return " ".join(table.notes)


def test_summary_by_hand():
    records = right_of_ten("ERM", 9, 5)
    records += right_of_ten("PDE+", 9, 6, seed=0) + right_of_ten("PDE+", 9, 8, seed=1)
    table = tables_of(only_group(records))["summary"]
    assert [cells[0] for cells in table.rows] == ["PDE+", "ERM"]  # best first
    ours, erm = row(table, "PDE+"), row(table, "ERM")
    # t(0.975, 1 degree) = 12.7062; accuracies 0.6 and 0.8: half width 12.7062 · 0.1
    assert ours["clean"] == "90.00 ± 0.00"
    assert ours["corrupted (15 × 5)"] == "70.00 ± 127.06"
    assert ours["unnormalised error"] == "30.00 ± 127.06"
    assert ours["mCE"] == "60.00 ± 254.12"  # 0.4/0.5 and 0.2/0.5
    assert ours["rmCE"] == "50.00 ± 317.66"  # 0.3/0.4 and 0.1/0.4
    assert ours["severity 5: mCE"] == ours["mCE"]
    assert ours["seeds"] == "2"
    assert ours["selection"] == "last"
    assert (erm["corrupted (15 × 5)"], erm["mCE"], erm["rmCE"]) == ("50.00", "100.00", "100.00")  # one seed: no ±
    costs = row(tables_of(only_group(records))["costs"], "ERM")
    assert costs["ms/image"] == "40"  # 0.4 s for ten images
    assert costs["training, TFLOP"] == "4"


def test_formats_exactly():
    table = Table("a_b", ("series", "x", "y"), (("PDE+", "1.00 ± 0.50", "2"), ("E|M", "—", "-3")), ("50 % of <b>",))
    assert table.to_markdown() == (
        "**a\\_b**\n\n| series | x | y |\n|---|---:|---:|\n| PDE+ | 1.00 ± 0.50 | 2 |\n| E\\|M | — | -3 |\n\n"
        "- 50 % of &lt;b&gt;\n"
    )
    assert table.to_csv() == "series,x,x ±,y\nPDE+,1.00,0.50,2\nE|M,,,-3\n"
    assert table.to_latex().splitlines() == [
        r"\begin{table}",
        r"\centering",
        r"\caption{a\_b}",
        r"\begin{tabular}{lrr}",
        r"\toprule",
        r"series & x & y \\",
        r"\midrule",
        r"PDE+ & 1.00 $\pm$ 0.50 & 2 \\",
        r"E\textbar{}M & --- & -3 \\",
        r"\bottomrule",
        r"\end{tabular}",
        r"\par\footnotesize 50 \% of \textless{}b\textgreater{}",
        r"\end{table}",
    ]


def test_escaping():
    assert escape_markdown("<script>|*_`[x](y)\n#&") == "&lt;script&gt;\\|\\*\\_\\`\\[x\\](y) #&amp;"
    assert escape_latex("C̄ (10 × 5)") == r"$\bar{\mathrm{C}}$ (10 $\times$ 5)"
    assert escape_latex("\\{}&%$#_~^\n") == (r"\textbackslash{}\{\}\&\%\$\#\_\textasciitilde{}\textasciicircum{}")
    assert [escape_csv(text) for text in ("=1+1", "@x", "-a", "+a", "-1.5", "+2", "1e-05")] == (
        ["'=1+1", "'@x", "'-a", "'+a", "-1.5", "+2", "1e-05"]
    )
    table = Table("t", ("series",), tuple((name,) for name in [*HOSTILE, 'quo"te', "com,ma", "=x"]))
    read = [line[0] for line in csv.reader(io.StringIO(table.to_csv()))][1:]
    assert read == [*HOSTILE, 'quo"te', "com,ma", "'=x"]


def test_gaps_are_named_and_never_averaged_over():
    records = made_records(["ERM", "PDE+"], seeds=3)
    lost = {("fog", 3), ("fog", 4), ("snow", 1)}
    records = [r for r in records if not (r.model == "PDE+" and r.seed == 2 and r.cell in lost)]
    tables = tables_of(only_group(records))
    assert "PDE+ seed 2 lacks 3 of 76 test sets: snow 1, fog 3, fog 4." in tables["summary"].notes
    assert "corrupted uses 2 of its 3 seeds" in said(tables["summary"])
    every = [r for r in records if r.model == "ERM" or r.seed == 2]
    table = tables_of(only_group(every))["summary"]
    assert row(table, "PDE+")["corrupted (15 × 5)"] == "—"
    assert row(table, "PDE+")["clean"] != "—"
    assert row(tables_of(only_group(every))["corruptions"], "PDE+")["fog"] == "—"
    assert row(tables_of(only_group(every))["severities"], "PDE+")["3"] == "—"


def test_many_missing_cells_are_counted():
    records = made_cells("ERM", 0.5)[:30]
    assert "lacks 46 of 76 test sets" in said(tables_of(only_group(records))["summary"])
    assert "and 26 more" in said(tables_of(only_group(records))["summary"])


def test_no_baseline_says_so():
    table = tables_of(only_group(made_records(["PDE+", "AugMix"], seeds=1)))["summary"]
    assert {cells[table.columns.index("mCE")] for cells in table.rows} == {"—"}
    assert "mCE and rmCE need a baseline: no series is called 'ERM'" in said(table)
    chosen = tables_of(only_group(made_records(["PDE+", "AugMix"], seeds=1), "PDE+"))
    assert row(chosen["summary"], "PDE+")["mCE"] == "100.00"
    assert "comparison" in chosen


def test_incomplete_baseline_says_so():
    records = [r for r in made_records(["ERM", "PDE+"], seeds=1) if not (r.model == "ERM" and r.cell == ("fog", 3))]
    table = tables_of(only_group(records))["summary"]
    assert row(table, "PDE+")["mCE"] == "—"
    assert "ERM has no complete seed" in said(table)


def test_a_baseline_with_extra_corruptions_in_one_seed_only():
    extra = made_record("ERM", ("speckle_noise", 1), 0.5, seed=0)
    table = tables_of(only_group([*made_records(["ERM", "PDE+"], seeds=2), extra]))["summary"]
    assert row(table, "ERM")["mCE"].startswith("100.00")


def test_ratios_that_are_no_numbers_say_why():
    perfect = [
        r if r.corruption != "brightness" else made_record("ERM", r.cell, 1.0, n=10) for r in right_of_ten("ERM", 9, 5)
    ]
    table = tables_of(only_group(perfect + right_of_ten("PDE+", 9, 7)))["summary"]
    assert row(table, "PDE+")["mCE"] == "—"
    assert "mCE is not a number: ERM makes no error under brightness." in table.notes
    assert "mCE at severity 5 is not a number: ERM makes no error under brightness." in table.notes
    free = tables_of(only_group(right_of_ten("ERM", 5, 5) + right_of_ten("PDE+", 9, 7)))["summary"]
    assert row(free, "PDE+")["mCE"] == "60.00"
    assert row(free, "PDE+")["rmCE"] == "—"
    assert "rmCE is not a number: ERM loses nothing under gaussian noise" in said(free)


def test_missing_temperature_says_so():
    bare = {"temperature": None, "scaled_nll": None, "scaled_brier": None, "scaled_ece": None}
    tables = tables_of(only_group(made_records(["ERM"], seeds=1, **bare)))
    assert row(tables["calibration"], "ERM")["temperature"] == "—"
    assert "because there were no validation images: ERM" in said(tables["calibration"])
    assert "because there were no validation images: ERM" in said(tables["summary"])


def test_different_images_never_share_a_table():
    records = made_records(["ERM"], seeds=1)
    records += made_records(["ERM"], seeds=1, data="cifar10", config="other")
    records += made_records(["ERM"], seeds=1, origin="published files") + made_records(["ERM"], seeds=1, n=100)
    groups = groups_of(records + made_domains(), "ERM")
    assert len(groups) == 5
    tables = [tables_of(group)["summary"] for group in groups]
    assert tables[0].title == "Summary: digits, corruptions"
    told = [next(note for note in table.notes if note.startswith("Tested on")) for table in tables]
    assert len(set(told)) == 5
    assert told[0] == "Tested on digits, corruptions, 200 images (regenerated at scale cifar, seed 0)."
    assert [line.name for group in groups for line in group.lines][:4] == ["ERM"] * 4


def test_a_finding_on_domains_names_its_source():
    group = only_group(made_domains(origin="pacs, learnt from photo, 3×32×32, #ad234e"))
    assert finding(group).startswith("On pacs, learnt from photo, 3×32×32, PDE+ has the best mean accuracy")


def test_oracle_is_marked_in_every_table():
    records = made_records(["ERM", "PDE+"], seeds=1, overlaps=("fog",))
    for samples in (0, 5):
        records += made_cells("PDE+", 0.8, selection="oracle", weights="w", samples=samples, overlaps=("fog",))
    tables = tables_of(only_group(records))
    assert set(tables) == (
        {"summary", "costs", "corruptions", "families", "severities", "calibration", "comparison", "overlaps", "passes"}
    )
    for table in tables.values():
        assert any("(oracle)" in cells[0] for cells in table.rows), table.title
        assert "chosen on the test corruptions themselves (oracle)" in said(table), table.title
    assert row(tables["summary"], "PDE+ (oracle)")["selection"] == "oracle (chosen on the test corruptions)"
    assert "PDE+ was evaluated in 3 ways" in said(tables["summary"])
    assert "used 3 times and once for every kept epoch" in said(tables["summary"])


def test_paper_columns_only_for_the_papers_data():
    shown = [c for c in tables_of(only_group(made_records(seeds=1)))["summary"].columns if "paper" in c]
    assert not shown
    records = made_records(["ERM", "PDE+", "mine"], seeds=1, data="cifar10")
    table = tables_of(only_group(records))["summary"]
    assert row(table, "PDE+")["paper: corrupted (full scale)"] == "89.11"
    assert row(table, "PDE+")["paper: mCE (full scale)"] == "48.07"
    assert row(table, "PDE+")["paper: rmCE (full scale)"] == "33.83"
    assert row(table, "ERM")["paper: clean (full scale)"] == "95.35"
    assert row(table, "mine")["paper: clean (full scale)"] == ""
    pacs = tables_of(only_group(made_domains()))["summary"]
    assert row(pacs, "PDE+")["paper: other domains (full scale)"] == "30.57"  # from photo


def test_domains():
    records = made_domains(["ERM", "PDE+"], seeds=1)
    tables = tables_of(only_group(records))
    ours = row(tables["summary"], "PDE+")
    accuracies = [100 * r.accuracy for r in records if r.model == "PDE+" and r.corruption != CLEAN]
    assert ours["mean"] == f"{sum(accuracies) / 3:.2f}"
    assert ours["worst"] == f"{min(accuracies):.2f}"
    assert set(tables) == {"summary", "costs", "calibration", "comparison"}
    fewer = [r for r in records if not (r.model == "PDE+" and r.corruption == "sketch")]
    table = tables_of(only_group(fewer))["summary"]
    assert row(table, "PDE+")["mean"] == "—"  # a mean over fewer domains is another score
    assert "PDE+ was not tested on sketch" in said(table)


def test_lines_of_one_label_are_told_apart():
    records = (
        made_cells("PDE+", 0.7) + made_cells("PDE+", 0.7, samples=10) + made_cells("PDE+", 0.7, selection="validation")
    )
    assert {line.name for line in only_group(records).lines} == {"PDE+, last", "PDE+ E=10", "PDE+, validation"}


def test_comparison_needs_images():
    tables = tables_of(only_group(made_records(["ERM", "PDE+"], seeds=2)))
    found = row(tables["comparison"], "PDE+")
    assert float(found["difference, points"]) > 10
    assert found["p"] == "< 0.001"
    tables = tables_of(only_group(right_of_ten("ERM", 9, 5) + right_of_ten("PDE+", 9, 7)))
    assert row(tables["comparison"], "PDE+")["p"] == "—"
    assert "Not comparable image by image" in said(tables["comparison"])


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_names_in_every_format(name):
    table = tables_of(only_group(made_cells(name, 0.5)))["families"]
    assert "<" not in table.to_markdown()
    assert "<" not in table.to_latex()
    assert name in [line[0] for line in csv.reader(io.StringIO(table.to_csv()))]


def second_test(model: str, right: int, **more: object) -> list[Record]:
    """The same ten images under C̄."""
    cells = [(CLEAN, 0), *((name, severity) for name in CBAR for severity in SEVERITIES)]
    common = {"n": 10, "hits": "", "suite": "cbar", "origin": "made, C̄, #abc123", **more}
    return [made_record(model, cell, 0.5, correct=9 if cell[0] == CLEAN else right, **common) for cell in cells]


def test_cbar_has_tables_of_its_own_and_a_column_beside_the_fifteen():
    fifteen = [r for model, n in (("ERM", 5), ("PDE+", 6)) for r in right_of_ten(model, 9, n, origin="made, #abc123")]
    first, second = groups_of([*fifteen, *second_test("ERM", 7, overlaps=("ripple", "fog"))], "ERM")
    beside = tables_of(first)["summary"]
    assert row(beside, "ERM")["C̄ (10 × 5)"] == "70.00"
    assert row(beside, "PDE+")["C̄ (10 × 5)"] == "—"
    assert (row(beside, "ERM")["corrupted (15 × 5)"], row(beside, "ERM")["mCE"]) == ("50.00", "100.00")
    tables = tables_of(second)
    assert set(tables) == {"summary", "costs", "corruptions", "severities", "calibration", "overlaps"}
    assert row(tables["summary"], "ERM")["C̄ (10 × 5)"] == "70.00"
    assert row(tables["corruptions"], "ERM")["circular motion blur"] == "70.00"
    assert row(tables["overlaps"], "ERM")["seen in training"] == "ripple"
    assert "the ten corruptions of C̄" in said(tables["severities"])
    assert "mCE" not in said(tables["summary"])
    assert "has a mean accuracy on C̄" in finding(second)
    assert any("ten corruptions chosen to be unlike the fifteen" in line for line in protocol([first, second]))
    assert not any("C̄" in line for line in protocol([first]))
    assert {"heat", "severity", "reliability"} <= {figure.name for figure in figures_of(second)}


def test_no_column_of_cbar_without_the_same_images():
    fifteen = right_of_ten("ERM", 9, 5, origin="made, #abc123")
    for other in ({"origin": "made, C̄, #000000"}, {"n": 9}, {"selection": "validation"}, {"config": "another"}):
        first, _ = groups_of([*fifteen, *second_test("ERM", 7, **other)], "ERM")
        assert "C̄ (10 × 5)" not in tables_of(first)["summary"].columns
