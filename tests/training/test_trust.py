"""Run folders from strangers: code that they name is not run unless it is trusted."""

import shutil
import sys
from pathlib import Path

import pytest
import torch
from support.commands import answer

import pdeplus as pp
from pdeplus.errors import UserError
from pdeplus.evaluation.deployment import export
from pdeplus.training.run_folder import Run, resume, train_or_resume

METHOD = """
from dataclasses import dataclass
from pathlib import Path
from pdeplus.methods.base import Method, objective_on, views_of
Path(__file__).with_name("ran").touch()
@dataclass(frozen=True, kw_only=True)
class Idea(Method):
    def objectives(self, model, batch):
        yield objective_on(model, views_of(batch), batch)
"""
HOSTILE = "from pathlib import Path\nPath(__file__).with_name('ran').touch()\n"
SMALL = ["model.name=plain_cnn", "model.width=2", "data.size=8", "train.limit=80", "train.epochs=1"]


@pytest.fixture
def place(tmp_path, monkeypatch) -> Path:
    """The working directory, with a module in it that tells when it is run."""
    (tmp_path / "stranger.py").write_text(HOSTILE)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    return tmp_path


@pytest.fixture(scope="module")
def honest(tmp_path_factory) -> Path:
    return pp.train(pp.load_config("demo", SMALL), tmp_path_factory.mktemp("honest") / "run").path


def hostile(honest: Path, folder: Path, replaced: str, by: str) -> Path:
    shutil.copytree(honest, folder)
    config = folder / "config.toml"
    assert replaced in config.read_text()
    config.write_text(config.read_text().replace(replaced, by))
    return folder


@pytest.mark.parametrize(
    ("replaced", "by"),
    [
        ('[data]\nname = "digits"', '[data]\nname = "stranger"'.replace("stranger", "stranger.sub")),
        ('name = "plain_cnn"', 'name = "stranger.net"'),
        ('name = "pde_plus"', 'name = "stranger.method"'),
        ('name = "augmix"', 'name = "stranger.augment"'),
        ('name = "pde_plus"', 'name = "pdeplus.__main__"'),
    ],
)
def test_nothing_that_a_folder_names_is_imported(honest, place, capsys, replaced, by):
    folder = hostile(honest, place / "run", replaced, by)
    named = by.rpartition("name = ")[2].strip('"')
    calls = (
        lambda: Run.load(folder).config,
        lambda: pp.load_model(folder),
        lambda: pp.evaluate(folder, "clean"),
        lambda: export(Run.load(folder), "torch"),
        lambda: pp.save_pretrained(folder, place / "shared", onnx=False),
    )
    for call in calls:
        with pytest.raises(UserError, match=f"would import the module {named}, which is not part") as caught:
            call()
        assert "\n" not in str(caught.value)
    (folder / "model.safetensors").unlink()
    with pytest.raises(UserError, match="would import"):
        resume(folder)
    for words in (["predict", "run", "x.png"], ["train", "--resume", "run"], ["analyse", "run"]):
        code, out, err = answer(capsys, *words)
        assert (code, out) == (2, "")
        assert "trust-code" in err
        assert err.count("\n") == 1
    shutil.rmtree(folder / "checkpoints")
    (folder / "sums.json").unlink()
    with pytest.raises(UserError, match="would import"):
        pp.branch(folder, ["train.epochs=2"])
    assert not (place / "ran").exists()


def test_a_long_name_of_our_own_does_not_let_in_what_lies_around(honest, place):
    """With the working directory on the path, a missing library would be looked for there."""
    folder = hostile(honest, place / "run", 'name = "pde_plus"', 'name = "pdeplus.methods.pde_plus"')
    (folder / "sums.json").unlink()
    assert Run.load(folder).config.method.name == "pdeplus.methods.pde_plus"
    assert str(place) not in sys.path


def test_ones_own_code_works_as_ever_and_elsewhere_with_trust(place):
    package = place / "lab_of_trust"
    package.mkdir()
    (package / "__init__.py").touch()
    (package / "idea.py").write_text(METHOD)
    config = pp.load_config("demo", [*SMALL, "method.name=lab_of_trust.idea"])
    run = pp.train(config, place / "run")
    assert run.model(torch.rand(1, 3, 8, 8)).shape == (1, 10)
    assert train_or_resume(config, place / "run").finished
    with pytest.raises(UserError, match="would import the module lab_of_trust.idea"):
        pp.load_model(place / "run")
    assert pp.load_model(place / "run", trust_code=True)(torch.rand(1, 3, 8, 8)).shape == (1, 10)
    assert pp.save_pretrained(place / "run", place / "shared", onnx=False, trust_code=True)
    with pytest.raises(UserError, match="would import the module lab_of_trust.idea"):
        pp.from_pretrained(place / "shared")
    (place / "run" / "model.safetensors").unlink()
    assert resume(place / "run", trust_code=True).finished
    assert pp.evaluate(place / "run", "clean", trust_code=True, limit=5)[0].n == 5
