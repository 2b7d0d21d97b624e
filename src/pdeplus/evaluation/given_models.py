"""Models that a name stands for: exported files, networks by URI or dotted name, as classifiers of images in [0, 1].

`open_model` gives one with what it takes and tells apart; classes of a model and of a data set are matched by name.
"""

import contextlib
import hashlib
import io
import json
import re
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, cast, final

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.parameter import UninitializedParameter

from .._lib.files import readable
from .._lib.registry import FILES, find, names, require
from ..core.network import logits_of
from ..data.image_folder import ImageFolder
from ..errors import UserError, reason_of
from ..models._libraries import check_logits, last_linear, load_start, parse_uri, read_state
from ..models.base import build_model, facts_of
from ..models.normalise import MEAN, STD
from ..training.run_folder import Expects, Run, build_source

SIDE = 224
"""Side of the images, in pixels, for a model that does not tell what it takes."""
COLOURS = 3
LISTED = 8
"""Classes that a message names before it only counts."""
DTYPES = {"tensor(float)": torch.float32, "tensor(float16)": torch.float16, "tensor(double)": torch.float64}
"""What the input of an ONNX file may be."""


@final
@dataclass(frozen=True, kw_only=True)
class Given:
    """A finished classifier that is no run: what computes its logits, and what it takes and tells apart, if known."""

    label: str
    """What tables call it."""
    model: Callable[[Tensor], Any]
    """A torch module in eval mode, or a function."""
    expects: Expects
    mark: str = ""
    """Tells an exported file from others; empty for a module, whose weights do."""

    @property
    def about(self) -> str:
        """What it takes and tells apart, in one line."""
        takes = self.expects.facts or f"images of {self.expects.shape[-1]} pixels in [0, 1]"
        apart = f"; {len(self.expects.classes)} classes" if self.expects.classes else ""
        return f"{self.label}: {takes}{apart}"


def open_run_or_model(name: str, trust_code: bool = False) -> "Run | Given":
    """The run in a folder, or the model that another name stands for."""
    if is_run(name) or not names_a_model(name):
        return Run.load(name, trust_code=trust_code)
    return open_model(name)


def names_a_model(text: str) -> bool:
    """Whether a text can stand for a model that is not a run folder: a URI, a file, a dotted or known name."""
    name = text.partition("?")[0]
    if ":" in name or Path(name).suffix in FILES or (Path(name) / "config.json").is_file():
        return True
    dotted = "." in name.strip(".") and not name.startswith(".") and "/" not in name
    return not Path(name).exists() and (dotted or name in names("models"))


def open_model(name: str | Path, classes: Sequence[str] | None = None, channels: int = COLOURS) -> Given:
    """The classifier that a URI, a file or a dotted name stands for, with its own head.

    A network without weights of its own gets a head for `classes`, the data's. What is no model is refused.
    """
    text = str(name)
    if not names_a_model(text):
        Run.load(text)  # which tells what is not a run folder
        raise UserError(f"{text} is a run folder, which Run.load opens")
    bare, options = _name_and_options(text)
    if Path(bare).suffix in (".onnx", ".pt2"):
        return _of_file(Path(bare), options)
    own = getattr(find("models", bare), "own_classes", None)
    facts = facts_of(bare, options)
    side = facts.size if facts else SIDE
    shape = (channels, side, side)
    published = own is not None and options.get("pretrained", True) and "weights" not in options
    told = own() if own is not None and (published or classes is None) else tuple(classes or ())
    if not told:
        raise UserError(f"{text}: its number of classes is not known; give it data with named classes")
    label, weights = bare, options.pop("weights", None)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)  # what no weights are for is the same each time
        if weights is not None:
            label = f"{bare} ({Path(weights).stem})"
            network, told = _with_weights(bare, options, Path(weights).expanduser(), told, channels)
        else:
            network = build_model(bare, options, classes=len(told), channels=channels)
    if facts is not None:
        check_logits(network, text, shape, len(told))
    if any(isinstance(p, UninitializedParameter) for p in network.parameters()):
        raise UserError(f"{text} has lazy layers without a size; let its build call it once, or give them one")
    expects = Expects(classes=told, shape=shape, facts=facts)
    return Given(label=label, model=network.eval().requires_grad_(False), expects=expects)


