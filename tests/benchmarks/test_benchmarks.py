"""Benchmarks at tiny sizes, through the command; fits, ratios and counts against closed forms."""

import contextlib
import csv
import io
import os
from functools import partial
from pathlib import Path
from typing import NamedTuple

import pytest
import torch
from benchmarks import augment, finetune, growth
from benchmarks.__main__ import OTHERS, SHORT, main
from benchmarks.cases import Case, bare_step, epoch, open_case, peak_memory
from benchmarks.results import Effort, Result, exponent, line, take_turns
from benchmarks.step import operations
from benchmarks.table1 import DataSet
from benchmarks.table1 import operations as operations_of_table1
from support.operation_counts import add_blocks, conv, resnet18
from support.peers import peer
from torch import nn

from pdeplus.evaluation.cost import operations_of
from pdeplus.training.config import load_config

QUICK = {"width": 8, "batch": 4, "size": 16}
"""The sizes of --quick."""
SHOWN = [name for name in (*SHORT, *OTHERS) if name not in ("augment", "finetune")]
"""All but those that need torchvision and timm, which have tests of their own."""


class Shown(NamedTuple):
    folder: Path
    text: str
    rows: list[dict[str, str]]

    def figures(self, table: str) -> dict[str, float]:
        """By name, of the table whose title begins so."""
        found = {row["name"]: float(row["figure"]) for row in self.rows if row["table"].startswith(table)}
        assert found, table
        return found

    def ratios(self, table: str) -> dict[str, float]:
        mine = [row for row in self.rows if row["table"].startswith(table)]
        return {row["name"]: float(row["ratio"]) for row in mine if row["ratio"]}


@pytest.fixture(scope="module")
def shown(tmp_path_factory) -> Shown:
    """Everything once, as a user runs it."""
    folder, text = tmp_path_factory.mktemp("bench"), io.StringIO()
    with contextlib.redirect_stdout(text):
        main([*SHOWN, "--quick", "--out", str(folder), "--tflops", "100"])
    rows = list(csv.DictReader((folder / "speed.csv").read_text("utf-8").splitlines()))
    return Shown(folder, text.getvalue(), rows)


def test_every_benchmark_runs_and_says_that_quick_figures_mean_nothing(shown):
    assert list(dict.fromkeys(row["benchmark"] for row in shown.rows)) == SHOWN
    tables = dict.fromkeys(row["table"] for row in shown.rows)
    assert shown.text.count("these figures mean nothing") == len(tables)
    assert all(title in shown.text for title in tables)


def test_augmentations_are_compared_with_torchvision():
    peer("torchvision")
    results = list(augment.measure(Effort(quick=True)))
    assert results[0].title.startswith("augment, AugMix, 9 operations")
    assert all(list(result.figures) == ["ours", "torchvision"] for result in results)


def test_fine_tuning_is_compared_with_a_loop_by_hand():
    peer("timm")
    results = list(finetune.measure(Effort(quick=True)))
    titles = [result.title.partition(":")[0] for result in results]
    assert [title for title in titles if "corruptions" not in title] == [
        "finetune, step",
        "finetune, loader of 500×375 JPEG files",
        "finetune, evaluation of 60 images",
        "finetune, peak memory that a streamed folder of 40 pictures and two steps add",
    ]
    assert all(figure for result in results for figure in result.figures.values())


def test_files_have_all_rows_and_where_they_come_from(shown):
    page = (shown.folder / "speed.md").read_text("utf-8")
    assert page.count("\n|") == len(shown.rows) + 2 * page.count("| what |")
    assert "Measured by `python -m benchmarks step" in page
    assert "commit" in page
    assert "threads, cpu" in page
    assert {row["rounds"] for row in shown.rows if row["benchmark"] == "epoch"} == {"1"}
    assert all(row["command"] and row["threads"] == str(torch.get_num_threads()) for row in shown.rows)
    for kind in ("png", "svg", "pdf"):
        assert (shown.folder / f"growth.{kind}").stat().st_size > 1000


def test_ratios_are_quotients_of_the_figures(shown):
    bases = {"step, time": "ERM", "step, speed": "authors", "step, peak": "authors", "predict:": "bare network"}
    bases |= {"step, arithmetic": "matrix product, at best", "predict, noisy": "E = 1", "table1, CIFAR-10": "ERM"}
    bases |= {f"epoch of {name}": "bare step" for name in ("ERM", "AugMix", "PDE+", "PDE+ in stages")}
    bases |= {f"evaluate against {base}": base for base in ("plain eager loop", "bare forward of the fast copy")}
    bases |= {f"corruptions, {constants}": "all" for constants in ("cifar", "tiny")} | {
        "C̄": "all",
        "data": "the budget",
    }
    for table, base in bases.items():
        figures, ratios = shown.figures(table), shown.ratios(table)
        assert ratios == pytest.approx({name: value / figures[base] for name, value in figures.items()}, rel=1e-4)
    for table, reference in (
        ("corruptions, cifar", "reference generator"),
        ("corruptions, tiny", "reference generator"),
        ("C̄", "reference generator (recorded)"),
    ):
        each = shown.figures(table)
        total, _ = each.pop("all"), each.pop(reference)
        assert total == pytest.approx(sum(each.values()), rel=1e-4)


