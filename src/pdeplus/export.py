"""A run's network as one file for other programs: ONNX, or torch's own exported program.

What is written is the plain network, for batches of any size. The file is read back and compared with the network
before it gets its name, so that a file with a final name is whole and right.
"""

import contextlib
import io
import json
import logging
import tempfile
import textwrap
import warnings
from collections.abc import Callable, Generator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, final

import torch
from torch import Tensor, nn

from ._errors import RunFailed, UserError, check_choice
from ._onnx import OnnxModel, require
from ._seeds import generator_for
from .run import Expects, Run, Selection
from .use import load_model

Format = Literal["onnx", "torch"]
SUFFIX = {"onnx": ".onnx", "torch": ".pt2"}
TOLERANCE = 1e-4
"""Largest difference of a logit between file and network."""
BATCH_SIZES = (1, 2, 5)
"""At which the two are compared."""


@final
@dataclass(frozen=True, kw_only=True)
class Exported:
    """A file that holds a network, and how far its logits are from the network's."""

    path: Path
    bytes: int
    difference: float
    weights: str
    """Whose: the epoch and how it was selected."""

    def __str__(self) -> str:
        sizes = ", ".join(map(str, BATCH_SIZES))
        agreement = f"logits within {self.difference:.1e} of torch's at batches of {sizes}"
        return f"{self.path}: {self.bytes / 1e6:.2f} MB, weights of {self.weights}, {agreement}"


def export(
    run: Run,
    format: Format,
    out: str | Path | None = None,
    *,
    selection: Selection = "validation",
    force: bool = False,
) -> Exported:
    """Write the plain network of a run into one file; `out` is model.onnx or model.pt2 in its folder by default.

    The file takes float images in [0, 1], B×C×H×W with any B, and gives logits. One that disagrees with the network is
    not left behind, and an existing file stays as it was unless `force` is true.
    """
    check_choice("format", format, Format)
    path = Path(out) if out is not None else run.path / f"model{SUFFIX[format]}"
    _check_place(path, force)
    if format == "onnx":
        require("onnx", "onnxscript", "onnxruntime", purpose="export --format onnx")
    model, expects = load_model(run.path, selection), run.expects
    weights = f"epoch {run.weights(selection)[0]} ({selection})"
    try:
        with tempfile.TemporaryDirectory(prefix=".export-", dir=path.parent) as folder:
            made = Path(folder) / f"model{SUFFIX[format]}"
            gap = _write_and_compare(model, expects, format, made)
            if not gap <= TOLERANCE:
                raise RunFailed(f"{path} was not written: its logits are {gap:.1e} from torch's, above {TOLERANCE:g}")
            made.replace(path)
    except OSError as error:
        raise UserError(f"{path} cannot be written: {error.strerror or error}") from error
    return Exported(path=path, bytes=path.stat().st_size, difference=gap, weights=weights)


@torch.no_grad()
def difference(model: nn.Module, exported: Callable[[Tensor], Tensor], shape: tuple[int, int, int]) -> float:
    """The largest difference of a logit on seeded random images, at every size in BATCH_SIZES."""
    gaps = list[Tensor]()
    for size in BATCH_SIZES:
        x = torch.rand(size, *shape, generator=generator_for(0, "export", size))
        gaps.append((model(x) - exported(x)).abs().max())
    return float(torch.stack(gaps).max())


def _write_and_compare(model: nn.Module, expects: Expects, format: Format, path: Path) -> float:
    try:
        with _quiet():
            if format == "onnx":
                _write_onnx(model, expects, path)
                return difference(model, OnnxModel(path), expects.shape)
            _write_torch(model, expects, path)
            return difference(model, torch.export.load(path).module(), expects.shape)
    except OSError:
        raise
    except Exception as error:  # a network of the user's own may hold anything
        reason = textwrap.shorten(str(error), 300, placeholder=" …") or type(error).__name__
        raise RunFailed(f"the network cannot be exported as {format}: {reason}") from error


def _check_place(path: Path, force: bool) -> None:
    if path.is_dir():
        raise UserError(f"{path} is a folder; give --out a file's name")
    if path.exists() and not force:
        raise UserError(f"{path} exists already; overwrite it with --force, or choose another --out")
    if not path.parent.is_dir():
        raise UserError(f"{path}: there is no folder {path.parent}; make it first, or choose another --out")


def _write_torch(model: nn.Module, expects: Expects, path: Path) -> None:
    program = torch.export.export(model, (_example(expects),), dynamic_shapes=_any_batch())
    for node in program.graph.nodes:
        node.meta.pop("stack_trace", None)  # it names files of this machine
    torch.export.save(program, path, extra_files=dict[str, Any](_about(expects)))


def _write_onnx(model: nn.Module, expects: Expects, path: Path) -> None:
    program: Any = torch.onnx.export(
        model,
        (_example(expects),),
        dynamo=True,
        dynamic_shapes=_any_batch(),
        input_names=["images"],
        output_names=["logits"],
        verbose=False,
    )
    for node in program.model.graph:
        node.metadata_props.clear()  # it names files of this machine
    program.model.metadata_props.update(_about(expects))
    program.save(path, external_data=False)


def _about(expects: Expects) -> dict[str, str]:
    """What the file says of itself."""
    channels, height, width = expects.shape
    classes = json.dumps(expects.classes)
    return {"classes": classes, "input": f"float B×{channels}×{height}×{width} in [0, 1]"}


def _example(expects: Expects) -> Tensor:
    """Two images: from a batch of one the exporter would conclude that it is always one."""
    return torch.zeros(2, *expects.shape)


def _any_batch() -> tuple[dict[int, Any]]:
    return ({0: torch.export.Dim("batch")},)


@contextlib.contextmanager
def _quiet() -> Generator[None]:
    """The exporters' remarks, meant for their developers, are not shown."""
    silence, before = io.StringIO(), logging.root.manager.disable
    with warnings.catch_warnings(), contextlib.redirect_stdout(silence), contextlib.redirect_stderr(silence):
        warnings.simplefilter("ignore")
        logging.disable(logging.WARNING)
        try:
            yield
        finally:
            logging.disable(before)