def _name_and_options(text: str) -> tuple[str, dict[str, Any]]:
    """What stands before and behind a question mark; a folder as the Hugging Face hub has it becomes its URI."""
    name, options = (text, {}) if Path(text).exists() else parse_uri(text)
    return f"hf:{name}" if (Path(name) / "config.json").is_file() else name, options


def _with_weights(
    name: str, options: Mapping[str, Any], file: Path, classes: tuple[str, ...], channels: int
) -> tuple[nn.Module, tuple[str, ...]]:
    """The network with all of a file's weights and the file's own head; its classes, by number where not as many."""
    network = build_model(name, options, classes=len(classes), channels=channels, start=False)
    head = last_linear(network)
    found = read_state(file).get(f"{head[0]}.weight") if head else None
    if found is not None and len(found) != len(classes):
        classes = tuple(map(str, range(len(found))))
        network = build_model(name, options, classes=len(classes), channels=channels, start=False)
    left = [key for key in load_start(network, file) if key not in (MEAN, STD)]
    if left:
        raise UserError(f"{name}?weights={file}: the file lacks {', '.join(left[:3])}; weights of the whole are needed")
    return network, classes


def _of_file(path: Path, options: Mapping[str, Any]) -> Given:
    """An exported file; mean and std among the options are put before it."""
    unknown = next((key for key in options if key not in ("mean", "std")), None)
    if unknown is not None or len(options) == 1:
        raise UserError(f"{path}?{unknown or next(iter(options))}=…: a file takes mean and std, both or neither")
    model = OnnxModel(path) if path.suffix == ".onnx" else ProgramModel(path)
    channels, height, width = model.shape
    shape = (channels or COLOURS, height or SIDE, width or SIDE)
    run: Callable[[Tensor], Tensor] = model
    if options:
        mean, std = (torch.tensor(options[key]).view(-1, 1, 1) for key in ("mean", "std"))
        run = lambda x: model((x - mean) / std)  # noqa: E731
    mark = hashlib.sha256(path.read_bytes()).hexdigest()[:12]
    return Given(label=path.stem, model=run, expects=Expects(classes=model.classes or (), shape=shape), mark=mark)


def expects_of_model(model: object) -> Expects | None:
    """What a model takes, as far as it can be told before it is built; None for modules and functions."""
    if isinstance(model, Run):
        return model.expects
    if not isinstance(model, str | Path):
        return None
    if not names_a_model(str(model)):
        return Run.load(model).expects
    bare, options = _name_and_options(str(model))
    if Path(bare).suffix in (".onnx", ".pt2"):
        return _of_file(Path(bare), options).expects
    facts = facts_of(bare, options)
    return Expects(classes=(), shape=(COLOURS, facts.size, facts.size), facts=facts) if facts else None


def folder_for(data: str, models: Sequence[object], trust_code: bool = False) -> ImageFolder:
    """A folder of pictures, PATH or PATH?key=value, as test images for some models: all of it, or its test/.

    What is not set follows the first model that tells what it takes. Of a folder that one of the models, a run, learnt
    from, the run's own held-out pictures are the test.
    """
    root, options = (data, {}) if Path(data).expanduser().is_dir() else parse_uri(data)
    for run in (m if isinstance(m, Run) else Run(Path(str(m)), trust_code) for m in models if is_run(m)):
        source = build_source(run.config)
        if isinstance(source, ImageFolder) and Path(source.root).expanduser().resolve() == Path(root).resolve():
            return source if not options else replace(source, **options)
    expects = next((e for e in map(expects_of_model, models) if e is not None), None)
    wanted: dict[str, Any] = {"size": expects.shape[-1] if expects else SIDE}
    if not ImageFolder(root=root).has_test:
        wanted["held_out"] = 1.0
    if expects and expects.facts:
        wanted |= {"crop": expects.facts.crop, "interpolation": expects.facts.interpolation}
    try:
        return ImageFolder(root=root, **(wanted | options))
    except TypeError as error:
        known = "size, crop, interpolation, held_out, seed, memory_gb"
        raise UserError(f"data {data!r}: {', '.join(options)} …; a folder takes {known}") from error


