"""timm's networks: `timm:resnet50.a1_in1k`, with the input that its weights were made for."""

from collections.abc import Mapping
from typing import Any, cast

from torch import nn

from ..errors import UserError
from ._libraries import Build, Facts, fetching, library, not_fetched, unknown_name, with_facts


def named(name: str) -> Build:
    """The builder of timm's network of this name; after a dot, which of its weights."""
    uri = f"timm:{name}"

    def build(
        *,
        classes: int,
        channels: int,
        facts: Facts,
        pretrained: bool = True,
        img_size: int = 0,
        drop_rate: float = 0.0,
        drop_path_rate: float = 0.0,
    ) -> nn.Module:
        timm, config = library("timm", uri), _config(name)
        options: dict[str, Any] = {"img_size": img_size} if img_size else {}
        options |= {"drop_path_rate": drop_path_rate} if drop_path_rate else {}
        if pretrained and not (config.hf_hub_id or config.url or config.file):
            others = timm.list_pretrained(f"{name.partition('.')[0]}*")
            better = f"with weights there are {', '.join(others[:5])}; else " if others else ""
            raise UserError(f"{uri} has no pretrained weights; {better}add ?pretrained=false")
        try:
            with fetching():
                return timm.create_model(
                    name, pretrained=pretrained, num_classes=classes, in_chans=channels, drop_rate=drop_rate, **options
                )
        except TypeError as error:
            raise UserError(f"{uri} does not take {', '.join(options) or 'these options'}: {error}") from error
        except (OSError, RuntimeError) as error:
            if not pretrained:
                raise
            where = f"huggingface.co/{config.hf_hub_id}" if config.hf_hub_id else str(config.url)
            way_out = f"fetch model.safetensors from {where} and name {uri}?weights=FILE, or {uri}?pretrained=false"
            raise not_fetched(uri, error, way_out) from error

    return with_facts(build, lambda options: _facts(name, options), lambda: class_names(uri, _config(name).to_dict()))


def _facts(name: str, options: Mapping[str, Any]) -> Facts:
    config = _config(name)
    return Facts(
        size=int(options.get("img_size") or config.input_size[-1]),
        mean=tuple(config.mean),
        std=tuple(config.std),
        crop=float(config.crop_pct or 1.0),
        interpolation="bicubic" if config.interpolation == "bicubic" else "bilinear",
    )


def class_names(uri: str, config: Mapping[str, Any]) -> tuple[str, ...]:
    """What the weights of a config tell apart: ImageNet's words and WordNet ids, names of the config's own, numbers."""
    data = library("timm.data", uri)
    subset = data.infer_imagenet_subset(config)
    names = config.get("label_names") or ()
    described = cast(dict[str, str], config.get("label_descriptions") or {})
    if not names and subset:
        info = data.ImageNetInfo(subset)
        names = info.label_names()
        described = dict(zip(names, info.label_descriptions(), strict=True))
    if not names:
        return tuple(map(str, range(int(config["num_classes"]))))
    return tuple(f"{described[name]}, {name}" if name in described else str(name) for name in names)


def _config(name: str) -> Any:
    """What timm says of the weights of this name; an unknown name is answered with the nearest."""
    timm = library("timm", f"timm:{name}")
    if timm.is_model(name):
        try:
            config = timm.get_pretrained_cfg(name)
        except (RuntimeError, ValueError, KeyError):
            config = None
        if config is not None:
            return config
    known = [*timm.list_models(), *timm.list_pretrained()]
    stem = name.partition(".")[0]
    raise unknown_name("timm", name, [n for n in known if n.startswith(f"{stem}.")] or known)
