"""An ONNX file as a function of tensors."""

import json
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, cast, final

import torch
from torch import Tensor

from .._lib.registry import require
from ..errors import UserError

DTYPES = {"tensor(float)": torch.float32, "tensor(float16)": torch.float16, "tensor(double)": torch.float64}


@final
class OnnxModel:
    """An ONNX classifier on the CPU: float images, B×C×H×W, to float32 logits, B×classes.

    Any batch size is taken, also by a file whose batch size is fixed; rows do not depend on their neighbours
    where they do not in the file's network.
    """

    classes: tuple[str, ...] | None
    """Names of the labels 0, 1, …, where the file tells them."""

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        (runtime,) = require("onnxruntime", purpose=f"{path}: reading ONNX", extra="onnx")
        if not self.path.is_file():
            raise UserError(f"{path}: there is no such file")
        self._session = _open(runtime, self.path)
        inputs = self._session.get_inputs()
        if len(inputs) != 1 or inputs[0].type not in DTYPES or len(inputs[0].shape) != 4:
            found = ", ".join(f"{i.type} {_shape(i.shape)}" for i in inputs)
            raise UserError(f"{path} takes {found}; a network of one input of floats, B×C×H×W, is needed")
        self._input, self._shape = inputs[0], cast("list[int | str | None]", inputs[0].shape)
        self.classes = _classes(self._session.get_modelmeta().custom_metadata_map.get("classes"))

    def __call__(self, x: Tensor) -> Tensor:
        """Logits, B×classes, in float32."""
        self._check(x)
        size = self._shape[0]
        if not isinstance(size, int):
            return self._run(x)
        parts = list[Tensor]()
        for start in range(0, max(len(x), 1), size):
            part = x[start : start + size]
            filled = torch.cat([part, part.new_zeros(size - len(part), *part.shape[1:])])
            parts.append(self._run(filled)[: len(part)])
        return torch.cat(parts)

    def _check(self, x: Tensor) -> None:
        wanted = self._shape[1:]
        fits = x.ndim == 4 and all(not isinstance(w, int) or w == n for w, n in zip(wanted, x.shape[1:], strict=True))
        if not fits or not x.is_floating_point():
            kind = str(x.dtype).removeprefix("torch.")
            raise UserError(f"{self.path} takes floats of {_shape(['B', *wanted])}, not {kind} of {_shape(x.shape)}")

    def _run(self, x: Tensor) -> Tensor:
        array = x.detach().cpu().to(DTYPES[self._input.type]).contiguous().numpy()
        try:
            logits = torch.from_numpy(self._session.run(None, {self._input.name: array})[0]).float()
        except Exception as error:  # the runtime raises all kinds
            raise UserError(f"{self.path} cannot be run on {_shape(x.shape)}: {_line(error)}") from error
        if logits.ndim != 2 or len(logits) != len(x):
            raise UserError(f"{self.path} gives {_shape(logits.shape)} for {len(x)} images; B×classes is needed")
        return logits


def _open(runtime: Any, path: Path) -> Any:
    options = runtime.SessionOptions()
    options.log_severity_level = 4  # what is wrong is said once, in the error
    options.intra_op_num_threads = torch.get_num_threads()
    try:
        return runtime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    except Exception as error:  # the runtime raises all kinds
        raise UserError(f"{path} cannot be read as an ONNX network: {_line(error)}") from error


def _classes(text: str | None) -> tuple[str, ...] | None:
    """Names from the file's metadata; what another program may have put there is no list of names."""
    with suppress(ValueError):
        names = json.loads(text or "null")
        if isinstance(names, list) and all(isinstance(name, str) for name in cast(list[Any], names)):
            return tuple(cast(list[str], names))
    return None


def _shape(sizes: Sequence[Any]) -> str:
    return "×".join(str(size) for size in sizes) or "a single number"


def _line(error: Exception) -> str:
    return " ".join(str(error).split()) or type(error).__name__
