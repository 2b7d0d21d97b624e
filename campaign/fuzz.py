"""Hostile input: every reader gets what Hypothesis makes of valid files, and must read it or refuse it in one line."""

import io
import json
import math
import os
import shutil
import struct
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import onnx
import torch
from hypothesis import HealthCheck, given, seed, settings
from hypothesis import strategies as st
from hypothesis.configuration import set_hypothesis_home_dir
from PIL import Image
from tests.support.data_files import python2_pickle, tar_of, zip_of
from tests.support.peers import peer

from pdeplus._lib.environment import read_sessions, written_by
from pdeplus._lib.files import encode_weights, read_weights, sum_of
from pdeplus.cli.sweep import _values as varied_values
from pdeplus.data._download import unpack
from pdeplus.data._pictures import read_picture
from pdeplus.data._reading import read_corrupted, read_manifest
from pdeplus.data.cifar10 import read_batches
from pdeplus.data.fashion_mnist import FashionMnist
from pdeplus.evaluation.adversarial import sanity_lines
from pdeplus.evaluation.deployment import OnnxModel
from pdeplus.evaluation.records import parse, read_records, to_json
from pdeplus.models._hub import named
from pdeplus.models._libraries import load_start, parse_uri
from pdeplus.reports.inputs import gather
from pdeplus.studies.cells import plan
from pdeplus.studies.experiment import load_experiment, sweep_of
from pdeplus.training.checkpoint import load_checkpoint, save_checkpoint
from pdeplus.training.config import load_config
from pdeplus.training.precision import chosen_precision
from pdeplus.training.run_folder import Run
from pdeplus.training.session import Checkpoint
from pdeplus.training.sums import read_sums

from .tally import Tally, judge

RECORD = {
    "model": "ERM", "data": "digits", "suite": "clean", "corruption": "clean", "severity": 0, "origin": "digits",
    "seed": 0, "config": "a1", "weights": "b2", "selection": "validation", "n": 8, "correct": 4, "nll": 1.0,
    "brier": 0.5, "ece": 0.1, "bins": [[8, 4, 4.0]], "hits": "8A==", "seconds": 0.1, "format": 1,
}  # fmt: skip
EPOCH = {"epoch": 1, "loss/task": 2.0, "validation/accuracy": 0.5, "validation/nll": 2.0, "seconds": 0.1}
PIECES = [
    b"", b"\0", b"\xff\xfe", b"NaN", b"Infinity", b"1e999", b"-1", b"9" * 5000, b"0x" + b"f" * 40, b"null", b"{}",
    b"[" * 3000, b'{"a":' * 3000, b'"\\ud800"', b"\\u0000", b"../../x", b"os.system", b"a.b.c", b"\n", b"true", b'"',
    "é".encode(), struct.pack("<q", 2**62), struct.pack("<i", -1), b"cos\nsystem\n(S'touch owned'\ntR.", b"x" * 70_000,
]  # fmt: skip
"""What edits put into files: values that readers stumble over."""


def edited(whole: bytes) -> st.SearchStrategy[bytes]:
    """A valid file after some edits, or something else altogether."""
    place = st.integers(0, max(len(whole) - 1, 0))
    edit = st.one_of(
        st.tuples(st.just("flip"), place, st.integers(0, 7)),
        st.tuples(st.just("cut"), place, st.integers(1, 64)),
        st.tuples(st.just("end"), place, st.just(0)),
        st.tuples(st.just("put"), place, st.sampled_from(PIECES)),
        st.tuples(st.just("over"), place, st.sampled_from(PIECES)),
        st.tuples(st.just("repeat"), place, st.integers(1, 64)),
    )
    changed = st.lists(edit, min_size=1, max_size=4).map(lambda edits: _apply(whole, edits))
    return st.one_of(changed, changed, changed, st.binary(max_size=300), st.text(max_size=100).map(str.encode))


