"""The schema of a run and its loader: defaults < preset (one `extends`) < key=value overrides."""

import hashlib
import json
import math
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field, fields, is_dataclass, replace
from difflib import get_close_matches
from importlib import resources
from importlib.resources.abc import Traversable
from inspect import signature
from pathlib import Path
from textwrap import shorten
from typing import Any, Literal, cast, get_type_hints

from .._lib.files import DEEPEST, parse_value, read_toml, readable
from .._lib.registry import NEW, check_options, find, names, resolved, unknown, users_code
from ..augment.base import Augmentor
from ..errors import UserError
from ..methods import VARIANTS
from ..models._libraries import parse_uri
from ..models.base import GIVEN, INPUT_OPTIONS


@dataclass(frozen=True, kw_only=True)
class Part:
    """A named member of a family and its options."""

    name: str
    options: Mapping[str, Any] = field(default_factory=dict[str, Any])


@dataclass(frozen=True, kw_only=True)
class Train:
    """The training loop's settings, the same for every method."""

    epochs: int = 30
    """Passes over the training split."""
    batch_size: int = 128
    """Original images per step (PDE+ adds as many augmented ones)."""
    lr: float = 0.05
    """Peak learning rate on the task."""
    momentum: float = 0.9
    """Momentum of SGD and Muon; the decay of AdamW's first moment."""
    nesterov: bool = False
    """Nesterov's momentum in SGD and Muon."""
    weight_decay: float = 5e-4
    """Weight decay: added to the gradient in SGD, decoupled from it in AdamW and Muon."""
    warmup: float = 0.0
    """Epochs of linear warm-up before the learning rate falls to zero, both per step."""
    clip_norm: float = 0.0
    """Largest norm of an update's gradient; 0 for no clipping."""
    ema: float = 0.0
    """Decay of an exponential average of the weights, which is then the model; 0 for none."""
    batch_norm: Literal["shared", "split", "recalibrate"] = "shared"
    """Statistics of plain and diffused passes: shared, split, or measured anew before evaluation."""
    sync_batch_norm: bool = False
    """On several GPUs: BatchNorm's statistics over the whole batch; false over each process's own part."""
    validation: float = 0.1
    """Fraction of the training images held out, stratified."""
    limit: int = 0
    """Use at most this many training images (validation included); 0 for all."""
    reshuffle: bool = True
    """A new order every epoch; false repeats the first epoch's (authors' code)."""
    precision: Literal["fp32", "bf16", "fp16", "auto"] = "fp32"
    """Precision of the forward passes; auto: fp32 or bf16, whichever is faster on this machine when the run starts."""
    channels_last: bool = True
    """Memory layout of images and convolutions."""
    compile: bool = False
    """Compile the network with torch.compile; if that fails, a message says so and it runs uncompiled."""
    keep_every: int = 0
    """Keep the weights of every N-th epoch, which selection by an oracle needs; 0 for none."""
    checkpoint_seconds: float = 120.0
    """Time between checkpoints within an epoch; there is always one at its end."""
    optimizer: Literal["sgd", "adamw", "muon"] = field(default="sgd", metadata=NEW)
    """What minimises the task's loss; Muon updates matrices and filters, and SGD the rest."""
    decay: Literal["all", "matrices"] = field(default="all", metadata=NEW)
    """What weight decay shrinks: all parameters, or only those of two dimensions and more (no norms, no biases)."""
    schedule: Literal["cosine", "linear"] = field(default="cosine", metadata=NEW)
    """How the learning rate falls from its peak to zero."""
    bias_lr: float = field(default=0.0, metadata=NEW)
    """Peak learning rate of vectors: biases and norms; 0 for train.lr."""
    head_lr: float = field(default=0.0, metadata=NEW)
    """Peak learning rate of the last linear layer; 0 for train.lr."""
    filter_norm: bool = field(default=False, metadata=NEW)
    """Rescale every matrix and filter bank that Muon steps on before each step: of n rows, to the norm √n."""
    flips: Literal["random", "alternating"] = field(default="random", metadata=NEW)
    """Images that may be mirrored are mirrored at random, or in every second epoch after a random first choice."""
    shift: int = field(default=-1, metadata=NEW)
    """Largest shift of training images in pixels; -1 for the data set's own, an eighth of a side."""
    border: Literal["black", "reflected"] = field(default="black", metadata=NEW)
    """What fills the edge of a shifted image."""
    progressive: float = field(default=0.0, metadata=NEW)
    """Fraction of the epochs, the first ones, that use images of three quarters of their side, at about half the
    FLOPs (progressive resizing); 0 for none."""
    label_smoothing: float = field(default=0.0, metadata=NEW)
    """Fraction of a label that is spread evenly over all classes in the task's cross-entropy, in [0, 1]."""
    backbone_lr: float = field(default=0.0, metadata=NEW)
    """Peak learning rate of all but the last linear layer and ADD blocks; 0 for train.lr. Weight decay follows it."""
    freeze_epochs: int = field(default=0, metadata=NEW)
    """Number of first epochs in which only the last linear layer and ADD blocks learn; what is frozen keeps its
    BatchNorm statistics."""
    accumulate: int = field(default=1, metadata=NEW)
    """Parts in which a batch goes through the network, one update for all of them: less memory, BatchNorm by part."""
    class_weights: Literal["none", "balanced"] = field(default="none", metadata=NEW)
    """Weight of an image in the task's cross-entropy: 1, or inversely as its class is frequent."""
    patience: int = field(default=0, metadata=NEW)
    """Stop after this many epochs without a better validation score; 0 for never."""
    wise_ft: bool = field(default=False, metadata=NEW)
    """At the end, average the weights after freeze_epochs and the fine-tuned ones in the proportion with the best
    validation score (WiSE-FT, Wortsman et al., 2022)."""
    device: str = field(default="auto", metadata=NEW)
    """Where to train: auto for a GPU where there is one, or torch's name, such as cpu or cuda:1."""

    def __post_init__(self) -> None:
        positive = ("epochs", "batch_size", "lr", "accumulate")
        for name, value in asdict(self).items():
            least = -1 if name == "shift" else 0
            if isinstance(value, int | float) and not (value > 0 if name in positive else value >= least):
                raise UserError(f"train.{name}={value} must be {'above' if name in positive else 'at least'} {least}")
            if value == math.inf:
                raise UserError(f"train.{name}={value} must be finite")
        if not 0 < self.validation < 1:
            raise UserError(f"train.validation={self.validation} must lie between 0 and 1")
        for name in ("label_smoothing", "progressive"):
            if getattr(self, name) > 1:
                raise UserError(f"train.{name}={getattr(self, name)} must lie between 0 and 1")
        if (self.backbone_lr or self.freeze_epochs) and (self.optimizer == "muon" or self.bias_lr or self.head_lr):
            raise UserError("train.backbone_lr and freeze_epochs need sgd or adamw, without bias_lr and head_lr")
        if self.wise_ft and not 0 < self.freeze_epochs < self.epochs:
            way_out = "so that there is a trained head on the pretrained network to go back to"
            raise UserError(f"train.wise_ft=true needs train.freeze_epochs of 1 to {self.epochs - 1}, {way_out}")
        if self.nesterov and not self.momentum:
            raise UserError("train.nesterov=true needs train.momentum above 0")
        for name, applies in (("ema", True), ("momentum", self.optimizer == "adamw")):
            if applies and getattr(self, name) >= 1:
                raise UserError(f"train.{name}={getattr(self, name)} must be below 1")

    def side_in(self, epoch: int, side: int) -> int:
        """The side of the images that an epoch learns from, in pixels, where they have `side` at test."""
        return side * 3 // 4 if epoch < round(self.progressive * self.epochs) else side


