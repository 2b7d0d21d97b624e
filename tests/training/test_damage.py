"""What was damaged, edited or swapped is noticed when it is read; what only informs is left out with a warning."""

import hashlib
import io
import json
import math
import shutil
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

import pdeplus as pp
from pdeplus._lib.files import encode_weights, read_weights, sum_of
from pdeplus.errors import UserError
from pdeplus.evaluation.records import append_records, read_records
from pdeplus.training.config import load_config, setting_changes
from pdeplus.training.distributed import join
from pdeplus.training.precision import chosen_precision
from pdeplus.training.run_folder import Run, resume

SMALL = [
    "model.name=plain_cnn", "model.width=2", "data.size=8", "train.limit=80", "train.epochs=2", "method.name=erm",
    "train.keep_every=1", "train.ema=0.9",
]  # fmt: skip


@pytest.fixture(scope="module")
def made(tmp_path_factory) -> Path:
    return pp.train(pp.load_config("demo", SMALL), tmp_path_factory.mktemp("made") / "run").path


@pytest.fixture
def folder(made, tmp_path) -> Path:
    """A finished run that a test may damage."""
    return shutil.copytree(made, tmp_path / "run")


@pytest.fixture
def stopped(folder) -> Path:
    """The same, killed before its last file was written."""
    (folder / "model.safetensors").unlink()
    return folder


def flip(path: Path, place: int, bit: int = 0) -> None:
    data = bytearray(path.read_bytes())
    data[place] ^= 1 << bit
    path.write_bytes(data)


def refusal(call) -> str:
    with pytest.raises(UserError) as caught:
        call()
    assert "\n" not in str(caught.value)
    return str(caught.value)


