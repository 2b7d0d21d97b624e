"""Precedence, checking and round trip of configs."""

import tomllib
from dataclasses import fields

import pytest
import tomli_w

import pdeplus as pp
from pdeplus.errors import UserError
from pdeplus.methods import VARIANTS
from pdeplus.methods.pde_plus import PDEPlus
from pdeplus.training.config import config_hash, from_tables, presets, to_tables


def test_overrides_win_over_preset_and_preset_over_defaults(tmp_path):
    base = tmp_path / "base.toml"
    base.write_text("[train]\nepochs = 3\nlr = 0.2\n[model]\nname = 'plain_cnn'\nwidth = 6\n")
    top = tmp_path / "top.toml"
    top.write_text("extends = 'base.toml'\n[train]\nlr = 0.3\n")
    config = pp.load_config(top, ["train.batch_size=7", "seed=4", "method.name=mixup", "method.alpha=0.5"])
    assert (config.train.epochs, config.train.lr, config.train.batch_size, config.seed) == (3, 0.3, 7, 4)
    assert (config.model.name, config.model.options, config.name) == ("plain_cnn", {"width": 6}, "top")
    assert (config.method.name, config.method.options) == ("mixup", {"alpha": 0.5})


def test_only_one_level_of_extends(tmp_path):
    for name, base in (("a", "b"), ("b", "a")):
        (tmp_path / f"{name}.toml").write_text(f"extends = '{base}.toml'\n")
    with pytest.raises(UserError, match="only one level is supported"):
        pp.load_config(tmp_path / "a.toml")


def test_the_order_of_overrides_plays_no_part():
    some = ["model.width=5", "model.name=plain_cnn", "method.augmentor.width=4", "method.augmentor=augmix"]
    config = pp.load_config("demo", some)
    assert config == pp.load_config("demo", some[::-1])
    assert config.model.options == {"width": 5}
    assert config.method.options == {"augmentor": {"name": "augmix", "width": 4}}


def test_a_nested_option_alone_belongs_to_the_default_part():
    config = pp.load_config("demo", ["method.augmentor.severity=5"])
    assert to_tables(config)["method"]["augmentor"] == {
        "name": "augmix", "severity": 5.0, "width": 3, "depth": 0, "operations": 9, "variant": "published",
    }  # fmt: skip


def test_naming_the_part_that_is_there_already_keeps_its_options(tmp_path):
    preset = tmp_path / "mine.toml"
    preset.write_text("[method]\nsamples = 5\n")
    assert pp.load_config(preset, ["method.name=pde_plus"]).method.options == {"samples": 5}


def test_another_name_drops_the_options_of_the_one_beneath():
    config = pp.load_config("authors", ["method.name=erm"])
    assert config.method.options == {}
    nested = pp.load_config("authors", ["method.augmentor.severity=5"])
    assert nested.method.options["augmentor"]["severity"] == 5
    assert nested.method.options["augmentor"]["width"] == 10


def test_a_variant_is_its_method_with_options_that_may_be_changed():
    in_stages = pp.load_config("fast", ["method.name=pde_plus_stages", "method.share=0.2"]).method
    assert (in_stages.name, in_stages.options["placement"], in_stages.options["jsd"]) == ("pde_plus", "stage", 6)
    assert in_stages.options["share"] == 0.2
    for name, (method, options) in VARIANTS.items():
        spelt = {"method": {"name": method, **options}}
        assert config_hash(from_tables({"method": {"name": name}})) == config_hash(from_tables(spelt))


def test_a_runs_config_from_before_an_option_means_what_it_did():
    """The config of a run names every option of its day: what it lacks is newer and had no effect then."""
    then = to_tables(pp.load_config("demo", ["method.name=pde_plus_stages"]))
    newer = [option.name for option in fields(PDEPlus) if "before" in option.metadata]
    assert sorted(newer) == ["diffuse_after", "scale_from", "scale_per", "share"]
    lacking = {key: value for key, value in then["method"].items() if key not in newer}
    assert to_tables(from_tables({**then, "method": lacking})) == then
    assert to_tables(from_tables({"method": {"name": "pde_plus"}}))["method"]["share"] == 0.3


@pytest.mark.parametrize("preset", presets())
def test_resolved_config_reads_back_as_itself(preset):
    tables = to_tables(pp.load_config(preset))
    again = to_tables(from_tables(tomllib.loads(tomli_w.dumps(tables))))
    assert again == tables
    assert "momentum" in tables["train"]
    assert {"width", "pretrained"} & tables["model"].keys()


@pytest.mark.parametrize("table", ["method", "train"])
def test_label_smoothing_has_an_old_name_which_hashes_still_have(table, tmp_path):
    """The hashes are those that load_config gave when it was an option of each method, and AugMix had one variant."""
    setting = f"{table}.label_smoothing=0.05"
    for preset, known in (("demo", "2feca643ca83"), ("authors", "7874f784c654")):
        then = ["method.name=pde_plus_stages"] * (preset == "demo")
        config = pp.load_config(preset, [*then, setting, "method.augmentor.variant=published"])
        assert (config.train.label_smoothing, config_hash(config)) == (0.05, known)
        assert "label_smoothing" not in to_tables(config)["method"]
    for base in ("authors", "demo"):  # whose own is 0.12 and 0
        (tmp_path / "mine.toml").write_text(f"extends = '{base}'\n[{table}]\nlabel_smoothing = 0.05\n")
        assert config_hash(pp.load_config(tmp_path / "mine.toml")) == config_hash(pp.load_config(base, [setting]))
        for other in ("method", "train"):
            assert pp.load_config(tmp_path / "mine.toml", [f"{other}.label_smoothing=0"]).train.label_smoothing == 0
    assert from_tables({table: {"label_smoothing": 0.05}}).train.label_smoothing == 0.05


