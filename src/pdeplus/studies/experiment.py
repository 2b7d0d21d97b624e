"""An experiment as its file has it: which rows, at which size, tested on what, ending in which outcome.

`named_methods` are what its rows may name: methods, and variants of them.
"""

import itertools
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from importlib import resources
from pathlib import Path
from typing import Any, Literal, cast, final, get_args

from .._lib.files import read_toml
from .._lib.registry import names, unknown
from ..errors import UserError, check_choice, check_least
from ..methods import VARIANTS
from ..training.config import Part, find_toml, preset_settings, presets, purposes
from ..training.run_folder import Selection

EXPERIMENTS = resources.files("pdeplus.studies") / "experiments"
SizeName = Literal["full", "fast", "small", "smoke", "own"]
"""The paper's own; the fast regime, which converges; narrow networks, minutes a run on a CPU core; seconds; or as the
experiment's own preset and settings say."""
Tests = Literal["corruptions", "clean", "domains", "augmented", "held_out", "none"]
"""Clean test images and the fifteen corruptions; clean ones; other domains; images under augmentations; held-out
training images, also under the four validation corruptions; no test."""
OLD_KEYS = {"recipe": "method"}
"""What files of experiments used to call a key, and its name now."""


@final
@dataclass(frozen=True, kw_only=True)
class Row:
    """One configuration of an experiment, before size, place and seed."""

    name: str
    """What its cells' folders are called."""
    label: str = ""
    """What tables call it; empty for the method's own label."""
    preset: str = ""
    """In place of the experiment's."""
    method: str = ""
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
    """Its epochs, as a multiple of the size's."""
    selection: Selection = "validation"
    """Whose weights are tested: the best epoch's on held-out images, or the last one's."""


@final
@dataclass(frozen=True, kw_only=True)
class Size:
    """How large the cells are."""

    name: SizeName
    seeds: int = 1
    limit: int = 0
    """Images of each test set; 0 for all."""
    base: tuple[str, ...] = ()
    """Settings below the experiment's own."""
    regime: tuple[str, ...] = ()
    """Settings of its preset, over the experiment's and below the row's."""
    cbar: bool = False
    """Test on C̄ too, the second test: a column of the experiment's tables."""
    set: tuple[str, ...] = ()
    """Settings, over the row's."""
    vary: Mapping[str, tuple[str, ...]] | None = None
    """In place of the experiment's."""
    options: Mapping[str, Any] = field(default_factory=dict[str, Any])
    """Options of the outcome, over the experiment's."""


@final
@dataclass(frozen=True, kw_only=True)
class Experiment:
    """A table or figure of the paper, or one of ours."""

    name: str
    title: str
    outcome: str = "scores"
    """What its cells end in: a name among `outcomes.OUTCOMES`."""
    expect: str = ""
    """What to look for in the outcome, and what differs from the paper."""
    packaged: bool = True
    """One of ours, whose rows the paper has too; in others a row has the paper's values where it names them."""
    preset: str = "pde_plus"
    tests: Tests = "corruptions"
    set: tuple[str, ...] = ()
    vary: Mapping[str, tuple[str, ...]] = field(default_factory=dict[str, tuple[str, ...]])
    """Settings whose values are crossed with each other and with the rows."""
    options: Mapping[str, Any] = field(default_factory=dict[str, Any])
    """Options of the outcome."""
    rows: tuple[Row, ...] = ()
    parts: tuple[str, ...] = ()
    """Experiments that this one consists of; it has no rows of its own."""
    sizes: Mapping[SizeName, Size]

    def places(self, size: Size) -> list[dict[str, str]]:
        """Every combination of the varied settings' values; one empty one where nothing varies."""
        vary = self.vary if size.vary is None else size.vary
        return [dict(zip(vary, values, strict=True)) for values in itertools.product(*vary.values())]


def experiments() -> dict[str, str]:
    """The packaged experiments and what each is."""
    return purposes(EXPERIMENTS)


def load_experiment(name: str | Path) -> Experiment:
    """Read an experiment: one of `experiments()`, or a .toml file of one's own; every key is checked."""
    if str(name) not in experiments() and str(name) in presets():
        raise UserError(f"{name} is a preset of one run; train it with: pdeplus train {name}")
    file, own = find_toml("experiment", name, EXPERIMENTS), Path(name).suffix == ".toml"
    return replace(_experiment(Path(name).stem, read_toml(file, f"experiment {name}")), packaged=not own)