@pytest.mark.parametrize("name", ["best.safetensors", "model.safetensors", "epochs/0001.safetensors"])
def test_one_flipped_bit_in_weights_is_noticed(folder, name):
    run, path = Run.load(folder), folder / name
    run.load_weights(path)
    size = path.stat().st_size
    header = 8 + int.from_bytes(path.read_bytes()[:8], "little")
    for place in (-1, -size // 3, header, header + 1):
        flip(path, place)
        assert "does not match its checksum" in refusal(lambda: run.load_weights(path))
        flip(path, place)
    run.load_weights(path)


def test_no_flipped_bit_in_a_header_changes_an_answer(folder):
    path = folder / "best.safetensors"
    before, whole = read_weights(path), path.read_bytes()
    for place in range(0, 8 + int.from_bytes(whole[:8], "little"), 11):
        flip(path, place)
        try:
            after = read_weights(path)
        except UserError:
            continue
        finally:
            path.write_bytes(whole)
        assert after.keys() == before.keys()
        assert all(torch.equal(after[name], before[name]) for name in before)


def test_the_same_weights_give_the_same_bytes(made):
    weights = read_weights(made / "best.safetensors")
    assert encode_weights(weights) == (made / "best.safetensors").read_bytes()


@pytest.mark.parametrize(
    ("name", "old", "new"),
    [
        ("model.json", '"3"', '"8"'),
        ("metrics.jsonl", '"seconds": ', '"seconds": 1'),
        ("sums.json", '"seed": 0', "seed"),
    ],
)
def test_a_changed_small_file_is_noticed(folder, name, old, new):
    path = folder / name
    assert old in path.read_text()
    path.write_text(path.read_text().replace(old, new, 1))
    words = refusal(lambda: Run.load(folder).model)
    assert words.startswith(f"{path} ")
    assert "sums.json" in words


def test_a_finished_run_is_read_with_the_settings_it_was_trained_with(folder):
    config = folder / "config.toml"
    text = config.read_text()
    config.write_text(text.replace("seed = 0", "seed = 7"))
    assert "config.toml is not what the run was trained with: seed is 7, was 0; " in refusal(
        lambda: Run.load(folder).model
    )
    config.write_text(text.replace('name = "demo"', 'name = "moved"'))
    assert Run.load(folder).model


@pytest.mark.parametrize("name", ["best.safetensors", "model.safetensors", "epochs/0001.safetensors"])
def test_weights_of_another_run_are_noticed(folder, name, tmp_path):
    run, path = Run.load(folder), folder / name
    weights = {key: value + 1 for key, value in read_weights(path).items()}
    path.write_bytes(encode_weights(weights))  # whole, and with a checksum that fits
    assert "does not match sums.json" in refusal(lambda: run.load_weights(path))
    if name == "best.safetensors":
        assert "does not match sums.json" in refusal(lambda: pp.evaluate(folder, "clean", limit=5))
        assert "does not match sums.json" in refusal(lambda: pp.save_pretrained(folder, tmp_path / "new", onnx=False))
    other = tmp_path / "elsewhere.safetensors"
    other.write_bytes(path.read_bytes())
    assert run.load_weights(other)


def test_a_run_goes_on_in_the_precision_it_began_with(stopped):
    path = stopped / "precision.json"
    path.write_text('{"precision": "fp32"}')
    sums = json.loads((stopped / "sums.json").read_text()) | {path.name: sum_of(path.read_bytes())}
    (stopped / "sums.json").write_text(json.dumps(sums))
    auto: Any = SimpleNamespace(settings=SimpleNamespace(precision="auto"))
    assert chosen_precision(auto, stopped) == "fp32"
    path.write_text('{"precision": "bf16"}')
    assert "precision.json has changed since it was written" in refusal(lambda: chosen_precision(auto, stopped))
    path.unlink()
    assert "precision.json is missing, which says " in refusal(lambda: chosen_precision(auto, stopped))


def test_a_kept_epoch_that_is_missing_is_noticed(folder):
    assert list(Run.load(folder).kept) == [1, 2]
    (folder / "epochs" / "0001.safetensors").unlink()
    assert "epochs has no weights of epoch 1; " in refusal(lambda: pp.evaluate(folder, "clean", selection="oracle"))
    shutil.rmtree(folder / "epochs")
    assert Run.load(folder).kept == {}


def test_a_folder_without_sums_loads_with_one_warning(folder):
    (folder / "sums.json").unlink()
    with pytest.warns(UserWarning, match="has no sums.json") as seen:
        pp.evaluate(folder, "clean", limit=5)
    assert len({str(one.message) for one in seen}) == 1


def test_changes_of_settings_are_named():
    then = {"name": "a", "seed": 0, "data": {"name": "cifar10", "root": "x"}, "train": {"lr": 0.1, "epochs": 3}}
    now = {"name": "b", "seed": 0, "data": {"name": "cifar10", "root": "y"}, "train": {"lr": 0.2}, "new": 1}
    assert setting_changes(then, now) == [
        "train.lr is 0.2, was 0.1", "train.epochs is missing, was 3", "new is 1, was missing"
    ]  # fmt: skip
    folders = [{"data": {"name": "image_folder", "root": root}} for root in "xy"]
    assert setting_changes(*folders) == ["data.root is 'y', was 'x'"]
    same = [{"a": 3, "b": math.nan}, {"a": 3.0, "b": math.nan}]
    assert setting_changes(*same) == []
    assert setting_changes({"a": 1}, {"a": True}) == ["a is True, was 1"]


@pytest.mark.parametrize(
    ("cut", "words"),
    [
        (lambda text: text.replace("epochs = 2", "epochs = 5"), "train.epochs is 5, was 2; restore it from "),
        (lambda text: text.replace("width = 2", "width = 4"), "model.width is 4, was 2"),
        (lambda text: text.partition("[train]")[0], "train.epochs is missing, was 2"),
        (lambda text: text.partition("[model]")[0], " more; restore it from "),
    ],
)
def test_resume_names_the_settings_that_have_changed(stopped, cut, words):
    config = stopped / "config.toml"
    whole = config.read_text()
    config.write_text(cut(whole))
    for sums in (True, False):  # from which it began, and with which the checkpoint was saved
        assert words in refusal(lambda: resume(stopped))
        if sums:
            (stopped / "sums.json").unlink()
    newest = max((stopped / "checkpoints").iterdir(), key=lambda path: path.name)
    assert (newest / "config.toml").read_text() == whole


def test_a_config_cut_before_the_first_checkpoint_is_noticed(stopped):
    shutil.rmtree(stopped / "checkpoints")
    config = stopped / "config.toml"
    config.write_text(config.read_text().partition("[train]")[0])
    assert "is not what the run began with" in refusal(lambda: resume(stopped))


def replace_state(folder: Path, change) -> None:
    """Change what the checkpoints hold, with hashes that fit."""
    for checkpoint in (folder / "checkpoints").iterdir():
        state = torch.load(checkpoint / "state.pt", weights_only=True)
        weights = read_weights(checkpoint / "weights.safetensors")
        state = change(state, weights)
        buffer = io.BytesIO()
        torch.save(state, buffer)
        (checkpoint / "state.pt").write_bytes(buffer.getvalue())
        (checkpoint / "weights.safetensors").write_bytes(encode_weights(weights))
        names = ("weights.safetensors", "state.pt", "config.toml")
        sums = {name: hashlib.sha256((checkpoint / name).read_bytes()).hexdigest() for name in names}
        (checkpoint / "manifest.json").write_text(json.dumps(sums))


def momentum(state) -> dict:
    return next(iter(state["optimizers"]["task"]["state"].values()))


WRONG = {
    "nothing": lambda s, w: {},
    "a list": lambda s, w: [1, 2],
    "no optimiser": lambda s, w: s | {"optimizers": {}},
    "no average": lambda s, w: s | {"averaged": None},
    "another network": lambda s, w: w.pop(next(name for name in w if name.endswith("weight"))) is not None and s,
    "a field of progress that is none": lambda s, w: s | {"progress": {"speed": 3}},
    "an epoch that is none": lambda s, w: s | {"progress": s["progress"] | {"epoch": "two"}},
    "an epoch too many": lambda s, w: (
        s | {"progress": s["progress"] | {"epoch": 9, "history": 9 * s["progress"]["history"][:1]}}
    ),
    "a batch too many": lambda s, w: s | {"progress": s["progress"] | {"batch": 10**6}},
    "a history of nothing": lambda s, w: s | {"progress": s["progress"] | {"history": [None] * s["progress"]["epoch"]}},
    "totals of text": lambda s, w: s | {"progress": s["progress"] | {"totals": {"loss/task": "x"}}},
    "memory of another shape": lambda s, w: momentum(s).update(momentum_buffer=torch.zeros(7, 7)) or s,
}


@pytest.mark.parametrize("what", WRONG)
def test_a_checkpoint_with_the_right_hash_and_wrong_contents_is_refused(stopped, what):
    replace_state(stopped, WRONG[what])
    words = refusal(lambda: resume(stopped))
    assert words.startswith(f"checkpoint {stopped / 'checkpoints'}")
    assert "does not fit this run" in words


def test_what_a_stopped_run_expects_is_written_anew(stopped, made):
    path = stopped / "model.json"
    path.write_text(path.read_text().replace('"3"', '"8"'))
    assert resume(stopped).expects == Run.load(made).expects


@pytest.mark.parametrize("content", [b"", b"{", b"\xff", b"5", b"[5]", b"[" * 100_000])
def test_a_damaged_environment_is_left_out_with_a_warning(stopped, content):
    (stopped / "environment.json").write_bytes(content)
    with pytest.warns(UserWarning, match="environment.json is damaged"):
        assert resume(stopped).finished
    assert len(json.loads((stopped / "environment.json").read_bytes())) == 1


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"name = '\xff'", "decode"),
        (b"x = " + b"[" * 5000, ""),
        (b"train.epochs = " + b"9" * 5000, "limit"),
        (b"train.epochs = 0x" + b"f" * 20, "more than 64 bits"),
        (b"a" + b".a" * 3000 + b" = 1", "deeper than|recursion"),
        (b'data.root = "a\\u0000b"', "zero byte"),
    ],
    ids=range(6),
)
def test_a_preset_that_is_no_preset_is_answered_in_one_line(tmp_path, content, reason):
    path = tmp_path / "p.toml"
    path.write_bytes(content)
    with pytest.raises(UserError, match=f"^preset .*p.toml: .*({reason})") as caught:
        load_config(path)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    "setting",
    ["train.epochs=" + "9" * 5000, "train.epochs=0x" + "f" * 5000, "train.lr=" + "[" * 5000, "data.root=a\0b",
     'data.root="a\\u0000b"', "a" + ".a" * 5000 + "=1", "\ud800=1", "train.epochs=1e999", "train.lr=[[[[",
     "name=\udcff", "data.root=/a\udce4b", "t\udcff\nr=3"],
    ids=range(12),
)  # fmt: skip
def test_settings_of_any_kind_are_answered_in_one_line(setting):
    words = refusal(lambda: load_config("demo", [setting]))
    assert len(words) < 1000


