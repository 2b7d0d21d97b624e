"""Exported networks: what they compute, what they say of themselves, and what a failure leaves behind."""

import json
import shutil
import subprocess
import sys
import zipfile

import pytest
import torch
from support.commands import answer
from support.runs import sum_again
from torch import nn

import pdeplus as pp
from pdeplus._lib.files import encode_weights
from pdeplus.errors import RunFailed, UserError
from pdeplus.evaluation import deployment
from pdeplus.evaluation.deployment import OnnxModel, export
from pdeplus.training.run_folder import Run

onnx = pytest.importorskip("onnx")
pytest.importorskip("onnxruntime")
SUFFIX = {"onnx": "onnx", "torch": "pt2"}


@pytest.fixture(scope="module")
def run(tmp_path_factory) -> Run:
    options = ["model.width=4", "data.size=16", "train.limit=80", "train.epochs=1", "train.batch_norm=split"]
    options += ["method.name=pde_plus_stages"]
    return pp.train(pp.load_config("demo", options), tmp_path_factory.mktemp("export") / "run")


@pytest.fixture(scope="module")
def small(tmp_path_factory) -> Run:
    """A run that is exported sooner."""
    options = ["model.name=plain_cnn", "model.width=2", "data.size=8", "train.limit=80", "train.epochs=1"]
    return pp.train(pp.load_config("demo", options), tmp_path_factory.mktemp("export") / "run")


@pytest.fixture(scope="module")
def files(run):
    """Both formats by their default names."""
    return {name: export(run, name) for name in SUFFIX}


@pytest.fixture
def copy(small, tmp_path) -> Run:
    """A small run that a test may change."""
    return Run.load(shutil.copytree(small.path, tmp_path / "run"))


def fixed(path, size: int) -> None:
    """An ONNX file of flatten + linear whose batch size is fixed, without metadata."""
    shape = [size, 1, 2, 2]
    graph = onnx.helper.make_graph(
        [onnx.helper.make_node("Flatten", ["x"], ["f"]), onnx.helper.make_node("MatMul", ["f", "w"], ["y"])],
        "tiny",
        [onnx.helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, shape)],
        [onnx.helper.make_tensor_value_info("y", onnx.TensorProto.FLOAT, [size, 3])],
        [onnx.helper.make_tensor("w", onnx.TensorProto.FLOAT, [4, 3], list(range(12)))],
    )
    model = onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 18)], ir_version=9)
    onnx.save(model, path)


def test_onnx_agrees_with_torch_at_any_batch_size(run, files):
    made = files["onnx"]
    assert made.path == run.path / "model.onnx"
    assert made.difference <= 1e-4
    assert made.bytes == made.path.stat().st_size
    model, exported = pp.load_model(run.path), OnnxModel(made.path)
    for size in (1, 3, 7):
        x = torch.rand(size, 3, 16, 16)
        assert torch.allclose(exported(x), model(x), atol=1e-5)
    assert exported.classes == tuple("0123456789")


def test_onnx_is_one_file_that_tells_its_classes_and_input_and_no_path(run, files):
    assert [path.name for path in run.path.glob("*.onnx*")] == ["model.onnx"]
    model = onnx.load(files["onnx"].path)
    onnx.checker.check_model(model)
    about = {entry.key: entry.value for entry in model.metadata_props}
    assert json.loads(about["classes"]) == list("0123456789")
    assert about["input"] == "float B×3×16×16 in [0, 1]"
    assert model.graph.input[0].type.tensor_type.shape.dim[0].dim_param  # a batch of any size
    assert b".py" not in files["onnx"].path.read_bytes()


def test_torch_program_agrees_at_any_batch_size(run, files):
    extra, model = {"classes": "", "input": ""}, pp.load_model(run.path)
    with deployment._quiet():
        exported = torch.export.load(files["torch"].path, extra_files=extra).module()
    for size in (1, 3, 7):
        x = torch.rand(size, 3, 16, 16)
        assert torch.allclose(exported(x), model(x), atol=1e-5)
    assert json.loads(extra["classes"]) == list("0123456789")
    with zipfile.ZipFile(files["torch"].path) as archive:
        assert not any(b".py" in archive.read(name) for name in archive.namelist() if name.endswith(".json"))


def test_selection_reaches_the_file(copy, tmp_path):
    weights = copy.network("last").state_dict()
    doubled = {n: 2 * w if n.startswith("linear.") else w for n, w in weights.items()}
    (copy.path / "best.safetensors").write_bytes(encode_weights(doubled))
    sum_again(copy)
    made = export(copy, "onnx", tmp_path / "best.onnx", selection="validation")
    x = torch.rand(2, 3, 8, 8)
    assert torch.allclose(OnnxModel(made.path)(x), 2 * pp.load_model(copy.path, "last")(x), atol=1e-4)


@pytest.mark.parametrize("format", SUFFIX)
def test_an_existing_file_is_not_overwritten_without_force(capsys, run, files, tmp_path, format):
    before = files[format].path.read_bytes()
    code, out, err = answer(capsys, "export", str(run.path), "--format", format)
    assert (code, out) == (2, "")
    assert f"model.{SUFFIX[format]} exists already; overwrite it with --force" in err
    assert files[format].path.read_bytes() == before


def test_the_command_says_one_line(capfd, copy, tmp_path):
    out_file = tmp_path / "old.pt2"
    out_file.write_text("old")
    arguments = ["export", str(copy.path), "--format", "torch", "--out", str(out_file), "--force"]
    code, out, err = answer(capfd, *arguments)
    assert (code, err) == (0, "")
    assert out.count("\n") == 1
    assert out.startswith(f"{out_file}: 0.")
    assert " MB, weights of epoch " in out
    assert out_file.stat().st_size > 1000


