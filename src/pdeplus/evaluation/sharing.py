"""Sharing a trained network: one folder with weights, config and a model card, on disk or on the Hugging Face hub."""

import json
import tempfile
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import tomli_w
from torch import nn

from .. import __version__
from .._lib.files import encode_weights, make_folder, readable, sum_of, write_file
from .._lib.registry import require
from ..errors import UserError, reason_of
from ..training.config import to_tables
from ..training.run_files import begin_files, write_metrics
from ..training.run_folder import Expects, Run, Selection, build_method
from ..training.sums import write_sums
from .deployment import export, plain
from .records import CLEAN, RECORDS, Record, in_words, read_records, to_json
from .tested_models import hash_of

WEIGHTS, CARD, ONNX = "model.safetensors", "README.md", "model.onnx"
FILES = ("config.toml", "model.json", "metrics.jsonl", "sums.json", "config.json", RECORDS, WEIGHTS, CARD, ONNX)
"""All that a shared folder holds, and all that is fetched of one."""
UNFINISHED = ".unfinished-pdeplus"
"""A file in a folder that is being saved; where a kill or a full disk left it, the same call begins again."""
PRIVATE = ("root", "weights")
"""Options that name places on the machine of the one who trained: they are not shared."""


def save_pretrained(
    run: Run | str | Path,
    folder: str | Path,
    *,
    selection: Selection = "validation",
    onnx: bool = True,
    trust_code: bool = False,
) -> Path:
    """Write a finished run's network into a new folder, ready to share: safetensors, config, records, a model card.

    The folder holds no path of this machine. With `onnx` it has the plain network as ONNX too, which needs nothing of
    pdeplus to be run. Code outside pdeplus that a run folder's config names is refused unless `trust_code` is true.
    """
    run, folder = run if isinstance(run, Run) else Run.load(run, trust_code=trust_code), Path(folder)
    if folder.exists() and (not folder.is_dir() or (any(folder.iterdir()) and not (folder / UNFINISHED).exists())):
        raise UserError(f"{folder} already holds files; choose a new folder")
    epoch, path = run.weights(selection)
    weights, expects, config = run.read_weights(path), run.expects, run.config
    records = _records_of(run, hash_of(weights))
    parts = {"data": config.data, "model": config.model}
    for key, part in parts.items():
        public = {name: value for name, value in part.options.items() if name not in PRIVATE}
        parts[key] = replace(part, options=public)
    make_folder(folder)
    write_file(folder / UNFINISHED, b"")
    for name in FILES:
        (folder / name).unlink(missing_ok=True)
    write_file(folder / "config.toml", tomli_w.dumps(to_tables(replace(config, **parts))).encode())
    begin_files(folder, expects, [])
    (folder / "environment.json").unlink()  # it tells of this machine, and of a command with its paths
    write_metrics(folder, run.metrics[:epoch])
    if records:
        write_file(folder / RECORDS, "".join(to_json(record) + "\n" for record in records).encode())
    if onnx:
        export(run, "onnx", folder / ONNX, selection=selection)
    about = {"library_name": "pdeplus", "architecture": config.model.name, "method": config.method.name}
    about |= {"id2label": dict(enumerate(expects.classes)), "input": list(expects.shape), "range": [0, 1]}
    write_file(folder / "config.json", json.dumps(about | {"pdeplus_version": __version__}, indent=1).encode())
    write_file(folder / CARD, card(run, expects, records, f"epoch {epoch} ({selection})", onnx).encode())
    data = encode_weights(weights)
    write_sums(folder, "model.json", "metrics.jsonl", more={WEIGHTS: sum_of(data)})
    write_file(folder / WEIGHTS, data)
    (folder / UNFINISHED).unlink(missing_ok=True)
    return folder


def push_to_hub(
    run: Run | str | Path,
    repo: str,
    *,
    private: bool = False,
    selection: Selection = "validation",
    onnx: bool = True,
    trust_code: bool = False,
    token: str | None = None,
    endpoint: str | None = None,
) -> str:
    """Share a finished run as a model on the Hugging Face hub and return its address; `repo` is USER/NAME.

    The repository is made if need be. Without a `token` that of `hf auth login` is used; `trust_code` is that of
    `save_pretrained`.
    """
    (hub,) = require("huggingface_hub", purpose="push_to_hub", extra="hub")
    with tempfile.TemporaryDirectory() as place:
        folder = save_pretrained(run, Path(place) / "model", selection=selection, onnx=onnx, trust_code=trust_code)
        api = hub.HfApi(endpoint=endpoint, token=token)
        try:
            address = api.create_repo(repo, private=private, exist_ok=True)
            api.upload_folder(repo_id=repo, folder_path=folder, commit_message=f"Add a model of pdeplus {__version__}")
        except Exception as error:  # of the client, of the connection, of the server
            raise _of_the_hub(repo, error, "log in with: hf auth login") from error
    return str(address)