def _apply(data: bytes, edits: list[tuple[str, int, Any]]) -> bytes:
    for kind, place, value in edits:
        at = min(place, len(data))
        if kind == "flip" and at < len(data):
            data = data[:at] + bytes([data[at] ^ 1 << value]) + data[at + 1 :]
        elif kind == "cut":
            data = data[:at] + data[at + value :]
        elif kind == "end":
            data = data[:at]
        elif kind == "put":
            data = data[:at] + value + data[at:]
        elif kind == "over":
            data = data[:at] + value + data[at + len(value) :]
        elif kind == "repeat":
            data = data[:at] + data[at : at + value] * 20 + data[at:]
    return data


def _saved(save: Callable[[Any], object]) -> bytes:
    out = io.BytesIO()
    save(out)
    return out.getvalue()


def _toml(folder: str, name: str) -> bytes:
    import pdeplus

    return (Path(pdeplus.__file__).parent / folder / f"{name}.toml").read_bytes()


Reader = tuple[bytes, Callable[[bytes, Path], object]]
"""A valid file, and what reads it in a folder of its own."""


def readers() -> Mapping[str, Reader]:
    """Every reader of files and settings, by name."""
    peer("timm")  # which its config needs, and transformers'
    digits = np.arange(5 * 4 * 32 * 32 * 3, dtype=np.uint8).reshape(20, 32, 32, 3)
    idx = struct.pack(">4I", 0x803, 4, 28, 28) + bytes(4 * 28 * 28)
    pictures = {kind: _saved(lambda out, k=kind: Image.new("RGB", (9, 7), 99).save(out, k)) for kind in KINDS}
    weights = encode_weights({"w": torch.arange(12.0).reshape(3, 4), "n": torch.tensor(3)})
    cifar = python2_pickle({"labels": [0, 1], "data": digits.reshape(-1)[:6144].reshape(2, 3072)})
    epoch = json.dumps(EPOCH).encode() + b"\n"
    line = to_json(parse(json.dumps(RECORD), "the record")).encode() + b"\n"
    return {
        "preset": (_toml("training/presets", "demo"), in_file("p.toml", load_config)),
        "experiment": (_toml("studies/experiments", "fast_accuracy"), in_file("e.toml", load_experiment)),
        "key=value": (b"train.epochs=3", lambda data, folder: load_config("demo", [os.fsdecode(data)])),
        "records": (line * 2, in_file("records.jsonl", read_records)),
        "records of a report": (line, in_file("records.jsonl", gather)),
        "metrics": (epoch * 2, in_folder("metrics.jsonl", lambda folder: Run(folder).metrics)),
        "model.json": (EXPECTS, in_folder("model.json", lambda folder: Run(folder).expects)),
        "environment": (b'[{"pdeplus": "0.1.0"}]', in_file("environment.json", read_sessions)),
        "its version": (b'[{"pdeplus": "0.1.0"}]', in_folder("environment.json", written_by)),
        "sums": (b'{"config": {"seed": 0}}', in_folder("sums.json", read_sums)),
        "precision": (b'{"precision": "fp32"}', in_folder("precision.json", partial(chosen_precision, AUTO))),
        "samples": (b'{"about": "x", "images": []}', partial(_read_samples, line)),
        "sanity": (SANITY, in_folder("sanity.json", lambda folder: sanity_lines(folder, "m", "o", "w", 0))),
        "corruptions.json": (b'{"wanted": ["fog"], "complete": []}', in_folder("corruptions.json", read_manifest)),
        "weights": (weights, in_file("w.safetensors", read_weights)),
        "weights by URI": (_saved(lambda out: torch.save({"model": {"w": torch.ones(3)}}, out)), _load_start),
        "timm config": (TIMM, in_folder("config.json", _hub_facts)),
        "transformers config": (TRANSFORMERS, in_folder("config.json", _hub_facts)),
        "image processor": (PROCESSOR, in_folder("preprocessor_config.json", _processor_facts)),
        "uri": (b"timm:resnet18?pretrained=false&drop=0.1", lambda data, folder: parse_uri(os.fsdecode(data))),
        "varied values": (b"train.lr=0.1,0.05", lambda data, folder: _sweep(os.fsdecode(data))),
        "checkpoint": (_saved(lambda out: torch.save({"progress": {}, "t": torch.ones(3)}, out)), _read_checkpoint),
        "onnx": (_onnx(), in_file("m.onnx", _run_onnx)),
        "onnx metadata": (b'["a", "b"]', lambda data, folder: _run_onnx(put(folder / "m.onnx", _onnx(data)))),
        "npy": (_saved(lambda out: np.save(out, digits)), _read_npy),
        "cifar pickle": (cifar, in_file("b", lambda path: read_batches([path], "labels", 10, 32))),
        "idx": (idx, _read_idx),
        "zip": (zip_of({"set/a.txt": b"text", "set/b": b"x" * 999}), in_file("x.zip", _unpack)),
        "tar.gz": (tar_of({"set/a.txt": b"text"}), in_file("x.tar.gz", _unpack)),
        "tar": (tar_of({"set/a.txt": b"text"}, "w"), in_file("x.tar", _unpack)),
        **{f"picture {kind}": (data, in_file("p.png", read_picture)) for kind, data in pictures.items()},
    }


