"""The files of CIFAR-10 and CIFAR-100, rows of 3,072 bytes in pickles, which are read without being run."""

import io
import pickle
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, cast, final

import numpy as np
import torch
from numpy.typing import NDArray

from ..errors import UserError
from ._reading import checked_labels, resize
from .base import Images

ROW = 3 * 32 * 32
MOST_BYTES = 2_000_000_000


def read_batches(paths: Sequence[Path], label_key: str, classes: int, size: int) -> Images:
    """The images of some files, one file after the other, at size×size.

    Every file is checked: rows of 3,072 bytes, a label for each, labels in range.
    """
    rows, labels = list[NDArray[np.uint8]](), list[torch.Tensor]()
    for path in paths:
        entries = read_pickle(path)
        if not isinstance(entries.get("data"), np.ndarray) or not isinstance(entries.get(label_key), list):
            raise UserError(f"{path} is no CIFAR file: it has no 'data' or no '{label_key}'")
        data = cast(NDArray[np.uint8], entries["data"])
        if data.ndim != 2 or data.shape[1] != ROW or not len(data):
            raise UserError(f"{path}: data of shape {data.shape} is not N×{ROW}")
        labels.append(checked_labels(entries[label_key], classes, path))
        if len(labels[-1]) != len(data):
            raise UserError(f"{path} has {len(data)} images but {len(labels[-1])} labels")
        rows.append(data)
    images = torch.from_numpy(np.concatenate(rows)).view(-1, 3, 32, 32)
    return Images(resize(images, size), torch.cat(labels))


def read_pickle(path: str | Path) -> dict[str, Any]:
    """A pickled dictionary of plain values and uint8 arrays, of any protocol, from Python 2 or 3.

    Texts of Python 2 come as bytes, keys as texts. A file that holds anything else is refused by name.
    """
    file = Path(path)
    try:
        if file.stat().st_size > MOST_BYTES:
            raise pickle.UnpicklingError(f"it has more than {MOST_BYTES:,} bytes")
        loaded: object = _Unpickler(io.BytesIO(file.read_bytes()), encoding="bytes").load()
        if not isinstance(loaded, dict):
            raise pickle.UnpicklingError(f"it holds a {type(loaded).__name__}, not a dictionary")
        entries = cast(dict[object, Any], loaded).items()
        return {_text(key): value.array() if isinstance(value, _Array) else value for key, value in entries}
    except FileNotFoundError as error:
        raise UserError(f"{path}: there is no such file") from error
    except Exception as error:  # a hostile or truncated pickle fails in many ways
        reason = " ".join(str(error).split()) or type(error).__name__
        raise UserError(f"{path} is damaged, or not what it is said to be: {reason}") from error


@final
class _Unpickler(pickle._Unpickler):  # type: ignore[reportPrivateUsage, reportUntypedBaseClass, reportAttributeAccessIssue, reportUnknownMemberType]
    """Knows the few names that pickled arrays and bytes need.

    Python's own unpickler: the one in C makes room for as many objects as a hostile file says it has.
    """

    def find_class(self, module: str, name: str) -> Any:
        stand_in = _STAND_INS.get((module.replace("numpy._core", "numpy.core"), name))
        if stand_in is None:
            raise pickle.UnpicklingError(f"it asks for {module}.{name}, which no such file needs")

        def fresh(*arguments: object) -> object:  # a new one each time: a pickle may set attributes on what it is given
            return stand_in(*arguments)

        return fresh


@final
class _Array:
    """Takes an array's state and gives the array, if it is one of plain bytes."""

    def __init__(self, state: object = None) -> None:
        self.state = state

    def __setstate__(self, state: object) -> None:
        self.state = state

    def array(self) -> NDArray[np.uint8]:
        if not (isinstance(self.state, tuple) and len(cast(tuple[Any, ...], self.state)) == 5):
            raise ValueError("an array has no contents")
        _, shape, kind, column_major, raw = cast(tuple[Any, Any, Any, Any, Any], self.state)
        if not isinstance(kind, _Kind) or _text(kind.code) not in ("u1", "uint8", "|u1"):
            raise ValueError("an array is not of type uint8")
        if not isinstance(raw, bytes):
            raise ValueError("an array's contents are not bytes")
        return np.frombuffer(raw, np.uint8).reshape(shape, order="F" if column_major else "C")


@final
class _Kind:
    """Takes the place of a numpy dtype."""

    def __init__(self, code: object, *flags: object) -> None:
        self.code = code

    def __setstate__(self, state: object) -> None:
        """Byte order and the like, which single bytes have not."""


def _from_buffer(raw: object, kind: object, shape: object, order: object) -> _Array:
    return _Array((1, shape, kind, order == "F", bytes(raw) if isinstance(raw, bytes | bytearray) else None))


def _encode(text: object, encoding: object) -> bytes:
    if not isinstance(text, str) or _text(encoding) != "latin1":
        raise pickle.UnpicklingError("it encodes something other than bytes")
    return text.encode("latin1")


def _no_array(*arguments: object) -> None:
    raise pickle.UnpicklingError("it makes an array out of nothing")


_STAND_INS: dict[tuple[str, str], Callable[..., object]] = {
    ("numpy.core.multiarray", "_reconstruct"): lambda *arguments: _Array(),
    ("numpy.core.numeric", "_frombuffer"): _from_buffer,
    ("numpy", "ndarray"): _no_array,
    ("numpy", "dtype"): _Kind,
    ("_codecs", "encode"): _encode,
}


def _text(value: object) -> str:
    if isinstance(value, bytes):
        return value.decode("latin1")
    if isinstance(value, str):
        return value
    raise pickle.UnpicklingError(f"it has {value!r:.50} where a text belongs")
