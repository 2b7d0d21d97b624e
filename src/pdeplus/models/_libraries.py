"""Networks by URI: what a URI means, what the library behind it says of a network, start weights and new heads.

`timm:resnet50.a1_in1k`, `hf:microsoft/resnet-18`, `torchvision:resnet18`: one file for each scheme has `named(name)`,
which gives the network's `build`; that function carries `facts`, which need no weights.
"""

import importlib
import logging
import textwrap
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from difflib import get_close_matches
from pathlib import Path
from typing import Any, Literal, Protocol, cast, final

import torch
from torch import Tensor, nn

from .._lib.files import parse_value, read_weights
from .._lib.registry import unknown
from ..core.network import evaluating, logits_of
from ..errors import UserError, own_place, reason_of

SCHEMES = {"hf": "_hub", "timm": "_timm", "torchvision": "_torchvision"}
"""The file of each scheme."""
TORCHVISION = (
    "torchvision's operators do not fit this torch: install both from one index, such as "
    "pip install torch torchvision --index-url https://download.pytorch.org/whl/cpu"
)
Interpolation = Literal["bilinear", "bicubic"]


@final
@dataclass(frozen=True, kw_only=True)
class Facts:
    """What the library that a network comes from says of it; a run folder keeps it."""

    size: int
    """Side of the images in pixels."""
    mean: tuple[float, ...]
    std: tuple[float, ...]
    crop: float = 1.0
    """Share of a picture's shorter side that the network's images showed when it was tested."""
    interpolation: Interpolation = "bilinear"
    """How pictures were resized."""
    architecture: Mapping[str, Any] = field(default_factory=dict[str, Any])
    """What else is needed to build the network anew without its weights."""

    def in_channels(self, channels: int) -> tuple[tuple[float, ...], tuple[float, ...]]:
        """Mean and deviation of so many channels: their own, or their average for each where the number is another."""
        if len(self.mean) == channels:
            return self.mean, self.std
        return (sum(self.mean) / len(self.mean),) * channels, (sum(self.std) / len(self.std),) * channels

    @staticmethod
    def read(content: Mapping[str, Any]) -> "Facts":
        """From plain values, as `asdict` gives them and JSON keeps them."""
        values = dict(content)
        for name in ("mean", "std"):
            values[name] = tuple(map(float, content[name]))
        return Facts(**values)

    def __str__(self) -> str:
        mean, std = ([round(value, 4) for value in values] for values in (self.mean, self.std))
        return f"images of {self.size} pixels, normalised by mean {mean} and deviation {std}"


class Build(Protocol):
    """Makes a network; `facts` of the same options come first."""

    facts: Callable[[Mapping[str, Any]], Facts]
    own_classes: Callable[[], tuple[str, ...]]
    """What its published weights tell apart, all names of a class in one text; numbers where no names are known."""

    def __call__(self, *, classes: int, channels: int, facts: Facts, pretrained: bool = True) -> nn.Module: ...


def with_facts(
    build: Any, facts: Callable[[Mapping[str, Any]], Facts], own_classes: Callable[[], tuple[str, ...]]
) -> Build:
    """The function, carrying what gives the facts of some of its options and the classes of its weights."""
    build.facts, build.own_classes = facts, own_classes
    return cast(Build, build)


def parse_uri(text: str) -> tuple[str, dict[str, Any]]:
    """A name and the options behind its question mark: "timm:resnet18?pretrained=false" is two things."""
    name, _, query = text.partition("?")
    options = dict[str, Any]()
    for setting in query.split("&") if query else ():
        key, equals, value = setting.partition("=")
        if not equals or not key:
            raise UserError(f"{text!r}: {setting!r} is not of the form key=value, e.g. ?pretrained=false")
        options[key] = parse_value(value, repr(text[:80]))
    return name, options


def find_uri(name: str) -> Build:
    """The builder of a network named by a URI or a file. Nothing is fetched, and no library imported, yet."""
    if ":" not in name:
        name = f"hf:{_folder_of(name)}"
    scheme, _, rest = name.partition(":")
    if scheme not in SCHEMES:
        raise unknown(f"models: {name!r}: the scheme {scheme!r}", scheme, list(SCHEMES))
    if not rest:
        raise UserError(f"models: {name!r} names no network; write {scheme}:NAME")
    return cast(Build, importlib.import_module(f".{SCHEMES[scheme]}", __package__).named(rest))


def _folder_of(name: str) -> Path:
    """The folder that tells what network the weights in a file are of, as the Hugging Face hub has it."""
    path = Path(name).expanduser()
    if path.suffix in (".onnx", ".pt2"):
        raise UserError(f"{name} holds a finished network, which can be evaluated but not trained or changed")
    if not path.exists():
        raise UserError(f"models: {name!r}: there is no such file or folder")
    folder = path if path.is_dir() else path.parent
    if not (folder / "config.json").is_file():
        raise UserError(
            f"{name} holds weights, but no config.json beside it says of which network; use timm:NAME?weights={name}"
        )
    return folder