@dataclass(frozen=True, kw_only=True)
class Config:
    """The settings of a run: data, network, method, training."""

    name: str = "custom"
    seed: int = 0
    data: Part = Part(name="digits")
    model: Part = Part(name="resnet18")
    method: Part = Part(name="pde_plus")
    train: Train = Train()
    continues: str = ""
    """Of a branch, where it left another run: the hash of that run's config and the step, as HASH@STEP."""


PRESETS = resources.files("pdeplus.training") / "presets"
FAMILY_OF = {"data": "data", "model": "models", "method": "methods"}
RULES: Mapping[str, Mapping[str, Any]] = {
    "model": {"hidden": GIVEN, "common": INPUT_OPTIONS},
    "data": {"common": {"transform": Augmentor}},
}
"""Of a network the data set gives some arguments; all networks, and all data sets, have some options besides their own:
the light transform of a data set may be any augmentation. See `check_options`."""


def load_config(preset: str | Path, overrides: Sequence[str] = ()) -> Config:
    """Read a preset (a name from `presets()` or a TOML file) and apply `key=value` overrides.

    Every key and value is checked; after that, building the run fails only if data is missing.
    """
    together = dict[str, Any]()
    for override in overrides:  # their order plays no part: a name does not undo an option set before it
        if (shown := readable(override)) != override:
            raise UserError(f"{shown!r:.80} is not UTF-8, in which configs are written; rename it")
        insert(together, override)
    defaults = {key: {"name": cast(Part, getattr(Config(), key)).name} for key in FAMILY_OF}
    return from_tables(_lay(_merge(defaults, _read(preset)), together))


