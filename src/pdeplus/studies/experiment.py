"""An experiment as its file has it: which cells, at which scale, tested on what, ending in which outcome."""

import itertools
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from importlib import resources
from pathlib import Path
from typing import Any, Literal, cast, final, get_args

from .._lib.registry import unknown
from ..errors import UserError, check_choice
from ..training.config import presets

ScaleName = Literal["full", "small", "smoke"]
"""The paper's own; the study's, minutes a run on a CPU core; seconds."""
Tests = Literal["corruptions", "domains", "augmented", "none"]
"""The fifteen corruptions; the data set's other domains; test images under augmentations; nothing is tested."""
Outcome = Literal[
    "scores",
    "comparison",
    "domains",
    "per_corruption",
    "distributions",
    "heat",
    "severity",
    "coverage",
    "scale",
    "losses",
    "surfaces",
    "parts",
]
"""What is made of the cells: a module of `outcomes` each."""


@final
@dataclass(frozen=True, kw_only=True)
class Row:
    """One configuration of an experiment, before scale, place and seed."""

    name: str
    """What its cells' folders are called."""
    label: str = ""
    """What tables call it; empty for the method's own label."""
    preset: str = ""
    """In place of the experiment's."""
    recipe: str = ""
    """A method, or a variant of one, as `named_methods` has it; empty for the preset's method."""
    set: tuple[str, ...] = ()
    """Settings, as on the command line."""
    paper: str = ""
    """The paper's name of the row; empty for the label."""
    about: str = ""
    """What differs, in words, for the tables that say it."""
    samples: tuple[int, ...] = ()
    """Noisy passes E to test with, one after the other; empty for what the method does."""
    once: bool = False
    """With one seed, however many the others have."""
    stretch: float = 1.0
    """Its epochs, as a multiple of the scale's."""


@final
@dataclass(frozen=True, kw_only=True)
class Scale:
    """How large the cells are."""

    name: ScaleName
    seeds: int = 1
    limit: int = 0
    """Images of each test set; 0 for all."""
    set: tuple[str, ...] = ()
    """Settings, over the row's."""
    vary: Mapping[str, tuple[str, ...]] | None = None
    """In place of the experiment's."""
    options: Mapping[str, Any] = field(default_factory=dict[str, Any])
    """Of the outcome, over the experiment's."""


@final
@dataclass(frozen=True, kw_only=True)
class Experiment:
    """A table or figure of the paper, or one of ours."""

    name: str
    title: str
    outcome: Outcome
    expect: str
    """What to look for in the outcome, and what differs from the paper."""
    preset: str = "pde_plus"
    tests: Tests = "corruptions"
    set: tuple[str, ...] = ()
    vary: Mapping[str, tuple[str, ...]] = field(default_factory=dict[str, tuple[str, ...]])
    """Settings whose values are crossed with each other and with the rows."""
    options: Mapping[str, Any] = field(default_factory=dict[str, Any])
    """Of the outcome."""
    rows: tuple[Row, ...] = ()
    parts: tuple[str, ...] = ()
    """Experiments that this one is made of; it has no rows of its own."""
    scales: Mapping[ScaleName, Scale]

    def places(self, scale: Scale) -> list[dict[str, str]]:
        """Every combination of the varied settings' values; one empty one where nothing varies."""
        vary = self.vary if scale.vary is None else scale.vary
        return [dict(zip(vary, values, strict=True)) for values in itertools.product(*vary.values())]


def experiments() -> dict[str, str]:
    """The packaged experiments and what each is (the first comment of its file)."""
    texts = {path.name.removesuffix(".toml"): path.read_text("utf-8") for path in _folder().iterdir()}
    return {name: text.partition("\n")[0].lstrip("# ") for name, text in sorted(texts.items()) if name[0] != "_"}


def load_experiment(name: str | Path) -> Experiment:
    """Read an experiment: one of `experiments()`, or a .toml file of one's own; every key is checked."""
    path = Path(name)
    if path.suffix == ".toml":
        if not path.is_file():
            raise UserError(f"experiment {name}: there is no such file")
        text = path.read_text("utf-8")
    elif str(name) in experiments():
        text = (_folder() / f"{name}.toml").read_text("utf-8")
    elif str(name) in presets():
        raise UserError(f"{name} is a preset, of one run: pdeplus train {name}")
    else:
        raise unknown(f"experiment {str(name)!r}", str(name), list(experiments()))
    try:
        return _experiment(path.stem, tomllib.loads(text))
    except tomllib.TOMLDecodeError as error:
        raise UserError(f"experiment {name}: {error}") from error


def _folder() -> Any:
    return resources.files("pdeplus.studies") / "experiments"


def _experiment(name: str, tables: dict[str, Any]) -> Experiment:
    common = tomllib.loads((_folder() / "_scales.toml").read_text("utf-8"))
    scales = {scale: _scale(scale, common[scale], tables.pop(scale, {})) for scale in get_args(ScaleName)}
    rows = tuple(_row(name, row) for row in tables.pop("rows", []))
    values: dict[str, Any] = _checked(f"experiment {name}", Experiment, tables) | {
        "scales": scales,
        "rows": rows,
        "name": name,
    }
    for key, kind in (("tests", Tests), ("outcome", Outcome)):
        if key in values:
            check_choice(f"experiment {name}: {key}", values[key], kind)
    lacking = [key for key in ("title", "outcome", "expect") if key not in values]
    if lacking:
        raise UserError(f"experiment {name} lacks {lacking[0]}")
    if bool(values.get("parts")) != (values["outcome"] == "parts") or (values.get("parts") and rows):
        raise UserError(f"experiment {name}: parts need the outcome 'parts' and no rows, and that outcome needs parts")
    return Experiment(**values)


def _row(experiment: str, row: object) -> Row:
    tables = {"recipe": row} if isinstance(row, str) else cast(dict[str, Any], row)
    values = _checked(f"experiment {experiment}, a row", Row, tables)
    named = values.get("name") or values.get("recipe") or values.get("preset")
    if not named:
        raise UserError(f"experiment {experiment}: a row needs a name, a recipe or a preset")
    arguments: dict[str, Any] = values | {"name": named}
    return Row(**arguments)


def _scale(name: ScaleName, common: Mapping[str, Any], own: Mapping[str, Any]) -> Scale:
    """An experiment's scale over the common one: settings come behind the common ones, the rest replaces."""
    together = dict(common) | dict(own) | {"set": [*common.get("set", ()), *own.get("set", ())]}
    values: dict[str, Any] = _checked(f"scale {name}", Scale, together) | {"name": name}
    return Scale(**values)


def _checked(where: str, kind: type[Any], tables: Mapping[str, Any]) -> dict[str, Any]:
    """The tables as arguments: unknown keys are refused, lists become tuples."""
    known = [f.name for f in fields(kind)]
    for key in tables:
        if key not in known:
            raise unknown(f"{where}: the key {key!r}", key, known)
    values: dict[str, Any] = {key: tuple(cast(list[Any], v)) if isinstance(v, list) else v for key, v in tables.items()}
    if "vary" in values:
        vary = cast(dict[str, list[Any]], values["vary"])
        values["vary"] = {key: tuple(map(str, given)) for key, given in vary.items()}
    return values