AUTO: Any = SimpleNamespace(settings=SimpleNamespace(precision="auto"))
EXPECTS = b'{"classes": ["a", "b"], "shape": [3, 8, 8]}'
SANITY = b'[{"model": "m", "origin": "o", "weights": "w", "samples": 0, "checks": []}]'
TIMM = (
    b'{"architecture": "resnet18", "num_classes": 2, "pretrained_cfg": {"input_size": [3, 32, 32], "mean": [0, 0, 0],'
    b' "std": [1, 1, 1], "crop_pct": 0.9, "interpolation": "bicubic", "label_names": ["a", "b"]}, "model_args": {}}'
)
TRANSFORMERS = b'{"model_type": "resnet", "id2label": {"0": "a", "1": "b"}}'
PROCESSOR = (
    b'{"size": {"shortest_edge": 36}, "do_center_crop": true, "crop_size": 32, "resample": 3,'
    b' "image_mean": [0, 0, 0], "image_std": [1, 1, 1]}'
)
KINDS = ("PNG", "JPEG", "GIF", "BMP", "WEBP", "TIFF")


def put(path: Path, data: bytes) -> Path:
    """The file with these contents."""
    path.write_bytes(data)
    return path


def in_file(name: str, read: Callable[[Path], object]) -> Callable[[bytes, Path], object]:
    """What reads a file of this name."""
    return lambda data, folder: read(put(folder / name, data))


def in_folder(name: str, read: Callable[[Path], object]) -> Callable[[bytes, Path], object]:
    """What reads a folder with a file of this name in it."""
    return lambda data, folder: read(put(folder / name, data).parent)


def _unpack(path: Path) -> None:
    unpack(path, path.parent / "out")


def _read_samples(line: bytes, data: bytes, folder: Path) -> object:
    for name, content in (("config.toml", b""), ("records.jsonl", line), ("samples.json", data)):
        put(folder / name, content)
    return gather(folder)


def _read_checkpoint(data: bytes, folder: Path) -> object:
    save_checkpoint(folder / "c", 1, Checkpoint({"w": torch.ones(2)}, {}))
    place = put(folder / "c" / "000000001" / "state.pt", data).parent
    sums = json.loads((place / "manifest.json").read_bytes()) | {"state.pt": sum_of(data)}
    put(place / "manifest.json", json.dumps(sums).encode())
    return load_checkpoint(folder / "c")


def _load_start(data: bytes, folder: Path) -> object:
    network = torch.nn.ParameterDict({"w": torch.zeros(3)})
    return load_start(network, put(folder / "w.pth", data))