def presets() -> dict[str, str]:
    """The packaged presets and what each is for."""
    return purposes(PRESETS)


def purposes(folder: Traversable) -> dict[str, str]:
    """The TOML files of a folder by name, and what each is for: its first comment."""
    files = {file.name.removesuffix(".toml"): file for file in folder.iterdir() if file.name.endswith(".toml")}
    texts = {name: file.read_text("utf-8") for name, file in sorted(files.items()) if not name.startswith("_")}
    return {name: text.partition("\n")[0].lstrip("# ") for name, text in texts.items()}


def find_toml(what: str, name: str | Path, folder: Traversable) -> Traversable:
    """A .toml file of one's own, or the packaged one of this name; an unknown name is answered with the known ones."""
    path = Path(name)
    if path.suffix == ".toml":
        if not path.is_file():
            raise UserError(f"{what} {name}: there is no such file")
        return path
    known = purposes(folder)
    if str(name) not in known:
        raise unknown(f"{what} {str(name)!r}", str(name), list(known))
    return folder / f"{name}.toml"


def preset_settings(preset: str) -> list[str]:
    """The network and the training of a preset as `key=value` overrides."""
    tables = _read(preset)
    return [f"{key}.{name}={json.dumps(value)}" for key in ("model", "train") for name, value in tables[key].items()]


def from_tables(tables: Mapping[str, Any]) -> Config:
    """A checked Config from nested tables."""
    known = {f.name for f in fields(Config)}
    values = dict[str, Any]()
    for key, value in _lay({}, tables).items():
        if key not in known:
            raise _unknown_key(key, value, tables, sorted(known))
        if key in FAMILY_OF:
            values[key] = _part(key, value)
        elif key == "train":
            values[key] = Train(**check_options(Train, _table(key, value), where=key))
        else:
            values |= check_options(Config, {key: value}, where="config")
    return Config(**values)


def _unknown_key(key: str, value: Any, tables: Mapping[str, Any], known: list[str]) -> UserError:
    """The answer to a key that stands outside a table: the one in a table that may have been meant comes first."""
    kinds: dict[str, Any] = {"train": Train}
    for part, family in FAMILY_OF.items():
        with suppress(UserError, TypeError):  # what is wrong with the other keys is not asked for
            named = _table(part, tables.get(part, {})).get("name", getattr(Config(), part).name)
            kinds[part] = find(family, named)
    options = {
        name: f"{table}.{name}" for table, kind in reversed(kinds.items()) for name in signature(kind).parameters
    }
    shown = key if key.isprintable() else repr(key)
    near = get_close_matches(key, options, 1)
    if near and not isinstance(value, Mapping) and not get_close_matches(key, known, 1, 0.9):
        return UserError(f"{shown}={value!r}: the key is not known; did you mean {options[near[0]]}?")
    return unknown(f"{key}={value!r}: the key", key, known)


