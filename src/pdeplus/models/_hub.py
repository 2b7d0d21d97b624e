"""Networks of the Hugging Face hub, `hf:microsoft/resnet-18`, or of a folder or file as it has them, `hf:FOLDER`.

A folder has config.json, of transformers or of timm, and weights; of transformers preprocessor_config.json too.
"""

import importlib
import json
import textwrap
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, cast

from torch import nn

from ..errors import UserError
from ._libraries import Build, Facts, Interpolation, fetching, library, load_start, not_fetched, with_facts
from ._timm import class_names

CONFIG, PROCESSOR = "config.json", "preprocessor_config.json"
BICUBIC = 3
"""Pillow's number of that resampling, as an image processor's config has it."""
FETCHING = {"cache_dir", "checkpoint_path", "pretrained", "pretrained_cfg", "pretrained_cfg_overlay"}
"""Arguments of timm's that read other files, which a stranger's config may not name."""


def named(name: str) -> Build:
    """The builder of the network in a repository of the hub or, where there is such a folder, in that folder."""
    uri, understood = f"hf:{name}", _understood(name)

    @understood
    def build(*, classes: int, channels: int, facts: Facts, pretrained: bool = True) -> nn.Module:
        config = dict(facts.architecture)
        if "architecture" in config:
            return _of_timm(name, config, classes, channels, pretrained)
        transformers = library("transformers", uri)
        given = {"num_labels": classes, "num_channels": channels, "id2label": None, "label2id": None}
        kind = transformers.AutoModelForImageClassification
        try:
            if pretrained:
                network = kind.from_pretrained(
                    _place(name), num_labels=classes, ignore_mismatched_sizes=True, trust_remote_code=False
                )
            else:
                network = kind.from_config(
                    transformers.AutoConfig.for_model(**{**config, **given}), trust_remote_code=False
                )
        except (OSError, ValueError) as error:
            raise not_fetched(uri, error, _way_out(name)) from error
        network.register_forward_hook(_logits)
        return network

    return with_facts(build, understood(lambda options: _facts(name, options)), understood(lambda: _own_classes(name)))


@contextmanager
def _understood(name: str) -> Generator[None]:
    """Within it, whatever a library makes of a config that holds something else is one line."""
    try:
        yield
    except UserError:
        raise
    except Exception as error:  # a stranger's config may hold anything
        reason = textwrap.shorten(f"{type(error).__name__}: {error}", 160, placeholder=" …")
        raise UserError(f"hf:{name}: no network can be made of its {CONFIG} and {PROCESSOR}: {reason}") from error


def _own_classes(name: str) -> tuple[str, ...]:
    """As the config names them: transformers' `id2label`, or timm's classes."""
    config = _read(_file(name, CONFIG))
    if "architecture" in config:
        return class_names(f"hf:{name}", {"num_classes": 1000, **config["pretrained_cfg"], **config})
    labels = cast(dict[str, str], config.get("id2label") or {"0": "0", "1": "1"})  # two are transformers' default
    return tuple(labels[key] for key in sorted(labels, key=int))


def _of_timm(name: str, config: Mapping[str, Any], classes: int, channels: int, pretrained: bool) -> nn.Module:
    timm = library("timm", f"hf:{name}")
    options = cast(dict[str, Any], config.get("model_args") or {})
    if not timm.is_model(config["architecture"]) or FETCHING & options.keys():
        raise UserError(f"hf:{name}: its {CONFIG} names no network of timm's alone: {config!r:.200}")
    network = timm.create_model(config["architecture"], num_classes=classes, in_chans=channels, **options)
    if pretrained:
        load_start(network, _file(name, "model.safetensors"))
    return network


def _logits(network: nn.Module, args: Any, output: Any) -> Any:
    """Let a network of transformers return its logits alone."""
    return getattr(output, "logits", output)


def _facts(name: str, options: Mapping[str, Any]) -> Facts:
    config = _read(_file(name, CONFIG))
    if "architecture" in config:
        return _facts_of_timm(config)
    if "model_type" not in config:
        raise UserError(f"hf:{name}: its {CONFIG} is neither of transformers nor of timm; it says no model_type")
    shown = _read(_file(name, PROCESSOR))
    size, crop = _size_and_crop(shown)
    interpolation: Interpolation = "bicubic" if shown.get("resample", 2) == BICUBIC else "bilinear"
    mean, std = (0.0,) * 3, (1.0,) * 3
    if shown.get("do_normalize", True):
        mean, std = (tuple(map(float, shown[key])) for key in ("image_mean", "image_std"))
    return Facts(size=size, mean=mean, std=std, crop=crop, interpolation=interpolation, architecture=config)


def _facts_of_timm(config: Mapping[str, Any]) -> Facts:
    shown = cast(dict[str, Any], config["pretrained_cfg"])
    return Facts(
        size=int(shown["input_size"][-1]),
        mean=tuple(map(float, shown["mean"])),
        std=tuple(map(float, shown["std"])),
        crop=float(shown.get("crop_pct") or 1.0),
        interpolation="bicubic" if shown.get("interpolation") == "bicubic" else "bilinear",
        architecture={key: config[key] for key in ("architecture", "model_args") if key in config},
    )


def _size_and_crop(shown: Mapping[str, Any]) -> tuple[int, float]:
    """The side of the images and the share of the shorter side that they show, from an image processor's config."""

    def side(value: Any) -> int:
        table = cast(dict[str, int], value) if isinstance(value, dict) else {"height": int(value)}
        return int(table.get("shortest_edge") or table["height"])

    resized = side(shown["size"])
    if shown.get("do_center_crop") and shown.get("crop_size"):
        size = side(shown["crop_size"])
        return size, min(size / resized, 1.0)
    return resized, float(shown.get("crop_pct") or 1.0)


def _place(name: str) -> str:
    """A folder's path, or the repository's name."""
    path = Path(name).expanduser()
    return str(path) if path.is_dir() else name


def _file(name: str, file: str) -> Path:
    """A file of a folder, or of a repository: from the hub's own cache, or fetched into it."""
    folder = Path(name).expanduser()
    if folder.is_dir():
        if not (folder / file).is_file():
            raise UserError(f"{name} has no {file}; a folder in the Hugging Face hub's layout is needed")
        return folder / file
    hub = library("huggingface_hub", f"hf:{name}")
    errors = importlib.import_module("huggingface_hub.errors")
    try:
        with fetching():
            return Path(hub.hf_hub_download(name, file))
    except errors.RemoteEntryNotFoundError as error:
        raise UserError(f"hf:{name} has no {file}, which says what the network is and takes") from error
    except (OSError, ValueError) as error:  # no network, no such repository, a name that cannot be one
        raise not_fetched(f"hf:{name}", error, _way_out(name)) from error


def _way_out(name: str) -> str:
    return f"fetch it where there is a network: hf download {name}, or give a folder with its files: hf:FOLDER"


def _read(path: Path) -> dict[str, Any]:
    try:
        content = json.loads(path.read_bytes())
        if isinstance(content, dict):
            return cast(dict[str, Any], content)
    except ValueError:
        pass
    raise UserError(f"{path} is damaged: it is not a JSON table")