def library(name: str, uri: str) -> Any:
    """The library behind a URI, or one line that says what to install."""
    try:
        return importlib.import_module(name)
    except ImportError as error:
        missing = (error.name or name).partition(".")[0]
        raise UserError(f"{uri} needs {missing}: pip install 'pdeplus[peers]'") from error
    except RuntimeError as error:
        if "torchvision::" not in str(error):
            raise
        raise UserError(f"{uri}: {TORCHVISION}") from error


def unknown_name(kind: str, name: str, known: Sequence[str]) -> UserError:
    """The answer to a name that a library does not know: the nearest of its many."""
    near = get_close_matches(name, known, 8)
    return UserError(f"{kind} has no network {name!r}; similar: {', '.join(near or known[:8])}")


@contextmanager
def fetching() -> Generator[None]:
    """Within it the hub's client does not tell of each try to reach the hub: where all fail, one line does."""
    logger = logging.getLogger("huggingface_hub")
    level = logger.level
    logger.setLevel(logging.ERROR)
    try:
        yield
    finally:
        logger.setLevel(level)


def not_fetched(uri: str, error: Exception, way_out: str) -> UserError:
    """The one line where weights or a config cannot be had: what to fetch, and where to put it."""
    reason = textwrap.shorten(str(error).partition("\n")[0], 120, placeholder=" …") or type(error).__name__
    return UserError(f"{uri} cannot be fetched ({type(error).__name__}: {reason}); {way_out}")


def last_linear(network: nn.Module) -> tuple[str, nn.Linear] | None:
    """The last linear layer and its name."""
    modules: dict[str, nn.Module] = dict(network.named_modules())  # type: ignore[reportUnknownArgumentType]
    return next(((name, m) for name, m in reversed(modules.items()) if isinstance(m, nn.Linear)), None)


def replace_head(network: nn.Module, classes: int, uri: str) -> nn.Module:
    """Put a new last linear layer for so many classes in place of the network's, in place."""
    found = last_linear(network)
    if found is None or not found[0]:
        raise UserError(f"{uri} has no last linear layer to replace for {classes} classes; use another network")
    name, old = found
    parent, _, own = name.rpartition(".")
    new = nn.Linear(old.in_features, classes, bias="bias" in dict(old.named_parameters()))
    setattr(network.get_submodule(parent), own, new)
    return network


def check_logits(network: nn.Module, name: str, shape: tuple[int, ...], classes: int) -> None:
    """Refuse a network that does not give logits of so many classes for images of this shape, C×H×W."""
    try:
        with torch.random.fork_rng(), torch.no_grad(), evaluating(network):
            logits = logits_of(network(torch.zeros(2, *shape)))
    except UserError:
        raise
    except Exception as error:  # a library's, or a user's own, network may raise anything
        place, size = own_place(error), "×".join(map(str, shape))
        reason = reason_of(error, 160) + f" ({place})" * bool(place)
        raise UserError(f"{name} cannot take images of {size}: {reason}; set data.size to the network's own") from error
    if logits.shape != (2, classes):
        given = "×".join(map(str, logits.shape))
        raise UserError(f"{name} gives {given} for 2 images; logits of {classes} classes, 2×{classes}, are needed")


def load_start(network: nn.Module, path: Path) -> list[str]:
    """Put the weights in a file into a network wherever name and shape agree, but for a head of other classes.

    Returns the names of what the file does not give. One that gives no more than half of the network is refused.
    """
    weights = read_state(path)
    own = network.state_dict()
    fits = {name: w for name, w in weights.items() if name in own and own[name].shape == w.shape}
    left = [name for name in own if name not in fits and not name.endswith("num_batches_tracked")]
    numbers = {name: tensor.numel() for name, tensor in own.items()}
    if sum(numbers[name] for name in fits) <= sum(numbers.values()) / 2:
        some = ", ".join(left[:3])
        raise UserError(f"model.weights={str(path)!r} holds weights of another network: it lacks {some} …")
    network.load_state_dict(fits, strict=False)
    return left


def read_state(path: Path) -> dict[str, Tensor]:
    """The named tensors in a safetensors file or in a checkpoint that torch saved."""
    if not path.is_file():
        raise UserError(f"model.weights={str(path)!r}: there is no such file")
    if path.suffix == ".safetensors":
        return read_weights(path)
    try:
        content: Any = torch.load(path, map_location="cpu", weights_only=True)
    except Exception as error:  # of a damaged file, or of one that holds code
        raise UserError(f"model.weights={str(path)!r} cannot be read as weights: {reason_of(error, 120)}") from error
    for key in ("state_dict", "model", "model_state_dict"):
        content = cast(dict[Any, Any], content).get(key, content) if isinstance(content, dict) else {}
    named = cast(dict[Any, Any], content if isinstance(content, dict) else {})
    return {str(name).removeprefix("module."): value for name, value in named.items() if isinstance(value, Tensor)}