def test_speed_and_arithmetic_follow_from_time(shown):
    seconds = shown.figures("step, time")
    for name, rate in shown.figures("step, speed").items():
        assert rate == pytest.approx(QUICK["batch"] / seconds[name], rel=1e-4)
    done = QUICK["batch"] * (3 * resnet18(8, 16) - conv(3, 8, 3, 16))
    assert shown.figures("step, arithmetic")["ERM"] == pytest.approx(done / 1e9 / seconds["ERM"], rel=1e-4)


def test_growth_is_fitted_to_its_points(shown):
    points = list(csv.DictReader((shown.folder / "growth.csv").read_text("utf-8").splitlines()))
    mine = [p for p in points if (p["axis"], p["series"], p["quantity"]) == ("width", "PDE+", "time, s")]
    assert [int(p["x"]) for p in mine] == [8, 16]
    first, last = (float(p["y"]) for p in mine)
    assert [first, last] == pytest.approx(list(shown.figures("growth of PDE+ with width, time").values()), rel=1e-4)
    assert float(mine[-1]["fitted"].removeprefix("width^")) == pytest.approx(exponent([8, 16], [first, last]), abs=0.01)
    assert f"(fitted: {mine[-1]['fitted']})" in shown.text
    assert list(shown.figures("growth of PDE+ with ADD blocks, time")) == [f"ADD blocks {n}" for n in (0, 1, 2)]
    assert list(shown.figures("growth of PDE+ with processes, time")) == ["processes 2"]


def test_hours_follow_from_operations_and_the_rate(shown):
    hours, rows = shown.figures("table1, hours"), shown.figures("table1, CIFAR-10")
    assert shown.figures("table1, operations")["CIFAR-10"] == pytest.approx(sum(rows.values()) / 1000, rel=1e-4)
    alone, longest = (peta * 1e15 / 100e12 / 3600 for peta in (sum(rows.values()), max(rows.values()) / 5))
    assert hours["CIFAR-10, longest run"] == pytest.approx(longest, rel=1e-4)
    for number, name in ((1, "1 accelerator"), (8, "8 accelerators"), (64, "64 accelerators")):
        assert hours[f"CIFAR-10, {name}"] == pytest.approx(max(alone / number, longest), rel=1e-4)
    assert "an estimate: 100 TFLOP/s" in shown.text


def test_the_authors_schedules_update_batch_norm_once_more(shown):
    updates = shown.figures("fidelity, updates of BatchNorm")
    assert updates == {"fused": 2, "alternating": 3, "authors": 3}


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["stepp"], ["'stepp'", "did you mean 'step'", "fidelity, jobs, augment, finetune, all"]),
        (["step", "--rounds", "0"], ["rounds=0", "at least 1"]),
        (["table1", "--tflops", "-3"], ["tflops=-3", "above 0"]),
        (["data", "--quick", "--out", "taken"], ["taken", "choose another folder"]),
        (["data", "--fast"], ["--fast", "python -m benchmarks --help"]),
    ],
)
def test_mistakes_cost_one_line(capsys, tmp_path, monkeypatch, arguments, words):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "taken").write_text("a file")
    with pytest.raises(SystemExit) as left:
        main(arguments)
    out, err = capsys.readouterr()
    assert (left.value.code, out, err.count("\n")) == (2, "", 1)
    assert all(word in err for word in words), err


def test_help_names_every_benchmark_and_shows_examples(capsys):
    with pytest.raises(SystemExit) as left:
        main(["--help"])
    shown = capsys.readouterr().out
    assert left.value.code == 0
    assert all(name in shown for name in (*SHORT, *OTHERS))
    assert "python -m benchmarks step --quick" in shown


def test_fits_are_exact_on_powers_and_lines():
    x = [1, 2, 5, 10, 20]
    assert exponent(x, [3 * v**1.7 for v in x]) == pytest.approx(1.7, abs=1e-12)
    assert line(x, [5 - 0.25 * v for v in x]) == pytest.approx((5, -0.25))


def test_growth_in_words():
    assert growth.fitted("width", "s", {8: 1.0, 16: 4.0}) == "width^2.00"
    assert growth.fitted(growth.BLOCKS, "MiB", {1: 30.0, 2: 35.0, 4: 45.0}) == "25 MiB + 5 MiB for each block"
    assert growth.fitted("width", "s", {8: 1.0}) == ""


def test_the_median_counts_and_the_first_turn_does_not():
    now, steps = [0.0], iter([100, 1, 2, 10, 7, 20, 3, 30])

    def work() -> None:
        now[0] += next(steps)

    assert take_turns({"a": work, "b": work}, 3, lambda: now[0]) == {"a": 3, "b": 20}