@pytest.mark.parametrize("format", SUFFIX)
def test_disagreement_leaves_nothing(capsys, copy, monkeypatch, format):
    before = sorted(path.name for path in copy.path.iterdir())
    monkeypatch.setattr(deployment, "difference", lambda *a: 2e-4)
    code, out, err = answer(capsys, "export", str(copy.path), "--format", format)
    assert (code, out) == (1, "")
    assert "was not written: its logits are 2.0e-04 from torch's, above 0.0001" in err
    assert sorted(path.name for path in copy.path.iterdir()) == before


def test_the_difference_is_that_of_the_worst_logit_and_never_hides_nan():
    model = nn.Sequential(nn.Flatten(), nn.Linear(12, 3)).eval()
    assert deployment.difference(model, model, (3, 2, 2)) == 0

    def off(x):
        y = model(x).clone()
        y[-1, 1] += 0.5 if len(x) == 5 else 0.25
        return y

    assert deployment.difference(model, off, (3, 2, 2)) == pytest.approx(0.5, abs=1e-5)
    assert not deployment.difference(model, lambda x: model(x) * torch.nan, (3, 2, 2)) <= 1


def test_a_network_that_cannot_be_exported_costs_one_line(copy, monkeypatch):
    class Branching(nn.Module):
        def forward(self, x):
            return x.mean((2, 3)) if x.sum() > 0 else x.amax((2, 3))

    monkeypatch.setattr(deployment, "load_model", lambda path, selection, trust_code: Branching())
    with pytest.raises(RunFailed, match="the network cannot be exported as torch: ") as caught:
        export(copy, "torch")
    assert "\n" not in str(caught.value)
    assert not list(copy.path.glob("*.pt2")) + list(copy.path.glob(".export*"))


def test_places_a_file_cannot_go(copy, tmp_path):
    with pytest.raises(UserError, match="is a folder; give --out"):
        export(copy, "torch", tmp_path)
    with pytest.raises(UserError, match="there is no folder .*nowhere; make it first"):
        export(copy, "torch", tmp_path / "nowhere" / "m.pt2")
    with pytest.raises(UserError, match="format='tflite' is not known; choose from onnx, torch"):
        export(copy, "tflite")


def test_without_the_extra_both_ways_say_what_to_install(copy, monkeypatch, tmp_path):
    monkeypatch.setitem(sys.modules, "onnxruntime", None)
    for call in (lambda: export(copy, "onnx"), lambda: OnnxModel(tmp_path / "x.onnx")):
        with pytest.raises(UserError, match=r"needs onnxruntime: pip install 'pdeplus\[onnx\]'"):
            call()


@pytest.mark.parametrize("size", [1, 4])
def test_a_file_with_a_fixed_batch_size_takes_any(tmp_path, size):
    fixed(tmp_path / "fixed.onnx", size)
    model = OnnxModel(tmp_path / "fixed.onnx")
    assert model.classes is None
    for n in (0, 1, 4, 9):
        x = torch.rand(n, 1, 2, 2)
        expected = x.flatten(1) @ torch.arange(12.0).view(4, 3)
        assert torch.allclose(model(x), expected, atol=1e-5)


@pytest.mark.parametrize(
    ("x", "words"),
    [
        (torch.rand(1, 2, 2), "takes floats of B×1×2×2, not float32 of 1×2×2"),
        (torch.rand(2, 3, 2, 2), "not float32 of 2×3×2×2"),
        (torch.rand(2, 1, 2, 4), "not float32 of 2×1×2×4"),
        (torch.zeros(2, 1, 2, 2, dtype=torch.uint8), "not uint8 of 2×1×2×2"),
    ],
)
def test_inputs_that_do_not_fit(tmp_path, x, words):
    fixed(tmp_path / "fixed.onnx", 2)
    with pytest.raises(UserError, match=words):
        OnnxModel(tmp_path / "fixed.onnx")(x)


def test_files_that_are_no_network(capfd, tmp_path):
    with pytest.raises(UserError, match="none.onnx: there is no such file"):
        OnnxModel(tmp_path / "none.onnx")
    for name, content in (("a", b""), ("b", b"hello"), ("c", bytes(range(256)))):
        (tmp_path / name).write_bytes(content)
        with pytest.raises(UserError, match="cannot be read as an ONNX network: .+") as caught:
            OnnxModel(tmp_path / name)
        assert "\n" not in str(caught.value)
    assert capfd.readouterr() == ("", "")


FULL_DISK = """
import resource, sys
from pdeplus.cli import main
resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, 20_000))  # as on a full disk, more bytes to a file fail
main(["export", sys.argv[1], "--format", sys.argv[2], "--out", sys.argv[3]])
"""


@pytest.mark.parametrize("format", SUFFIX)
def test_a_full_disk_is_told_and_leaves_nothing(copy, tmp_path, format):
    (tmp_path / "out").mkdir()
    command = [sys.executable, "-c", FULL_DISK, str(copy.path), format, str(tmp_path / "out" / "model")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=200)
    assert (done.returncode, done.stdout) == (2, ""), done.stderr
    assert "model cannot be written: File too large" in done.stderr
    assert done.stderr.count("\n") == 1
    assert not list((tmp_path / "out").iterdir())


@pytest.mark.parametrize("text", ["[" * 100_000, "[1]", "{", '["\\ud800"]'])
def test_metadata_of_others_are_no_names(tmp_path, text):
    fixed(tmp_path / "m.onnx", 1)
    model = onnx.load(tmp_path / "m.onnx")
    model.metadata_props.add(key="classes", value=text)
    onnx.save(model, tmp_path / "m.onnx")
    classes = OnnxModel(tmp_path / "m.onnx").classes
    assert classes is None or "".join(classes).encode()