def is_run(model: object) -> bool:
    """Whether it is a run or the path of its folder."""
    return isinstance(model, Run) or (isinstance(model, str | Path) and (Path(model) / "config.toml").is_file())


def class_order(own: Sequence[str], wanted: Sequence[str], data: str) -> list[int] | None:
    """The model's classes in the data's order, those that the data lack behind them; None where they agree already.

    They are matched by name, whatever the case and the signs between words; a model that only numbers as many classes
    as there are takes them in order. Others are refused with both lists.
    """
    if tuple(own) == tuple(wanted):
        return None
    places = defaultdict[str, set[int]](set)
    for i, name in enumerate(own):
        for word in {_plain(name), *map(_plain, name.split(", "))}:
            places[word].add(i)
    whole = {_plain(name): i for i, name in enumerate(own)}
    found = [whole.get(_plain(name), next(iter(places[_plain(name)]), None)) for name in wanted]
    sure = all(_plain(name) in whole or len(places[_plain(name)]) == 1 for name in wanted)
    if sure and len(set(found)) == len(wanted):
        order = cast(list[int], found)
        return [*order, *(i for i in range(len(own)) if i not in set(order))]
    if len(own) == len(wanted) and all(name == str(i) for i, name in enumerate(own)):
        return None
    count = f"the model has {len(own)} classes, {data} has {len(wanted)}"
    raise UserError(f"{count}: they must have the same names; the model's: {_some(own)}; of {data}: {_some(wanted)}")


def in_order(model: Callable[[Tensor], Any], order: Sequence[int]) -> Callable[[Tensor], Any]:
    """The model with its logits in another order: a module in place, by a hook, a function as another function."""
    places = list(order)
    if isinstance(model, nn.Module):
        model.register_forward_hook(lambda module, args, output: logits_of(output)[:, places])
        return model
    return lambda x: logits_of(model(x))[:, places]


def resizing(network: nn.Module, side: int) -> nn.Module:
    """Let a network resize its input to `side` pixels, in place, before it normalises it."""

    def resize(module: nn.Module, args: tuple[Any, ...]) -> tuple[Any, ...]:
        x = F.interpolate(args[0], (side, side), mode="bilinear", antialias=True)
        return x, *args[1:]

    network.register_forward_pre_hook(resize, prepend=True)
    return network


def _plain(name: str) -> str:
    """Words alone, in small letters."""
    return re.sub(r"[\W_]+", " ", name.casefold()).strip()


def _some(names: Sequence[str]) -> str:
    more = f" and {len(names) - LISTED} more" if len(names) > LISTED else ""
    return ", ".join(name.partition(", ")[0] for name in names[:LISTED]) + more


@final
class ProgramModel:
    """A program that torch.export saved (.pt2): float images, B×C×H×W, to logits, B×classes."""

    classes: tuple[str, ...] | None
    """Names of the labels 0, 1, …, where the file tells them."""
    shape: tuple[int | None, ...]
    """Channels, height and width that it takes; None for any."""

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        if not self.path.is_file():
            raise UserError(f"{path}: there is no such file")
        extra: dict[str, Any] = {"classes": "", "input": ""}
        try:
            program = torch.export.load(io.BytesIO(self.path.read_bytes()), extra_files=extra)
            self._module = program.module()
            (image,) = (n for n in program.graph.nodes if n.name in program.graph_signature.user_inputs)
            sizes = image.meta["val"].shape
        except Exception as error:  # torch raises all kinds on broken files
            raise UserError(f"{path} cannot be read as an exported program of one input: {reason_of(error)}") from error
        if len(sizes) != 4:
            raise UserError(f"{path} takes {_shape(sizes)}; a network of one input of floats, B×C×H×W, is needed")
        self.shape = tuple(size if isinstance(size, int) else None for size in sizes[1:])
        self.classes = _names(extra["classes"])

    def __call__(self, x: Tensor) -> Tensor:
        """Logits, B×classes."""
        try:
            return logits_of(self._module(x))
        except (RuntimeError, AssertionError) as error:
            raise UserError(f"{self.path} cannot be run on {_shape(x.shape)}: {reason_of(error)}") from error