def _hub_facts(folder: Path) -> object:
    """What a folder's config says of a network, without the network."""
    if not (folder / "preprocessor_config.json").exists():
        put(folder / "preprocessor_config.json", PROCESSOR)
    build: Any = named(str(folder))
    return build.facts({}), build.own_classes()


def _processor_facts(folder: Path) -> object:
    return _hub_facts(put(folder / "config.json", TRANSFORMERS).parent)


def _sweep(text: str) -> object:
    experiment = sweep_of("demo", [], vary=dict([varied_values(text)]), seeds=1)
    return plan(experiment, experiment.sizes["own"])


def _onnx(classes: bytes = b'["a", "b"]') -> bytes:
    """A network of two classes on images 1×2×2, which names them in its metadata."""
    helper, floats = onnx.helper, onnx.TensorProto.FLOAT
    weights = helper.make_tensor("w", floats, [4, 2], [0.5] * 8)
    nodes = [helper.make_node("Flatten", ["x"], ["h"]), helper.make_node("MatMul", ["h", "w"], ["y"])]
    begin = helper.make_tensor_value_info("x", floats, ["B", 1, 2, 2])
    end = helper.make_tensor_value_info("y", floats, ["B", 2])
    graph = helper.make_graph(nodes, "g", [begin], [end], [weights])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    entry = b"\n\7classes\x12" + _size(classes) + classes
    return model.SerializeToString() + b"r" + _size(entry) + entry  # by hand: `classes` need not be text


def _size(data: bytes) -> bytes:
    """The length as protobuf writes it, seven bits at a time."""
    left, parts = len(data), bytearray()
    while left > 127:
        parts.append(left & 127 | 128)
        left >>= 7
    return bytes([*parts, left])


def _run_onnx(path: Path) -> object:
    model = OnnxModel(path)
    return model(torch.rand(2, 1, 2, 2, generator=torch.Generator().manual_seed(0))), model.classes


def _read_npy(data: bytes, folder: Path) -> object:
    np.save(folder / "labels.npy", np.tile(np.arange(4), 5))
    put(folder / "fog.npy", data)
    return read_corrupted(folder, "fog", 1, classes=tuple("0123456789"), size=32)


def _read_idx(data: bytes, folder: Path) -> object:
    for part in ("train", "t10k"):
        put(folder / f"{part}-images-idx3-ubyte", data)
        put(folder / f"{part}-labels-idx1-ubyte", struct.pack(">2I", 0x801, 4) + bytes(4))
    return FashionMnist(root=str(folder)).train()


def fuzz(tally: Tally, inputs: int, number: int, folder: Path, only: str = "") -> None:
    """So many inputs in all, shared out among the readers; the number is the seed."""
    set_hypothesis_home_dir(folder / "hypothesis")  # which is no trace of ours
    chosen = {name: reader for name, reader in readers().items() if only in name}
    for name, (whole, read) in chosen.items():
        _fuzz_one(tally, name, whole, read, math.ceil(inputs / len(chosen)), number, folder)


def _fuzz_one(
    tally: Tally, name: str, whole: bytes, read: Callable[[bytes, Path], object], inputs: int, number: int, folder: Path
) -> None:
    before, count = set(os.listdir()), 0

    @seed(number)
    @settings(max_examples=inputs, database=None, deadline=None, suppress_health_check=list(HealthCheck))
    @given(edited(whole))
    def one(data: bytes) -> None:
        nonlocal count
        count += 1
        place = folder / f"{name.replace(' ', '-')}-{count}"
        place.mkdir(parents=True)
        outcome, answer = judge(lambda: read(data, place))
        tally.add(f"fuzzed {name}", outcome, f"{answer} for {data[:120]!r}")
        shutil.rmtree(place)

    one()
    if set(os.listdir()) != before:
        tally.add(f"fuzzed {name}", "traceback", f"it left {set(os.listdir()) - before} behind")
