"""What `pdeplus list` prints: each member of a family with its options and their defaults."""

import inspect

from .._lib import registry
from ..corruptions._frost import describe_frost
from ..corruptions.suite import SUITE
from ..studies.variants import VARIANTS, named_methods, settings
from ..training.config import presets


def describe_family(family: str) -> str:
    """Name, first line of documentation and options of every member."""
    blocks = list[str]()
    for name in registry.names(family):
        target = registry.find(family, name)
        module = inspect.getmodule(target)
        about = (inspect.getdoc(module) or "").partition("\n")[0]
        options = registry.resolved(family, name, {})
        shown = [f"    {key} = {_as_toml(value)}" for key, value in options.items()]
        blocks.append("\n".join([f"{name}: {about}", *shown]))
    return "\n".join(blocks + _recipes() if family == "methods" else blocks)


def _recipes() -> list[str]:
    """Variants with a row of their own, as settings."""
    lines = ["", "with other options they are rows of their own:"]
    for name in VARIANTS:
        part = named_methods()[name]
        label = registry.build("methods", part.name, part.options).label
        lines.append(f"    {label:<24} {' '.join(settings(name))}")
    return lines


def describe_corruptions() -> str:
    """Name, family and purpose of every corruption, and which pictures of ice there are."""
    lines = list[str]()
    for name, made in SUITE.items():
        about = (inspect.getdoc(made.function) or "").partition("\n")[0]
        lines.append(f"{name:<18} {made.family:<8} {'extra' if made.extra else '':<6} {about}")
    return "\n".join([*lines, f"frost: {describe_frost()}"])


def describe_experiments() -> str:
    """Name and purpose of every experiment and of every preset."""
    from ..studies.experiment import experiments

    blocks = {"pdeplus reproduce EXPERIMENT": experiments(), "pdeplus train PRESET": presets()}
    width = max(len(name) for block in blocks.values() for name in block)
    lines = list[str]()
    for command, block in blocks.items():
        lines += [f"{command}:", *(f"  {name:<{width}}  {about}" for name, about in block.items())]
    return "\n".join(lines)


def _as_toml(value: object) -> str:
    if isinstance(value, dict):
        return "{ " + ", ".join(f"{k} = {_as_toml(v)}" for k, v in value.items()) + " }"  # type: ignore[reportUnknownVariableType]
    return {True: "true", False: "false"}.get(value, repr(value)) if isinstance(value, bool) else repr(value)