def from_pretrained(
    source: str | Path,
    *,
    revision: str | None = None,
    diffusion: bool = False,
    model: nn.Module | None = None,
    trust_code: bool = False,
    token: str | None = None,
    endpoint: str | None = None,
) -> nn.Module:
    """The network of a shared folder, or of USER/NAME on the Hugging Face hub, in eval mode; its `classes` are named.

    It takes float images in [0, 1], B×C×H×W, to logits. What is fetched is read as data: nothing in it is run, and
    code that its config names is refused unless `trust_code` is true.

    Args:
        source: a folder, or a repository of the hub.
        revision: a branch, tag or commit of the repository.
        diffusion: keep the ADD blocks, for `predict` with samples; else the plain network.
        model: the architecture again, where the run was given it in Python.
        trust_code: whether code outside pdeplus that the config names may be imported.
        token: of the hub; without one that of `hf auth login`.
        endpoint: the hub's address.
    """
    folder = Path(source)
    if not folder.is_dir():
        folder = _fetched(str(source), revision=revision, token=token, endpoint=endpoint)
    if not (folder / "config.toml").is_file() or not (folder / WEIGHTS).is_file():
        way_out = f"networks of other libraries are named by model.name='hf:{readable(source)}'"
        raise UserError(f"{readable(source)} has no config.toml and {WEIGHTS} as pdeplus saves them; {way_out}")
    run = Run.load(folder, trust_code=trust_code, model=model)
    net = run.load_weights(folder / WEIGHTS)
    net = net if diffusion else plain(net).requires_grad_(False)
    net.classes = run.expects.classes  # type: ignore[reportArgumentType]
    return net


def _fetched(repo: str, **options: Any) -> Path:
    (hub,) = require("huggingface_hub", purpose=f"from_pretrained({repo!r})", extra="hub")
    try:
        return Path(hub.snapshot_download(repo, allow_patterns=list(FILES), **options))
    except Exception as error:  # of the client, of the connection, of the server
        raise _of_the_hub(repo, error, "check the name and the connection, or give a folder") from error


def _of_the_hub(repo: str, error: Exception, way_out: str) -> UserError:
    return UserError(f"{readable(repo)} on the hub: {type(error).__name__}: {reason_of(error, 200)}; {way_out}")


def _records_of(run: Run, weights: str) -> list[Record]:
    """What was measured of these very weights, without the commands, which may name places on this machine."""
    path = run.path / RECORDS
    found = read_records(path) if path.is_file() else []
    return [replace(record, command="") for record in found if record.weights == weights]


def card(run: Run, expects: Expects, records: Sequence[Record], weights: str, onnx: bool) -> str:
    """The model card: what it is, how it was measured, on what, at what cost, and how to load it."""
    config, shape = run.config, "×".join(map(str, expects.shape))
    label, classes = build_method(config).label, ", ".join(map(_text, expects.classes))
    lines = ["---", "library_name: pdeplus", "pipeline_tag: image-classification", "tags:", "- robustness"]
    lines += [f"- {config.method.name}", "---", "", f"# {config.model.name} trained with {label}", ""]
    lines += [f"Float images in [0, 1], B×{shape}, to logits of {len(expects.classes)} classes: {classes}.", ""]
    lines += ["## Load it", "", "With pdeplus:", "", "```python"]
    lines += ["import pdeplus as pp", "", 'net = pp.from_pretrained("THIS_REPOSITORY_OR_FOLDER")']
    lines += ["probabilities = pp.predict(net, images, samples=0)", "```", ""]
    if onnx:
        lines += ["Without pdeplus:", "", "```python", "import onnxruntime", ""]
        lines += [f'session = onnxruntime.InferenceSession("{ONNX}")']
        lines += ['(logits,) = session.run(None, {"images": images})  # float32', "```", ""]
    lines += ["## Accuracy", "", *_accuracies(records), "", "## Protocol", ""]
    lines += [f"- Trained on {config.data.name}, seed {config.seed}, {len(run.metrics)} epochs; weights of {weights}."]
    lines += ["- Weights were selected on held-out training images; no test image was used."]
    first = records[0] if records else None
    if first is not None:
        seen = ", ".join(first.overlaps) or "none"
        lines += [f"- Overlap audit: test corruptions that the training augmentations resemble: {seen}."]
        lines += [f"- Noisy passes at test: {first.samples}. Machine: {first.machine or 'not recorded'}."]
        costs = (("parameters", first.parameters), ("FLOPs per image", first.flops))
        costs += (("seconds of training", first.train_seconds), ("FLOPs of training", first.train_flops))
        told = ", ".join(f"{value:.4g} {name}" for name, value in costs if value is not None)
        lines += ["", "## Cost", "", (told or "not recorded") + "."]
    return "\n".join(lines) + "\n"


def _text(name: str) -> str:
    """A name within a line of Markdown, or a cell of its tables."""
    return " ".join(readable(name).split()).replace("|", "\\|").replace("<", "&lt;")


def _accuracies(records: Sequence[Record]) -> list[str]:
    """A table for each data set and origin: accuracy clean and under each corruption, a mean over its severities."""
    if not records:
        return ["Not measured yet: `pdeplus evaluate` the run, then save it again."]
    found = defaultdict[tuple[str, str, str], dict[str, list[Record]]](lambda: defaultdict(list))
    for record in records:
        found[record.suite, record.data, record.origin][record.corruption].append(record)
    lines = list[str]()
    for (suite, data, origin), tests in found.items():
        lines += [
            "",
            f"{_text(in_words(data))}, {suite} ({_text(in_words(origin))}):",
            "",
            "| test | accuracy | severities | images |",
        ]
        lines += ["|---|---|---|---|"]
        for name, rows in sorted(tests.items(), key=lambda item: item[0] != CLEAN):
            mean = sum(row.accuracy for row in rows) / len(rows)
            levels = ", ".join(str(row.severity) for row in sorted(rows, key=lambda r: r.severity) if row.severity)
            lines.append(f"| {_text(name)} | {100 * mean:.2f} % | {levels or '–'} | {rows[0].n} |")
    return lines[1:]