def test_a_zero_byte_in_a_path(capsys):
    from support.commands import answer

    for words in (["train", "--resume", "a\0b"], ["evaluate", "a\0b"], ["report", "a\0b"]):
        code, out, err = answer(capsys, *words)
        assert (code, out, err.count("\n")) == (2, "", 1)
    assert "is not a run folder" in refusal(lambda: Run.load("a\0b"))


@pytest.mark.parametrize(
    ("name", "value"),
    [("WORLD_SIZE", "abc"), ("WORLD_SIZE", "9" * 5000), ("RANK", "-1"), ("RANK", "7"), ("MASTER_PORT", "x")],
)
def test_a_launchers_variables_that_make_no_sense(monkeypatch, name, value):
    sound = {"WORLD_SIZE": "2", "RANK": "0", "LOCAL_RANK": "0", "MASTER_ADDR": "localhost", "MASTER_PORT": "1234"}
    for variable, given in (sound | {name: value}).items():
        monkeypatch.setenv(variable, given)
    assert f"{name}={value}" in refusal(join)


@pytest.mark.parametrize("code", ["1 / 0", "raise SystemExit(3)", "def (", "import nowhere_at_all", "raise KeyError"])
def test_a_module_that_fails_on_import(tmp_path, monkeypatch, code):
    (tmp_path / "bad_lab").mkdir()
    (tmp_path / "bad_lab" / "idea.py").write_text(f"x = 1\n{code}\n")
    monkeypatch.syspath_prepend(tmp_path)
    words = refusal(lambda: load_config("demo", ["method.name=bad_lab.idea"]))
    assert words.startswith("methods: 'bad_lab.idea' ")


def test_records_with_numbers_and_names_that_no_page_can_hold(folder, tmp_path):
    record = pp.evaluate(folder, "clean", limit=5)[0]
    line = (folder / "records.jsonl").read_text()
    path = tmp_path / "records.jsonl"
    for name, value in (("n", "9" * 400), ("seconds", "1e999"), ("seed", "9" * 30), ("n", "9" * 5000)):
        path.write_text(line.replace(f'"{name}": {json.dumps(getattr(record, name))}', f'"{name}": {value}'))
        assert path.read_text() != line
        assert "records.jsonl line 1 " in refusal(lambda: read_records(path))
    path.unlink()
    append_records(path, [record.__class__(**vars(record) | {"model": "A\ud800", "origin": "B\udcff"})])
    page = pp.report(path, tmp_path / "page.html")
    assert "A\\ud800" in Path(page).read_text("utf-8")
