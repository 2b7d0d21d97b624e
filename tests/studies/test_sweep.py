"""A sweep: methods, seeds and settings crossed on a preset as it is, with a table and a page of its own."""

import pytest
from support.commands import answer

from pdeplus.errors import UserError
from pdeplus.studies.cells import plan
from pdeplus.studies.experiment import load_experiment, sweep_of
from pdeplus.training.config import config_hash, load_config

SMALL = [
    "model.name=plain_cnn",
    "model.width=2",
    "data.size=8",
    "train.limit=60",
    "train.epochs=1",
    "train.batch_size=20",
]
pytestmark = pytest.mark.usefixtures("cells_here")


def test_rows_are_methods_variants_and_ones_own_on_the_preset_as_it_is():
    experiment = sweep_of("demo", ["erm", "augmix_jsd", "pdeplus.methods.mixup"], vary={}, seeds=2)
    cells = plan(experiment, experiment.sizes["own"], SMALL)
    methods = [cell.config.method.name for cell in cells]
    assert methods == ["erm", "erm", *["augmix", "pdeplus.methods.mixup"] * 2]
    assert [cell.config.seed for cell in cells] == [0, 1, 0, 0, 1, 1]
    assert config_hash(cells[0].config) == config_hash(load_config("demo", [*SMALL, "method.name=erm"]))
    assert cells[2].config.method.options["jsd"] == 12


def test_varied_settings_are_crossed():
    experiment = sweep_of("demo", [], vary={"train.lr": ("0.1", "0.2"), "train.ema": ("0", "0.9")}, seeds=1)
    cells = plan(experiment, experiment.sizes["own"])
    found = {(cell.config.train.lr, cell.config.train.ema) for cell in cells}
    assert found == {(lr, ema) for lr in (0.1, 0.2) for ema in (0, 0.9)}
    assert {cell.config.method.name for cell in cells} == {load_config("demo").method.name}


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["--methods", "erm", "nope"], "method 'nope' is not known"),
        (["--vary", "train.lr"], "--vary 'train.lr' is not of the form KEY=A,B"),
        (["--vary", "a\nb"], r"--vary 'a\nb' is not of the form KEY=A,B"),
        (["--vary", "train.lrr=1,2"], "train.lrr"),
        (["--vary", "seed=1,2"], "seed: each run has its own name and seed; --seeds N is"),
        (["--vary", "name=a,b"], "name: each run has its own name"),
        (["--limit", "-1"], "limit=-1 must be at least 0"),
        (["--seeds", "0"], "seeds=0 must be at least 1"),
    ],
)
def test_mistakes_are_answered_before_training(capsys, tmp_path, words, told):
    code, out, err = answer(capsys, "sweep", "demo", *words, "--out", str(tmp_path / "out"))
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert told in err
    assert not list(tmp_path.iterdir())


def test_a_sweep_ends_in_a_table_without_the_papers_columns_and_a_page(capsys, tmp_path):
    words = ["sweep", "demo", "--methods", "erm", "mixup", "train.seed_me=1"]
    assert "train.seed_me" in answer(capsys, *words)[2]  # a setting may stand behind the methods
    words = ["sweep", "demo", *SMALL, "--methods", "erm", "mixup", "--limit", "4", "--out", str(tmp_path)]
    code, out, err = answer(capsys, *words)
    assert code == 0, err
    assert "| ERM |" in out
    assert "| Mixup |" in out
    assert "paper" not in out
    assert "scale" not in out
    page = tmp_path / "own" / "sweep-demo" / "report.html"
    assert out.rstrip().endswith(str(page))
    assert "Mixup" in page.read_text("utf-8")


def test_an_experiment_of_ones_own_needs_neither_expect_nor_title(tmp_path):
    (tmp_path / "mine.toml").write_text('rows = ["erm", { method = "augmix", paper = "AugMix" }]\n')
    experiment = load_experiment(tmp_path / "mine.toml")
    assert (experiment.title, experiment.outcome, experiment.packaged) == ("mine", "scores", False)
    assert [cell.paper for cell in plan(experiment, experiment.sizes["smoke"])] == ["", "AugMix"]
    assert load_experiment("table1_cifar10").packaged
    (tmp_path / "bad.toml").write_text("row = 3\n")
    with pytest.raises(UserError, match="the key 'row' is not known"):
        load_experiment(tmp_path / "bad.toml")
