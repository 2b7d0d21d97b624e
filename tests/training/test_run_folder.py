"""A run folder by itself: without its data, from an older version, damaged."""

import json
import re
import shutil
from pathlib import Path

import pytest
import torch
from support.data_files import write_cifar10

import pdeplus as pp
from pdeplus._lib.seeds import derive
from pdeplus.errors import UserError
from pdeplus.models.plain_cnn import build
from pdeplus.training.run_folder import Expects, Run, build_method, build_network, resume

QUICK = ["model.name=plain_cnn", "model.width=2", "train.epochs=1", "train.batch_size=32"]
DIGITS = tuple("0123456789")


@pytest.fixture(scope="module")
def made(tmp_path_factory) -> Path:
    """The folder of a finished run on made CIFAR-10, whose data is gone."""
    folder = tmp_path_factory.mktemp("cifar")
    write_cifar10(folder / "cifar-10-batches-py")
    overrides = [*QUICK, "data.name=cifar10", "data.size=16", f"data.root={folder}"]
    run = pp.train(pp.load_config("demo", overrides), folder / "run")
    shutil.rmtree(folder / "cifar-10-batches-py")
    return run.path


@pytest.fixture
def run(made, tmp_path) -> Run:
    """A copy that a test may damage."""
    return Run.load(shutil.copytree(made, tmp_path / "run"))


def refusal(call) -> str:
    with pytest.raises(UserError) as caught:
        call()
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_a_run_works_without_its_data(run):
    assert run.expects.shape == (3, 16, 16)
    assert run.expects.classes[:2] == ("airplane", "automobile")
    assert run.model(torch.rand(2, 3, 16, 16)).shape == (2, 10)
    assert run.network("validation").linear.weight.shape[0] == 10


def test_model_json_is_there_before_the_first_step_is_done(tmp_path):
    seen = []

    def watch(step, steps, progress, logs):
        seen.append(json.loads((tmp_path / "run" / "model.json").read_text()))

    pp.train(pp.load_config("demo", [*QUICK, "data.size=8", "train.limit=80"]), tmp_path / "run", watch=watch)
    assert seen[0] == {"classes": list(DIGITS), "shape": [3, 8, 8]}


@pytest.mark.parametrize("options", [["method.placement=block"], ["train.batch_norm=split"]])
def test_drawn_weights_depend_on_the_seed_and_on_no_image(options):
    config = pp.load_config("demo", [*QUICK, "method.name=pde_plus_stages", *options, "seed=5"])
    method, images = build_method(config), torch.rand(2, 3, 16, 16)
    weights = build_network(config, method, Expects(classes=DIGITS, shape=(3, 16, 16))).state_dict()
    torch.manual_seed(derive(5, "init"))
    by_hand = method.prepare(build(classes=10, channels=3, width=2), images).state_dict()
    assert all(torch.equal(weights[name], by_hand[name]) for name in by_hand if "num_batches" not in name)


def test_an_older_folder_reads_its_data_or_says_what_is_missing(run, tmp_path):
    (run.path / "model.json").unlink()
    words = refusal(lambda: run.network("last"))
    assert words.startswith(f"{run.path} has no model.json")
    assert "pdeplus data get cifar10" in words
    write_cifar10(Path(run.config.data.options["root"]) / "cifar-10-batches-py")
    try:
        assert run.expects.shape == (3, 16, 16)
        assert not run.model.training
    finally:
        shutil.rmtree(Path(run.config.data.options["root"]) / "cifar-10-batches-py")


def test_a_resumed_older_folder_gets_its_model_json(tmp_path):
    config = pp.load_config("demo", [*QUICK, "data.size=8", "train.limit=80"])
    run = pp.train(config, tmp_path / "run")
    (run.path / "model.json").unlink()
    (run.path / "model.safetensors").unlink()
    assert resume(run.path).finished
    assert json.loads((run.path / "model.json").read_text())["shape"] == [3, 8, 8]