@pytest.mark.parametrize(
    ("preset", "overrides", "message"),
    [
        ("demmo", [], "preset 'demmo' is not known; did you mean 'demo'"),
        ("demo", ["trian.epochs=3"], "trian=.*did you mean 'train'"),
        ("demo", ["trai\nn.epochs=3"], r"^trai\\nn=.*did you mean 'train'[^\n]*$"),
        ("demo", ["train.ep\nochs=3"], r"^train.ep\\nochs=3: the key is not known[^\n]*$"),
        ("demo", ["train.epoch=3"], "train.epoch=3: the key is not known; did you mean 'epochs'"),
        ("demo", ["train.epochs=many"], "train.epochs='many' must be a whole number"),
        ("demo", ["train.epochs=1.5"], "train.epochs=1.5 must be a whole number"),
        ("demo", ["train.epochs=true"], "train.epochs=True must be a whole number"),
        ("demo", ["train.lr=0"], "train.lr=0.0 must be above 0"),
        ("demo", ["train.validation=1.0"], "train.validation=1.0 must lie between 0 and 1"),
        ("demo", ["train.label_smoothing=1.5"], "train.label_smoothing=1.5 must lie between 0 and 1"),
        ("demo", ["method.label_smoothing=-1"], "train.label_smoothing=-1.0 must be at least 0"),
        (
            "demo",
            ["method.label_smoothing=0.1", "train.label_smoothing=0.2"],
            "method.label_smoothing=0.1: its name now is train.label_smoothing, which is 0.2; set one",
        ),
        ("demo", ["train.precision=fp8"], "train.precision='fp8' must be one of 'fp32', 'bf16', 'fp16'"),
        ("demo", ["method.name=pdeplus"], "methods: 'pdeplus' is not known; did you mean 'pde_plus'"),
        ("demo", ["method.name=pde_plus_stges"], "'pde_plus_stges' is not known; did you mean 'pde_plus_stages'"),
        ("demo", ["method.schedule=fast"], "method.schedule='fast' must be one of 'fused'"),
        ("demo", ["method.augmentor=augmax"], "augment: 'augmax' is not known; did you mean 'augmix'"),
        ("demo", ["method.augmentor.strength=3"], "method.augmentor.strength=3: the key is not known"),
        ("demo", ["method.augmentor.severity=11"], "severity=11.0 must lie between"),
        ("demo", ["method.name=.foo"], "methods: '.foo' is not known"),
        ("demo", ["method.name=0"], "method.name=0 must be a text"),
        ("demo", ["train.epochs=0"], "train.epochs=0 must be above 0"),
        ("demo", ["train.lr=nan"], "train.lr=nan must be above 0"),
        ("demo", ["train.lr=inf"], "train.lr=inf must be finite"),
        ("demo", ["train.epochs=" + "9" * 5000], "^'train.epochs=99999.*9' …: Exceeds the limit"),
        ("demo", ["train.epochs=" + "[" * 5000], r"^'train.epochs=\[\[\[.*' …: maximum recursion depth exceeded"),
        ("demo", ["train.nesterov=true", "train.momentum=0"], "train.nesterov=true needs"),
        ("demo", ["model.name=resnet19"], "models: 'resnet19' is not known.*resnet18"),
        ("demo", ["model.classes=3"], "model.classes=3: the key is not known"),
        ("demo", ["data.name=my.missing_module"], "'my.missing_module' cannot be imported"),
        ("demo", ["data=digits"], "data='digits' must be a table; set data.name"),
        ("demo", ["train.epochs"], "'train.epochs' is not of the form key=value"),
        ("missing.toml", [], "missing.toml: there is no such file"),
    ],
)
def test_mistakes_are_answered_in_one_line(preset, overrides, message):
    with pytest.raises(UserError, match=message) as caught:
        pp.load_config(preset, overrides)
    assert "\n" not in str(caught.value)


def test_dotted_names_load_from_the_users_code(tmp_path, monkeypatch):
    package = tmp_path / "my_lab"
    package.mkdir()
    (package / "__init__.py").write_text("")
    (package / "tiny_net.py").write_text(
        "from torch import nn\n"
        "def build(*, classes: int, channels: int, hidden: int = 3) -> nn.Module:\n"
        "    return nn.Sequential(nn.Flatten(), nn.LazyLinear(classes))\n"
    )
    (package / "smooth.py").write_text(
        "from dataclasses import dataclass\n"
        "from pdeplus.methods.base import Method\n"
        "@dataclass(frozen=True, kw_only=True)\n"
        "class Smooth(Method):\n"
        "    label_smoothing: float = 0.1\n"
        "    def objectives(self, model, batch):\n"
        "        yield from ()\n"
    )
    monkeypatch.chdir(tmp_path)
    config = pp.load_config("demo", ["model.name=my_lab.tiny_net", "model.hidden=5"])
    assert config.model.options == {"hidden": 5}
    both = ["method.label_smoothing=0.3", "train.label_smoothing=0.2"]  # a method's own option stays its own
    config = pp.load_config("demo", ["method.name=my_lab.smooth", *both])
    assert (config.method.options, config.train.label_smoothing) == ({"label_smoothing": 0.3}, 0.2)
    hashes = [config_hash(pp.load_config("demo", ["method.name=my_lab.smooth", *some])) for some in (both[:1], both)]
    assert hashes[0] != hashes[1]