def to_tables(config: Config) -> dict[str, Any]:
    """The config with every default filled in, as nested tables that `from_tables` reads back."""
    tables: dict[str, Any] = {"name": config.name, "seed": config.seed}
    tables |= {"continues": config.continues} if config.continues else {}
    for key, family in FAMILY_OF.items():
        part = cast(Part, getattr(config, key))
        tables[key] = {"name": part.name, **resolved(family, part.name, part.options, **RULES.get(key, {}))}
    return {**tables, "train": asdict(config.train)}


def names_users_code(config: Config) -> bool:
    """Whether the config names code outside pdeplus, in a part or in a part's part."""
    tables = to_tables(config)
    try:
        with users_code(False):
            from_tables(tables)
    except UserError:
        return True
    return False


def setting_changes(then: Mapping[str, Any], now: Mapping[str, Any]) -> list[str]:
    """What differs between the tables of two config files, but for what no result depends on, in words."""
    before, after = _flat(_lay({}, then)), _flat(_lay({}, now))  # by the names of today
    free = ["name", "train.checkpoint_seconds"]
    if before.get("data.name") != "image_folder":  # whose root is the data set
        free.append("data.root")
    both = {**before, **after}
    keys = [key for key in both if key not in free and not _same(before.get(key), after.get(key))]

    def shown(values: Mapping[str, Any], key: str) -> str:
        return shorten(repr(values[key]), 60, placeholder=" …") if key in values else "missing"

    return [f"{key} is {shown(after, key)}, was {shown(before, key)}" for key in keys]


def _same(value: object, other: object) -> bool:
    """Whether two values of a config file are the same setting: 3 and 3.0 are, 1 and true are not; NaN is itself."""
    numbers = isinstance(value, bool) == isinstance(other, bool)
    return (numbers and value == other) or repr(value) == repr(other)


def _flat(tables: Mapping[str, Any], above: str = "") -> dict[str, Any]:
    """The values in nested tables by their dotted keys."""
    found = dict[str, Any]()
    for key, value in tables.items():
        table = cast(Mapping[str, Any], value) if isinstance(value, Mapping) else None
        found |= {above + key: value} if table is None else _flat(table, f"{above}{key}.")
    return found


def config_hash(config: Config) -> str:
    """Tells configs apart but for their name, their seed and the place of their data."""
    tables = to_tables(replace(config, name="", seed=0))
    if config.data.name != "image_folder":  # whose root is the data set
        tables["data"].pop("root", None)
    if "." not in config.method.name:  # each of our methods once had this option itself
        tables["method"]["label_smoothing"] = tables["train"].pop("label_smoothing")
    _leave_out_new(tables["train"], Train)
    _leave_out_new(tables["data"], find("data", config.data.name))
    _leave_out_new(tables["method"], find("methods", config.method.name))
    return hashlib.sha256(json.dumps(_alike(tables), sort_keys=True).encode()).hexdigest()[:12]


def _leave_out_new(table: dict[str, Any], kind: Any) -> None:
    """Remove the options that older configs lack and that are as they were before, of nested parts too."""
    if not is_dataclass(kind):
        return
    hints = get_type_hints(kind)
    for option in fields(kind):
        value, family = table.get(option.name), getattr(hints[option.name], "family", None)
        if "new" in option.metadata and value == option.metadata.get("before", option.default):
            del table[option.name]
        elif family and isinstance(value, dict):
            part = cast(dict[str, Any], value)
            _leave_out_new(part, find(family, part["name"]))


def _alike(node: Any) -> Any:
    """Every whole number as a float: 3 and 3.0 are the same setting, whichever a file or a default has."""
    if isinstance(node, dict):
        return {key: _alike(value) for key, value in cast(dict[str, Any], node).items()}
    if isinstance(node, list | tuple):
        return [_alike(value) for value in cast(list[Any], node)]
    return float(node) if isinstance(node, int) and not isinstance(node, bool) else node


def _part(key: str, value: Any) -> Part:
    options = dict(_table(key, value))
    name = options.pop("name", cast(Part, getattr(Config(), key)).name)
    if not isinstance(name, str):
        raise UserError(f"{key}.name={name!r} must be a text")
    if key == "model" and "?" in name:
        name, asked = parse_uri(name)
        options = asked | options
    if key == "method" and name in VARIANTS:
        name, usual = VARIANTS[name]
        options = {**usual, **options}
    elif key == "method" and "." not in name and name not in names("methods"):
        raise unknown(f"methods: {name!r}", name, sorted({*names("methods"), *VARIANTS}))
    kind = find(FAMILY_OF[key], name)
    options = _as_written(kind, options)
    check_options(kind, options, where=key, **RULES.get(key, {}))
    return Part(name=name, options=options)