def test_keys_of_another_version(run):
    config = run.path / "config.toml"
    config.write_text(config.read_text().replace("[train]", "[train]\nwarp_speed = 9"))
    (run.path / "environment.json").write_text('[{"pdeplus": "7.5.0"}]')
    words = refusal(lambda: run.config)
    assert words.startswith(f"{run.path} was written by pdeplus 7.5.0 and this is {pp.__version__}, which cannot read")
    assert "train.warp_speed=9" in words
    for damage in ("", "[]", "{}", "5"):
        (run.path / "environment.json").write_text(damage)
        assert "written by pdeplus of an unknown version and this is" in refusal(lambda: run.model)


@pytest.mark.parametrize("value", ["train.lr = 'fast'", "["])
def test_a_damaged_config_is_no_other_version(run, value):
    config = run.path / "config.toml"
    config.write_text(f"{value}\n")
    assert "was written by" not in refusal(lambda: run.config)


@pytest.mark.parametrize(
    "content",
    [b"", b"{", b"[]", b"\xff", b'{"shape": [3, 8, 8]}', b'{"classes": ["a"], "shape": [3, 8]}',
     b'{"classes": ["a"], "shape": [3, 0, 8]}', b'{"classes": "ab", "shape": [3, 8, 8]}',
     b'{"classes": ["a"], "shape": [3, Infinity, 8]}', b'{"classes": ["a"], "shape": [3, NaN, 8]}', b"[" * 100_000],
    ids=range(11),
)  # fmt: skip
def test_a_damaged_model_json(run, content):
    (run.path / "model.json").write_bytes(content)
    assert re.search(r"model\.json is damaged; .*delete it", refusal(lambda: run.model))


@pytest.mark.parametrize(
    "line",
    [
        b'{"epoch": 2, "lo', b"\xff\xfe", b"7", b"", b"null", b"{}", b"[" * 100_000,
        b'{"epoch": 2, "seconds": 1.0}', b'{"epoch": 2, "seconds": 1.0, "validation/accuracy": NaN}',
        b'{"epoch": 2, "seconds": 1.0, "validation/accuracy": "0.5"}',
        b'{"epoch": 2, "seconds": 1.0, "validation/accuracy": 0.5, "loss/task": [1]}',
        b'{"epoch": 2, "seconds": 1e999, "validation/accuracy": 0.5}',
        b'{"epoch": ' + b"9" * 5000 + b', "seconds": 1, "validation/accuracy": 0.5}',
    ],
    ids=range(13),
)  # fmt: skip
def test_a_damaged_line_of_metrics(run, line):
    path = run.path / "metrics.jsonl"
    path.write_bytes(path.read_bytes() + line + b"\n")
    assert refusal(lambda: run.metrics) == (f"{path}: line 2 is damaged; remove it, or restore the file from a backup")


@pytest.mark.filterwarnings("ignore:.* has no sums.json")
def test_weights_of_another_network(run):
    (run.path / "sums.json").unlink()
    path = run.path / "model.json"
    path.write_text(json.dumps({"classes": ["cat", "dog"], "shape": [3, 16, 16]}))
    words = refusal(lambda: run.network("last"))
    assert words.startswith(
        f"{run.path / 'model.safetensors'} holds weights of another network: size mismatch for linear"
    )
    path.unlink()
    (run.path / "config.toml").write_text((run.path / "config.toml").read_text().replace("plain_cnn", "resnet18"))
    shutil.copy(run.path / "best.safetensors", run.path / "model.safetensors")
    path.write_text(json.dumps({"classes": list(DIGITS), "shape": [3, 16, 16]}))
    assert "holds weights of another network: Missing key(s)" in refusal(lambda: run.network("last"))


@pytest.mark.parametrize("name", ["../escaped", "/escaped", "a/b", "..\\\\x", "../../x/y"])
def test_a_name_cannot_lead_out_of_runs(name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    config = pp.load_config("demo", [*QUICK, f"name='{name}'"])
    assert "points outside runs; choose a folder with --out" in refusal(lambda: pp.train(config))
    assert not list(tmp_path.iterdir())