def test_a_steady_arm_runs_once_more_before_each_turn_that_counts():
    now, steps = [0.0], iter([100, 50, 2, 60, 3, 70, 9])

    def work() -> None:
        now[0] += next(steps)

    assert take_turns({"a": work}, 3, lambda: now[0], steady=True) == {"a": 3}


def test_all_turns_of_fresh_arms_count():
    now, steps = [0.0], iter([10, 2, 3])

    def work() -> None:
        now[0] += next(steps)

    assert take_turns({"a": work}, 3, lambda: now[0], fresh=True) == {"a": 3}


def test_a_table_in_words():
    figures = {"plain": 1234.56, "ours": 0.0123456, "lost": None}
    result = Result("synthetic", figures, "s", "plain", {"ours": "≤ 1"}, 3, ("a note",))
    assert str(result).splitlines() == [
        "synthetic, median of 3",
        "  plain    1,235 s  1.00 × plain",
        "  ours   0.01235 s  0.00 × plain  aim ≤ 1",
        "  lost         — s",
        "  (a note)",
    ]
    assert "| ours | 0.01235 s | 0.00 × plain | ≤ 1 |" in result.table().to_markdown()
    assert [row["ratio"] for row in result.rows()] == [1, 0.0123456 / 1234.56, None]


def test_rounds_of_a_benchmark_and_of_the_user():
    assert [Effort().turns(9), Effort(quick=True).turns(9), Effort(rounds=2, quick=True).turns(9)] == [9, 1, 2]


def test_operations_of_a_step_by_hand():
    f, a, stem = resnet18(8, 16), add_blocks(8, 16), conv(3, 8, 3, 16)
    case = Case(preset="pde_plus_stages", settings=("method.block=paper",), **QUICK)
    assert operations(case) == 4 * (7 * f + 3.5 * a - 2 * stem) == operations_of(bare_step(case))
    assert operations(Case(preset="authors", **QUICK)) == 4 * (12 * f + 9 * a - 4 * stem - 4 * 2 * 64 * 10)


def test_operations_of_grouped_convolutions():
    for module, forward in (
        (nn.Conv2d(8, 8, 3, padding=1, groups=8), conv(8, 8, 3, 10) / 8),
        (nn.Conv2d(8, 4, 3, stride=2, padding=1, groups=2), conv(8, 4, 3, 5) / 2),
        (nn.ConvTranspose2d(8, 4, 3), conv(8, 4, 3, 10)),
    ):
        x = torch.rand(1, 8, 10, 10, requires_grad=True)
        assert operations_of(lambda m=module, x=x: m(x).sum().backward()) == 3 * forward
        assert operations_of(lambda m=module, x=x: m(x.detach()).sum().backward()) == 2 * forward


def test_table1_of_erm_and_of_pde_plus_by_hand():
    """Of 50,000 images 5,000 are held out, and 2,000 of these are also seen corrupted; a test is one plain pass."""
    data = DataSet(label="", classes=100, images=50_000, size=32)
    f = resnet18(64, 32, 100)
    found = operations_of_table1(load_config("erm", ["train.epochs=200"]), data, 760_000)
    assert found == 200 * 45_000 * (3 * f - conv(3, 64, 3, 32)) + f * (200 * 7000 + 760_000)
    small = load_config("pde_plus_stages", ["model.width=8", "data.name=tiny_imagenet", "data.size=16"])
    more = operations_of_table1(small, data, 10) - operations_of_table1(small, data, 0)
    assert more == pytest.approx(10 * resnet18(8, 16, 100), rel=1e-6)


def test_an_epoch_is_the_real_loop_with_augmentation():
    session = open_case(Case(preset="pde_plus_stages", **QUICK), bare=False, batches=3)
    before = torch.get_rng_state()
    epoch(session)
    assert torch.equal(before, torch.get_rng_state())
    assert (session.progress.epoch, session.progress.batch) == (1, 0)
    assert session.method.augmentor != open_case(Case(preset="pde_plus_stages", **QUICK)).method.augmentor


def allocate(mebibytes: int):
    return partial(bytes.__mul__, b"x", mebibytes << 20)


def vanish():
    os._exit(1)


@pytest.mark.skipif(not Path("/proc/self/status").is_file(), reason="peak memory is read from /proc")
def test_peak_memory_is_what_the_work_adds():
    assert peak_memory(partial(allocate, 100)) == pytest.approx(100, abs=5)
    assert peak_memory(vanish) is None


def test_where_torchrun_fails_a_note_says_so(monkeypatch, tmp_path):
    for program, words in (("/bin/false", "exit status 1"), (str(tmp_path / "none"), "No such file")):
        monkeypatch.setattr(growth.sys, "executable", program)
        seconds, added, notes = growth.several_processes(Case(preset="erm"), (2,), 1)
        assert (seconds, added) == ({2: None}, {2: None})
        assert "2 processes: skipped" in notes[0]
        assert words in notes[0]