def _as_written(kind: Any, options: Mapping[str, Any]) -> Mapping[str, Any]:
    """The options of a run's own config, which has all there were: what it lacks is newer, and is as it was before."""
    own = fields(kind) if is_dataclass(kind) else ()
    if not all(option.name in options for option in own if "new" not in option.metadata):
        return options
    return {option.name: option.metadata["before"] for option in own if "before" in option.metadata} | {**options}


def _table(key: str, value: Any) -> Mapping[str, Any]:
    if not isinstance(value, Mapping):
        raise UserError(f"{key}={value!r} must be a table; set {key}.name or another of its keys")
    return cast(Mapping[str, Any], value)


def _read(preset: str | Path, extended: bool = False) -> dict[str, Any]:
    """A preset's tables, laid over those of the one it extends."""
    file = find_toml("preset", preset, PRESETS)
    tables = read_toml(file, f"preset {preset}")
    base = tables.pop("extends", None)
    tables.setdefault("name", file.name.removesuffix(".toml"))
    if base is None:
        return _lay({}, tables)
    beside = Path(preset).parent / str(base)  # a file's `extends` is relative to the file
    if extended:
        raise UserError(f"preset {preset} is extended and extends {base!r} itself; only one level is supported")
    return _lay(_read(beside if beside.suffix == ".toml" else str(base), extended=True), tables)


def insert(tables: dict[str, Any], override: str) -> None:
    """Put one key=value into nested tables."""
    key, equals, text = override.partition("=")
    *path, last = key.strip().split(".")
    shown = repr(override) if len(override) < 80 else f"{override[:60]!r} …"
    if not equals or not last or len(path) > DEEPEST:
        raise UserError(f"{shown} is not of the form key=value, e.g. train.epochs=10")
    value = parse_value(text, shown)
    for part in path:
        beneath = tables.setdefault(part, {})
        if not isinstance(beneath, dict):  # method.augmentor=augmix beside method.augmentor.width=4
            beneath = tables[part] = {"name": beneath}
        tables = cast(dict[str, Any], beneath)
    existing = tables.get(last)
    if isinstance(existing, dict) and isinstance(value, str):
        existing["name"] = value
    else:
        tables[last] = value


def _lay(under: Mapping[str, Any], over: Mapping[str, Any]) -> dict[str, Any]:
    """`over` laid on `under`, with method.label_smoothing moved to train.label_smoothing, its name now.

    A user's own method may have such an option itself, and keeps it.
    """
    merged = _merge(under, over)
    method = merged.get("method")
    options = dict(cast(Mapping[str, Any], method)) if isinstance(method, Mapping) else {}
    if "label_smoothing" not in options or "." in str(options.get("name")):
        return merged
    old = options.pop("label_smoothing")
    new = _table("train", over.get("train", {})).get("label_smoothing", old)
    if new != old:
        raise UserError(f"method.label_smoothing={old}: its name now is train.label_smoothing, which is {new}; set one")
    return _merge(merged | {"method": options}, {"train": {"label_smoothing": new}})


def _merge(under: Mapping[str, Any], over: Mapping[str, Any]) -> dict[str, Any]:
    """`over` laid on `under`; a table that names another member replaces the one beneath it."""
    merged = dict(under)
    for key, value in over.items():
        beneath = merged.get(key)
        if isinstance(value, Mapping) and isinstance(beneath, Mapping):
            above = cast(Mapping[str, Any], value)
            below = cast(Mapping[str, Any], beneath)
            another = "name" in above and above["name"] != below.get("name")
            merged[key] = dict(above) if another else _merge(below, above)
        elif isinstance(value, Mapping) and isinstance(beneath, str):
            merged[key] = {"name": beneath, **cast(Mapping[str, Any], value)}
        else:
            merged[key] = value
    return merged
