"""List methods, models, data sets and other choices, with their options.

pdeplus list methods
"""

import argparse
import inspect

from .._lib import registry


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("family", choices=(*registry.FAMILIES, *LISTS))


def run(options: argparse.Namespace) -> None:
    """Print a family."""
    print(LISTS.get(options.family, describe_family)(options.family))


def describe_family(family: str) -> str:
    """Name, first line of documentation and options of every member."""
    blocks = list[str]()
    for name in registry.names(family):
        module = inspect.getmodule(registry.find(family, name))
        about = (inspect.getdoc(module) or "").partition("\n")[0]
        options = registry.resolved(family, name, {})
        shown = [f"    {key} = {_as_toml(value)}" for key, value in options.items()]
        blocks.append("\n".join([f"{name}: {about}", *shown]))
    if family == "methods":
        from ..methods import VARIANTS
        from ..studies.experiment import settings

        blocks += ["", "short names for a method with certain options:"]
        blocks += [f"    {name:<26} {' '.join(settings(name))}" for name in VARIANTS]
    return "\n".join(blocks)


def describe_corruptions(family: str) -> str:
    """Name, family and purpose of every corruption, and which pictures of ice there are."""
    from ..corruptions.suite import KNOWN
    from ..corruptions.weather import describe_frost

    lines, width = list[str](), max(map(len, KNOWN))
    for name, corruption in KNOWN.items():
        about = (inspect.getdoc(corruption.function) or "").partition("\n")[0]
        lines.append(f"{name:<{width}} {corruption.family:<8} {'validation' if corruption.extra else '':<10} {about}")
    return "\n".join([*lines, f"frost: {describe_frost()}"])


def describe_files(family: str) -> str:
    """Name and purpose of every experiment or preset."""
    from ..studies.experiment import experiments
    from ..training.config import presets

    purposes, more = presets(), "train one: pdeplus train PRESET"
    if family == "experiments":
        purposes = experiments()
        more = "run one: pdeplus reproduce EXPERIMENT; settings of single runs: pdeplus list presets"
    width = max(map(len, purposes))
    return "\n".join([*(f"{name:<{width}}  {purpose}" for name, purpose in purposes.items()), more])


def _as_toml(value: object) -> str:
    if isinstance(value, dict):
        return "{ " + ", ".join(f"{k} = {_as_toml(v)}" for k, v in value.items()) + " }"  # type: ignore[reportUnknownVariableType]
    return str(value).lower() if isinstance(value, bool) else repr(value)


LISTS = {"corruptions": describe_corruptions, "experiments": describe_files, "presets": describe_files}
"""The families that are not the registry's."""
