"""A network and data of the user's own Python in a run: under which names its config knows them."""

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from torch import nn

from .._lib.registry import PYTHON, build, give
from ..data._given import read_data
from ..errors import UserError
from ..models.base import given_model, mark_of
from .config import Config, from_tables, load_config, to_tables


def with_given(
    config: Config | str | Path, settings: Sequence[str], model: nn.Module | str | None, data: Any, test: Any
) -> tuple[Config, tuple[object, ...]]:
    """The config with a network and data of the user's own Python, and these, by whose life their names live."""
    parts, given = dict[str, dict[str, Any]](), list[object]()
    if isinstance(data, str | Path):
        parts["data"] = {"name": "image_folder", "root": str(data)}
    elif data is not None:
        given.append(source := read_data(data, test))
        parts["data"] = {"name": give(f"{PYTHON}{type(data).__name__}-{source.mark}", source)}
    if model is not None:
        own = f"{PYTHON}{type(model).__name__}-{mark_of(model)}" if isinstance(model, nn.Module) else model
        parts["model"] = {"name": own}
    if not isinstance(config, Config):
        overrides = [
            f"{part}.{key}={json.dumps(value)}" for part, table in parts.items() for key, value in table.items()
        ]
        config = load_config(config, [*overrides, *settings])
    elif settings:
        raise UserError(f"settings={list(settings)} need a preset's name, not a Config; pass them to load_config")
    elif parts:
        config = from_tables(to_tables(config) | parts)
    if isinstance(model, nn.Module):
        own = {key: value for key, value in config.data.options.items() if key != "transform"}
        known = build("data", config.data.name, own)
        given.append(network := given_model(model, known.as_tested(known.train()).shape))
        give(config.model.name, network)
    return config, tuple(given)


def give_again(
    config: Config, model: nn.Module | None, shape: Callable[[], Sequence[int]], data: Any, test: Any
) -> tuple[object, ...]:
    """The network and the data of a run that were given in Python, under the names that its config has for them."""
    given = list[object]()
    if data is not None:
        given.append(source := read_data(data, test))
        name = _own_name("data", config.data.name)
        if not name.endswith(source.mark):
            raise UserError("data: images or labels differ from the run's; pass the same data and test as for training")
        give(name, source)
    if model is not None:
        given.append(network := given_model(model, shape()))
        give(_own_name("model", config.model.name), network)
    return tuple(given)


def _own_name(part: str, name: str) -> str:
    if not name.startswith(PYTHON):
        raise UserError(f"{part}: the run's is {name!r}, not one passed in Python; leave out {part}")
    return name