def sweep_of(
    preset: str,
    methods: Sequence[str],
    *,
    vary: Mapping[str, tuple[str, ...]],
    seeds: int,
    limit: int = 0,
    tests: Tests = "corruptions",
) -> Experiment:
    """The experiment of some methods, or variants, on a preset as it is, crossed with the values of varied settings.

    Methods are named as `named_methods` has them, or dotted ones of the user's own; none stands for the preset's.
    """
    check_least("limit", limit, 0)
    rows = list[Row]()
    for method in dict.fromkeys(methods):
        if "." not in method and method not in named_methods():
            raise unknown(f"method {method!r}", method, list(named_methods()))
        own = "." in method
        rows.append(Row(name=method, method="" if own else method, set=(f"method.name={method}",) if own else ()))
    name, size = Path(preset).stem, Size(name="own", seeds=seeds, limit=limit)
    return Experiment(
        name=f"sweep-{name}",
        title=f"{name}: {', '.join([*(row.name for row in rows), *vary])}",
        packaged=False,
        preset=preset,
        tests=tests,
        vary=vary,
        rows=tuple(rows) or (Row(name=name),),
        sizes={"own": size},
    )


def _experiment(name: str, tables: dict[str, Any]) -> Experiment:
    for key in ("sizes", "scales"):  # [sizes.small], once [scales.small], is another way to write [small]
        tables |= tables.pop(key, {})
    common = tomllib.loads((EXPERIMENTS / "_sizes.toml").read_text("utf-8"))
    sizes = dict[SizeName, Size]()
    for size in get_args(SizeName):  # its settings come behind the common ones, the rest replaces
        usual, its = common[size], tables.pop(size, {})
        regime = preset_settings(usual.pop("preset")) if "preset" in usual else []
        settings_of_both = {"regime": regime, "set": [*usual.get("set", ()), *its.get("set", ())]}
        sizes[size] = Size(**_checked(f"size {size}", Size, usual | its | settings_of_both | {"name": size}))
    rows = tuple(_row(name, row) for row in tables.pop("rows", []))
    own = _checked(f"experiment {name}", Experiment, tables)
    values: dict[str, Any] = own | {"sizes": sizes, "rows": rows, "name": name}
    if "tests" in values:
        check_choice(f"experiment {name}: tests", values["tests"], Tests)
    if any(one.cbar for one in sizes.values()) and values.get("tests", "corruptions") not in ("corruptions", "clean"):
        raise UserError(f"experiment {name}: cbar=true needs tests = 'corruptions' or 'clean'")
    values = {"title": name, "outcome": "scores"} | values
    if bool(values.get("parts")) != (values["outcome"] == "parts") or (values.get("parts") and rows):
        raise UserError(f"experiment {name}: parts need the outcome 'parts' and no rows, and that outcome needs parts")
    if values["outcome"] == "scores" and not rows:
        raise UserError(f"experiment {name} lacks rows, e.g. rows = ['erm', 'pde_plus']")
    return Experiment(**values)


def _row(experiment: str, row: object) -> Row:
    tables = {"method": row} if isinstance(row, str) else cast(dict[str, Any], row)
    values = _checked(f"experiment {experiment}, a row", Row, tables)
    name = values.get("name") or values.get("method") or values.get("preset")
    if not name:
        raise UserError(f"experiment {experiment}: a row needs a name, a method or a preset")
    check_choice(f"experiment {experiment}, row {name}: selection", values.get("selection", "last"), Selection)
    return Row(**values | {"name": name})


def _checked(where: str, kind: type[Any], tables: Mapping[str, Any]) -> dict[str, Any]:
    """The tables as arguments: unknown keys are refused, lists become tuples."""
    known = [f.name for f in fields(kind)]
    values = dict[str, Any]()
    for given, value in tables.items():
        key = OLD_KEYS.get(given, given)
        if key not in known:
            raise unknown(f"{where}: the key {key!r}", key, known)
        values[key] = tuple(cast(list[Any], value)) if isinstance(value, list) else value
    if "vary" in values:
        vary = cast(dict[str, list[Any]], values["vary"])
        values["vary"] = {key: tuple(map(str, choices)) for key, choices in vary.items()}
    return values


def named_methods() -> dict[str, Part]:
    """Every method with its defaults, by its name, and the variants that have a name of their own; sorted."""
    plain = {name: Part(name=name) for name in names("methods")}
    named = {name: Part(name=method, options=dict(options)) for name, (method, options) in VARIANTS.items()}
    return dict(sorted((plain | named).items()))


def settings(name: str) -> list[str]:
    """A method or a variant as `key=value` overrides of a preset."""
    part = named_methods()[name]
    values = {key: str(value).lower() if isinstance(value, bool) else value for key, value in part.options.items()}
    return [f"method.name={part.name}", *(f"method.{key}={value}" for key, value in values.items())]
