"""A network that carries its input normalisation is the plain network on (x − mean) / std, wherever it goes."""

import copy
import tomllib

import pytest
import torch
from safetensors.torch import load_file
from support.models import smallest
from torch import Tensor, nn

import pdeplus as pp
from pdeplus._lib import registry
from pdeplus.core.network import INPUT, changing
from pdeplus.errors import UserError
from pdeplus.evaluation.deployment import OnnxModel, export
from pdeplus.evaluation.tested_models import fast_copy
from pdeplus.models.base import build_model
from pdeplus.models.normalise import normalise
from pdeplus.training.config import config_hash, from_tables, to_tables
from pdeplus.training.run_folder import Run

MEAN, STD = (0.5, 0.25, 0.1), (0.25, 0.5, 2.0)
OPTIONS = {"mean": list(MEAN), "std": list(STD)}
OVERRIDES = [f"model.mean={list(MEAN)}", f"model.std={list(STD)}"]
QUICK = ["model.width=4", "data.size=8", "train.limit=60", "train.epochs=1"]
BUFFERS = {"input_mean", "input_std"}


def by_hand(x: Tensor) -> Tensor:
    return torch.stack([(x[:, i] - m) / s for i, (m, s) in enumerate(zip(MEAN, STD, strict=True))], 1)


@pytest.fixture
def normalised(net) -> nn.Module:
    return normalise(copy.deepcopy(net), 3, MEAN, STD)


@pytest.fixture(scope="module")
def run(tmp_path_factory) -> Run:
    return pp.train(pp.load_config("demo", [*QUICK, *OVERRIDES]), tmp_path_factory.mktemp("normalised") / "run")


def test_the_plain_network_on_normalised_images_bit_by_bit(net, normalised, x):
    assert torch.equal(normalised(x), net(by_hand(x)))
    assert torch.equal(copy.deepcopy(normalised)(x), net(by_hand(x)))
    assert not torch.equal(normalised(x), net(x))


def test_names_stay_and_two_buffers_come(net, normalised, x):
    assert [name for name, _ in normalised.named_modules()] == [name for name, _ in net.named_modules()]
    assert [name for name, _ in normalised.named_parameters()] == [name for name, _ in net.named_parameters()]
    assert normalised.state_dict().keys() - net.state_dict().keys() == BUFFERS
    other = normalise(copy.deepcopy(net), 3, (0, 0, 0), (1, 1, 1))
    assert torch.equal(other(x), net(x))
    other.load_state_dict(normalised.state_dict())
    assert torch.equal(other(x), normalised(x))
    assert normalised.double()(x.double()).dtype == torch.float64


def test_a_sequential_network_has_no_layer_more(x):
    layers = nn.Sequential(nn.Flatten(), nn.Linear(x[0].numel(), 4))
    assert torch.equal(normalise(copy.deepcopy(layers), 3, MEAN, STD)(x), layers(by_hand(x)))


def test_diffusion_around_it(net, normalised, x):
    places = ["layer1", "layer3"]
    torch.manual_seed(0)
    plain = pp.add_diffusion(net, places, by_hand(x))
    torch.manual_seed(0)
    diffused = pp.add_diffusion(normalised, places, x)
    noise = [torch.Generator().manual_seed(1) for _ in range(2)]
    assert torch.equal(diffused(x), plain(by_hand(x)))
    assert torch.equal(
        pp.predict(diffused, x, 3, generator=noise[0]), pp.predict(plain, by_hand(x), 3, generator=noise[1])
    )


def test_what_changes_the_input_changes_images(net, normalised, x):
    with changing(normalised, {INPUT: lambda images: (images + 0.5).clamp(0, 1)}):
        assert torch.equal(normalised(x), net(by_hand((x + 0.5).clamp(0, 1))))
    assert torch.equal(normalised(x), net(by_hand(x)))


def test_compiled_folded_and_exported(net, normalised, x):
    expected = net(by_hand(x))
    torch.testing.assert_close(torch.compile(normalised, backend="eager")(x), expected)
    torch.testing.assert_close(fast_copy(normalised, x)(x), expected, rtol=1e-4, atol=1e-4)
    torch.testing.assert_close(torch.export.export(normalised, (x,)).module()(x), expected)


