"""What runs logged and records hold, as rows and figures; and everything together in one folder."""

import csv
import json
import shutil
import sys
from pathlib import Path

import pytest
from support.hand_records import one_seed
from support.runs import trained

from pdeplus.errors import UserError
from pdeplus.evaluation.records import append_records
from pdeplus.studies.analysis.figures import as_spec, over_epochs, save_figure
from pdeplus.studies.analysis.summary import (
    analyse,
    curve_rows,
    curves_figure,
    label_runs,
    scale_figure,
    scale_rows,
    severity_figure,
    severity_rows,
)
from pdeplus.training.run_folder import Run


def logged(folder: Path, *records: dict) -> Run:
    """A run folder as far as its metrics are read."""
    folder.mkdir()
    (folder / "config.toml").write_text("")
    (folder / "metrics.jsonl").write_text("".join(json.dumps({"seconds": 1.0} | record) + "\n" for record in records))
    return Run(folder)


@pytest.fixture
def two(tmp_path) -> dict[str, Run]:
    """One with σ and one without."""
    epochs = [
        {"epoch": e, "loss/task": 1 / e, "loss/coverage": 3.0 - e, "accuracy": 0.25 * e, "validation/accuracy": 0.5}
        | {"sigma/layer1": 0.1 * e, "sigma/layer2": 0.2}
        for e in (1, 2)
    ]
    plain = [{"epoch": 1, "loss/task": 2.0, "validation/accuracy": 0.125, "seconds": 1.0}]
    return {"PDE+": logged(tmp_path / "a", *epochs), "ERM": logged(tmp_path / "b", *plain)}


def test_scale_rows_are_what_was_logged(two):
    assert scale_rows(two) == [
        {"run": "PDE+", "epoch": 1, "block": "layer1", "sigma": 0.1},
        {"run": "PDE+", "epoch": 1, "block": "layer2", "sigma": 0.2},
        {"run": "PDE+", "epoch": 2, "block": "layer1", "sigma": 0.2},
        {"run": "PDE+", "epoch": 2, "block": "layer2", "sigma": 0.2},
    ]
    spec = as_spec(scale_figure(scale_rows(two), "t"))
    assert spec["facet"]["column"]["sort"] == ["PDE+"]
    assert spec["spec"]["layer"][0]["encoding"]["color"]["scale"]["domain"] == ["layer1", "layer2"]
    with pytest.raises(UserError, match="no σ in the metrics of ERM; .*method.name=pde_plus"):
        scale_rows({"ERM": two["ERM"]})


def test_curves_come_in_the_papers_columns_with_accuracies_in_per_cent(two):
    rows = curve_rows(two)
    found = {(row["run"], row["metric"], row["epoch"]): row["value"] for row in rows}
    assert found["PDE+", "training accuracy, %", 2] == 50
    assert found["ERM", "validation accuracy, %", 1] == 12.5
    assert found["PDE+", "coverage loss", 1] == 2
    assert ("ERM", "coverage loss", 1) not in found
    spec = as_spec(curves_figure(rows, "t"))
    columns = ["coverage loss", "task loss (cross-entropy)", "training accuracy, %", "validation accuracy, %"]
    assert spec["facet"]["column"]["sort"] == columns
    assert spec["resolve"]["scale"]["y"] == "independent"
    with pytest.raises(UserError, match="no epoch is done in none"):
        curve_rows({"none": Run(Path("nowhere"))})


def test_severity_rows_average_fifteen_corruptions_and_never_mix_data():
    half = one_seed(lambda name, severity: 0.1 * severity, model="ERM")
    other = one_seed(lambda name, severity: 0.02 * severity, data="cifar100")
    rows = severity_rows([*half, *other])
    assert [(r["severity"], r["accuracy"]) for r in rows if r["data"] == "cifar10"] == [
        (s, pytest.approx(100 - 10 * s)) for s in range(6)
    ]
    assert [r["series"] for r in rows if r["data"] == "cifar100"] == ["PDE+"] * 6
    spec = as_spec(severity_figure(rows, "t"))
    assert spec["facet"]["column"]["sort"] == ["cifar10", "cifar100"]
    assert [row["x"] for row in spec["data"]["values"][:6]] == ["clean", 1, 2, 3, 4, 5]


def test_severity_tells_origins_apart_and_refuses_records_without_corruptions():
    records = one_seed(lambda name, severity: 0.1), one_seed(lambda name, severity: 0.2, origin="made here")
    rows = severity_rows([record for some in records for record in some])
    assert {r["data"]: r["accuracy"] for r in rows} == {
        "cifar10, corruptions, 1000 images (cifar10_c)": 90,
        "cifar10, corruptions, 1000 images (made here)": 80,
    }
    with pytest.raises(UserError, match="pdeplus evaluate"):
        severity_rows(one_seed(lambda name, severity: 0.1, suite="domains"))