@final
class OnnxModel:
    """An ONNX classifier on the CPU: float images, B×C×H×W, to float32 logits, B×classes.

    Any batch size is taken, also by a file whose batch size is fixed; rows do not depend on their neighbours
    where they do not in the file's network.
    """

    classes: tuple[str, ...] | None
    """Names of the labels 0, 1, …, where the file tells them."""
    shape: tuple[int | None, ...]
    """Channels, height and width that it takes; None for any."""

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        (runtime,) = require("onnxruntime", purpose=f"{path}: reading ONNX", extra="onnx")
        if not self.path.is_file():
            raise UserError(f"{path}: there is no such file")
        options = runtime.SessionOptions()
        options.log_severity_level = 4  # what is wrong is said once, in the error
        options.intra_op_num_threads = torch.get_num_threads()
        try:
            self._session = runtime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
        except Exception as error:  # the runtime raises all kinds
            raise UserError(f"{path} cannot be read as an ONNX network: {reason_of(error)}") from error
        inputs = self._session.get_inputs()
        if len(inputs) != 1 or inputs[0].type not in DTYPES or len(inputs[0].shape) != 4:
            found = ", ".join(f"{i.type} {_shape(i.shape)}" for i in inputs)
            raise UserError(f"{path} takes {found}; a network of one input of floats, B×C×H×W, is needed")
        self._input, self._shape = inputs[0], cast("list[int | str | None]", inputs[0].shape)
        self.shape = tuple(size if isinstance(size, int) else None for size in self._shape[1:])
        self.classes = None
        with contextlib.suppress(ValueError):  # the metadata may not even be text
            self.classes = _names(self._session.get_modelmeta().custom_metadata_map.get("classes"))

    def __call__(self, x: Tensor) -> Tensor:
        """Logits, B×classes, in float32."""
        size, *wanted = self._shape
        fits = x.ndim == 4 and all(not isinstance(w, int) or w == n for w, n in zip(wanted, x.shape[1:], strict=True))
        if not fits or not x.is_floating_point():
            kind = str(x.dtype).removeprefix("torch.")
            raise UserError(f"{self.path} takes floats of {_shape(['B', *wanted])}, not {kind} of {_shape(x.shape)}")
        if not isinstance(size, int):
            return self._run(x)
        parts = list[Tensor]()
        for start in range(0, max(len(x), 1), size):
            part = x[start : start + size]
            filled = torch.cat([part, part.new_zeros(size - len(part), *part.shape[1:])])
            parts.append(self._run(filled)[: len(part)])
        return torch.cat(parts)

    def _run(self, x: Tensor) -> Tensor:
        array = x.detach().cpu().to(DTYPES[self._input.type]).contiguous().numpy()
        try:
            logits = torch.from_numpy(self._session.run(None, {self._input.name: array})[0]).float()
        except Exception as error:  # the runtime raises all kinds
            raise UserError(f"{self.path} cannot be run on {_shape(x.shape)}: {reason_of(error)}") from error
        if logits.ndim != 2 or len(logits) != len(x):
            raise UserError(f"{self.path} gives {_shape(logits.shape)} for {len(x)} images; B×classes is needed")
        return logits


def _names(text: object) -> tuple[str, ...] | None:
    """Names from a file's metadata; what another program may have put there is no list of names."""
    with contextlib.suppress(ValueError, TypeError, RecursionError):
        found = json.loads(cast(str, text) or "null")
        if isinstance(found, list) and all(isinstance(name, str) for name in cast(list[Any], found)):
            return tuple(readable(name) for name in cast(list[str], found))
    return None


def _shape(sizes: Sequence[Any]) -> str:
    return "×".join(str(size) for size in sizes) or "a single number"
