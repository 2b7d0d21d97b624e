"""Where ADD blocks go by default: the last four stages of a network, or after each quarter of its equal blocks.

A network of ours names its stages; timm's say theirs in `feature_info`; of any other one pass of an example tells.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, cast

from torch import Tensor, nn

from ..errors import UserError
from .network import outputs_of

STAGES = 4
"""ADD blocks of a network that does not name its stages itself, as many as the paper's ResNets have."""
TRUNK = 0.9
"""A module that holds this share of its siblings' parameters is no stage: its stages are within it."""


def stages_of(model: nn.Module, example: Tensor | Mapping[str, Any] | None = None) -> list[str]:
    """The names of the modules after which a network's features are at a stage's end; refuses one that has none.

    Of a network that does not say, `example`, an input (or a mapping of keyword inputs), tells.
    """
    named = getattr(model, "stages", ())
    if isinstance(named, tuple) and named:
        return list(cast(tuple[str, ...], named))
    found = _by_feature_info(model) or (_by_example(model, example) if example is not None else [])
    if not found:
        raise UserError(
            f"{type(model).__name__} names no stages; give the module names, e.g. method.placement=['layer1','layer2'] "
            "or add_diffusion(after=['layer1', 'layer2'])"
        )
    return found


def blocks_of(model: nn.Module) -> list[str]:
    """The names of all blocks of all stages. Where stages are blocks of one row, all blocks of that row."""
    stages = stages_of(model)
    rows = [_row(stage, model.get_submodule(stage)) for stage in stages]
    parents = {stage.rpartition(".")[0] for stage in stages}
    if any(rows) or len(parents) != 1 or parents == {""}:
        return [name for stage, row in zip(stages, rows, strict=True) for name in row or [stage]]
    (parent,) = parents
    return [f"{parent}.{name}" for name, _ in model.get_submodule(parent).named_children()]


def _row(name: str, stage: nn.Module) -> list[str]:
    """The blocks in a row of which a stage consists, or that it holds under a usual name; none for a single block."""
    if isinstance(stage, nn.Sequential):
        return [f"{name}.{child}" for child, _ in stage.named_children()]
    rows = ((kind, getattr(stage, kind, None)) for kind in ("blocks", "layers"))
    found = next(((kind, m) for kind, m in rows if isinstance(m, nn.Sequential | nn.ModuleList)), None)
    return [f"{name}.{found[0]}.{child}" for child, _ in found[1].named_children()] if found else []


def _by_feature_info(model: nn.Module) -> list[str]:
    """timm's list of the places where features can be taken, with how far each is reduced against the image."""
    listed = getattr(model, "feature_info", None)
    entries = cast(list[Mapping[str, Any]], listed if isinstance(listed, list) else [])
    entries = [entry for entry in entries if entry.get("module") in dict(model.named_modules())]  # type: ignore[reportUnknownArgumentType]
    names, reductions = [str(entry["module"]) for entry in entries], {entry.get("reduction") for entry in entries}
    return quarters(names) if len(reductions) == 1 else names[-STAGES:]


def quarters(names: Sequence[str]) -> list[str]:
    """The ends of four equal parts of a row, or all of a shorter one."""
    n = len(names)
    return list(names) if n <= STAGES else [names[(i + 1) * n // STAGES - 1] for i in range(STAGES)]


def _by_example(model: nn.Module, example: Tensor | Mapping[str, Any]) -> list[str]:
    """The last module of each resolution along the network's trunk, or quarters where all have the same."""
    modules: dict[str, nn.Module] = dict(model.named_modules())  # type: ignore[reportUnknownArgumentType]
    outputs = {
        name: output if isinstance(output, Tensor) and output.ndim in (3, 4) else None
        for name, output in outputs_of(model, modules, example).items()
        if not isinstance(output, Mapping)  # of Hugging Face's backbones: what they do is in the modules within them
    }
    trunk = _trunk(model, "", outputs)
    sizes = {name: positions(outputs[name]) for name in trunk}
    if len(set(sizes.values())) > 1:
        return list({size: name for name, size in sizes.items() if size > 1}.values())[-STAGES:]
    kinds = Counter(type(model.get_submodule(name)) for name in trunk)
    usual = max(kinds, key=kinds.__getitem__, default=None)
    return quarters([name for name in trunk if type(model.get_submodule(name)) is usual])


def _trunk(model: nn.Module, prefix: str, outputs: Mapping[str, Tensor | None]) -> list[str]:
    """The modules with filters or matrices, in the order of their calls, whose outputs are the network's features."""
    row = list[str]()
    for child, module in model.named_children():
        name = f"{prefix}{child}"
        if not any(p.ndim > 1 for p in module.parameters()):
            continue
        if name not in outputs:
            row += _trunk(module, f"{name}.", outputs)
        elif outputs[name] is not None:
            row.append(name)
    modules = {name: model.get_submodule(name.removeprefix(prefix)) for name in row}
    weights = {name: sum(p.numel() for p in module.parameters()) for name, module in modules.items()}
    heaviest = max(row, key=weights.__getitem__, default="")
    if row and weights[heaviest] >= TRUNK * sum(weights.values()):
        return _trunk(modules[heaviest], f"{heaviest}.", outputs) or [heaviest]
    order = {name: place for place, name in enumerate(outputs)}
    return sorted(row, key=lambda name: order[name])


def positions(features: Tensor | None) -> int:
    """How many places an image's features have: of B×C×H×W or B×H×W×C height times width, of B×N×C N."""
    assert features is not None
    if features.ndim == 3:
        return features.shape[1]
    height, width = features.shape[1:3] if channels_last(features.shape) else features.shape[2:]
    return int(height * width)


def channels_last(shape: Sequence[int]) -> bool:
    """Whether features of a square image are B×H×W×C: the first two sides are equal, the last is another."""
    return len(shape) == 4 and shape[1] == shape[2] != shape[3]