@pytest.mark.parametrize(
    ("last", "ticks"), [(1, [1]), (4, [1, 2, 3, 4]), (10, [2, 4, 6, 8, 10]), (200, [50, 100, 150, 200])]
)
def test_epochs_have_ticks_at_whole_numbers(last, ticks):
    rows = [{"series": "a", "x": x, "y": 1.0} for x in range(1, last + 1)]
    axis = over_epochs("n", "t", rows, "y").spec["layer"][0]["encoding"]["x"]["axis"]
    assert axis["values"] == ticks


def test_figures_become_files_of_their_kind(two, tmp_path):
    save_figure(curves_figure(curve_rows(two), "Curves <&>"), tmp_path / "out")
    assert (tmp_path / "out" / "curves.png").read_bytes().startswith(b"\x89PNG")
    assert (tmp_path / "out" / "curves.pdf").read_bytes().startswith(b"%PDF")
    svg = (tmp_path / "out" / "curves.svg").read_text()
    assert all(text in svg for text in ("Curves &lt;&amp;&gt;", "coverage loss", "ERM"))


@pytest.fixture(scope="module")
def kept(tmp_path_factory) -> Run:
    folder = tmp_path_factory.mktemp("kept") / "pde"
    run = trained(folder, "method.name=pde_plus_stages", "train.limit=200", "train.keep_every=1")
    append_records(folder / "records.jsonl", one_seed(lambda name, severity: 0.1 * severity))
    return run


def read(path: Path) -> list[dict[str, str]]:
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


def test_analyse_makes_everything_and_says_what_a_run_does_not_allow(kept, erm, tmp_path):
    path = analyse([kept, erm], tmp_path / "out", images=6)
    text = path.read_text()
    names = ("curves", "scale", "coverage", "severity", "smoothness", "boundary")
    for name in names:
        assert (path.parent / f"{name}.png").stat().st_size > 5000
        assert f"]({name}.png)" in text
        assert read(path.parent / f"{name}.csv")
    shown = {row["augmentation"] for row in read(path.parent / "coverage.csv")}
    assert shown == {"brightness", "gaussian noise", "rotation"}
    assert {row["trained"] for row in read(path.parent / "coverage.csv")} == {"augmix"}
    assert {row["run"] for row in read(path.parent / "smoothness.csv")} == {"PDE+", "ERM"}
    assert len(read(path.parent / "boundary.csv")) == 6 * len({row["block"] for row in read(path.parent / "scale.csv")})
    assert "Validation images: 6 for PDE+, 6 for ERM." in text
    assert "- Diffusion coverage: ERM: run has no ADD blocks" in text
    assert "- Severity: ERM: it was not evaluated yet" in text
    assert str(tmp_path.parent) not in text


def test_an_unfinished_run_gives_its_curves_and_reasons(kept, tmp_path):
    begun = tmp_path / "begun"
    shutil.copytree(kept.path, begun)
    (begun / "model.safetensors").unlink()
    (begun / "records.jsonl").unlink()
    text = analyse([Run(begun)], tmp_path / "out", images=2).read_text()
    assert "## Training curves" in text
    assert "## Smoothness" not in text
    assert text.count("is unfinished") == 3


def test_the_plotting_extra_is_asked_for_first(kept, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "vl_convert", None)
    with pytest.raises(UserError, match=r"^pdeplus analyse needs vl_convert: pip install 'pdeplus\[plots\]'$"):
        analyse([kept], tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_nothing_at_all_is_an_error(kept, tmp_path):
    bare = tmp_path / "bare"
    bare.mkdir()
    shutil.copy(kept.path / "config.toml", bare)
    with pytest.raises(UserError, match="nothing can be analysed: no epoch is done in PDE"):
        analyse([Run(bare)], tmp_path / "out")
    with pytest.raises(UserError, match="runs is empty"):
        analyse([], tmp_path / "out")
    with pytest.raises(UserError, match="images=0"):
        analyse([kept], tmp_path / "out", images=0)
    assert not (tmp_path / "out").exists()


def test_labels_tell_runs_apart_and_a_run_counts_once(kept, tmp_path):
    twin = tmp_path / "twin"
    shutil.copytree(kept.path, twin)
    assert list(label_runs([kept, kept])) == ["PDE+"]
    text = (kept.path / "config.toml").read_text()
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "config.toml").write_text(text.replace("seed = 0", "seed = 7"))
    assert list(label_runs([kept, Run(tmp_path / "other")])) == ["PDE+, seed 0", "PDE+, seed 7"]
    assert list(label_runs([kept, Run(twin)])) == ["PDE+, pde", "PDE+, twin"]