@pytest.mark.parametrize("name", registry.names("models"))
def test_every_model_has_the_option_and_is_as_before_without_it(name):
    small = smallest(name)
    built = dict[str, nn.Module]()
    for key, options in (("plain", small), ("normalised", small | OPTIONS)):
        torch.manual_seed(0)
        built[key] = build_model(name, options, classes=3, channels=3).eval()
    x = torch.rand(2, 3, 8, 8)
    assert torch.equal(built["normalised"](x), built["plain"](by_hand(x)))
    assert not BUFFERS & built["plain"].state_dict().keys()
    assert not {"mean", "std"} & registry.resolved("models", name, small).keys()


def test_normalise_is_no_model():
    assert "normalise" not in registry.names("models")
    with pytest.raises(UserError, match="models: 'normalise' is not known"):
        registry.find("models", "normalise")


OWN_MEAN = """
from torch import nn


def build(*, classes: int, channels: int, mean: float = 0.5) -> nn.Module:
    return nn.Linear(1, int(mean))
"""


def test_a_builder_with_such_an_option_of_its_own_keeps_it(tmp_path, monkeypatch):
    (tmp_path / "my_networks").mkdir()
    (tmp_path / "my_networks" / "own_mean.py").write_text(OWN_MEAN)
    monkeypatch.syspath_prepend(tmp_path)
    built = build_model("my_networks.own_mean", {"mean": 7}, classes=3, channels=3)
    assert built.out_features == 7
    assert not BUFFERS & built.state_dict().keys()


def test_a_run_holds_it_in_its_config_and_its_weights(run):
    tables = tomllib.loads((run.path / "config.toml").read_text("utf-8"))
    assert {key: tables["model"][key] for key in OPTIONS} == OPTIONS
    assert from_tables(to_tables(run.config)) == run.config
    weights = load_file(run.path / "model.safetensors")
    assert weights["input_mean"].flatten().tolist() == pytest.approx(MEAN)
    plain = pp.load_config("demo", QUICK)
    assert not OPTIONS.keys() & to_tables(plain)["model"].keys()
    assert config_hash(plain) != config_hash(run.config)


def test_a_run_is_evaluated_and_exported_with_it(run, tmp_path):
    model, x = pp.load_model(run.path), torch.rand(3, 3, 8, 8)
    stripped = copy.deepcopy(model)
    stripped._forward_pre_hooks.clear()
    torch.testing.assert_close(model(x), stripped(by_hand(x)))
    torch.testing.assert_close(pp.predict(run.model, x, 0), stripped(by_hand(x)).softmax(1))
    path = export(run, "torch", tmp_path / "model.pt2").path
    torch.testing.assert_close(torch.export.load(path).module()(x), stripped(by_hand(x)), rtol=1e-4, atol=1e-4)
    for name in ("onnx", "onnxscript", "onnxruntime"):
        pytest.importorskip(name)
    path = export(run, "onnx", tmp_path / "model.onnx").path
    torch.testing.assert_close(OnnxModel(path)(x), stripped(by_hand(x)), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"mean": [0.5] * 3}, "model.mean is set and model.std is not; set both or neither"),
        ({"std": [0.5] * 3}, "model.std is set and model.mean is not"),
        ({"mean": [0.5], "std": [0.5] * 3}, r"model.mean=\[0.5\] must hold one number for each channel: 3"),
        ({"mean": [0.5] * 3, "std": [1, 0, 1]}, r"model.std=\[1.0, 0.0, 1.0\] must be above 0"),
        ({"mean": [0.5] * 3, "std": [1, float("nan"), 1]}, "must hold finite numbers"),
        ({"mean": "data", "std": [1, 1, 1]}, "model.mean='data' must be a list or none"),
    ],
)
def test_mistakes_are_answered_in_one_line(options, message):
    with pytest.raises(UserError, match=message):
        build_model("resnet18", {"width": 2, **options}, classes=3, channels=3)


def test_it_is_not_done_twice(normalised):
    with pytest.raises(UserError, match="ResNet has 'input_mean' or 'input_std' already"):
        normalise(normalised, 3, MEAN, STD)
