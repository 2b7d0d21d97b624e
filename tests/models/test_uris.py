"""Networks by URI: real ones of timm and torchvision, their input, their heads, their stages, their start weights."""

import json
import logging
import re
import shutil
from functools import partial

import pytest
import torch
from support.hub import local_hub
from support.peers import peer
from torch import nn

import pdeplus as pp
from pdeplus._lib.files import encode_weights
from pdeplus.core.placement import stages_of
from pdeplus.models._libraries import Facts, check_logits, find_uri, library, load_start, parse_uri
from pdeplus.models.base import build_model, facts_of, placed
from pdeplus.training.config import config_hash
from pdeplus.training.run_folder import Run

IMAGENET = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
UNTRAINED = {"pretrained": False}
TINY = ["data.name=synthetic", "data.size=32", "train.epochs=1", "train.limit=24", "train.batch_size=8"]


@pytest.fixture(scope="module")
def timm():
    return peer("timm")


def built(name, classes=3, **options):
    return build_model(name, {**UNTRAINED, **options}, classes=classes, channels=3).eval()


def test_a_uri_is_a_name_and_options():
    assert parse_uri("timm:resnet18") == ("timm:resnet18", {})
    given = parse_uri("timm:vit_tiny_patch16_224?pretrained=false&img_size=32&weights=a/b.pt")
    assert given == ("timm:vit_tiny_patch16_224", {"pretrained": False, "img_size": 32, "weights": "a/b.pt"})
    with pytest.raises(pp.UserError, match="'pretrained' is not of the form key=value"):
        parse_uri("timm:resnet18?pretrained")


def test_options_after_the_question_mark_are_the_options():
    short = pp.load_config("demo", ["model.name=timm:resnet18?pretrained=false"])
    long = pp.load_config("demo", ["model.name=timm:resnet18", "model.pretrained=false"])
    assert config_hash(short) == config_hash(long)
    assert short.model.options == {"pretrained": False}
    with pytest.raises(pp.UserError, match="model.pretraned=False: the key is not known; did you mean 'pretrained'"):
        pp.load_config("demo", ["model.name=timm:resnet18?pretraned=false"])


@pytest.mark.parametrize(
    ("name", "stages", "blocks"),
    [
        ("resnet10t", ["layer1", "layer2", "layer3", "layer4"], "layer1.0"),
        ("convnext_atto", ["stages.0", "stages.1", "stages.2", "stages.3"], "stages.3.blocks.1"),
        ("efficientnet_b0", ["blocks.1", "blocks.2", "blocks.4", "blocks.6"], "blocks.6.0"),
        ("vit_tiny_patch16_224?img_size=32", ["blocks.2", "blocks.5", "blocks.8", "blocks.11"], "blocks.0"),
        ("swin_tiny_patch4_window7_224?img_size=64", [f"layers.{i}" for i in range(4)], "layers.3.blocks.1"),
        ("mobilenetv3_small_050", ["blocks.0", "blocks.1", "blocks.3", "blocks.5"], "blocks.5.0"),
    ],
)  # fmt: skip
def test_timms_networks_have_stages_and_diffuse(timm, name, stages, blocks):
    name, options = parse_uri(f"timm:{name}")
    net = built(name, **options)
    assert placed(net, "stage") == stages
    assert blocks in placed(net, "block")
    x = torch.rand(2, 3, options.get("img_size", 64), options.get("img_size", 64))
    changed = pp.add_diffusion(net, "auto", x)
    with torch.no_grad():
        assert torch.equal(changed(x), net(x))
        with pp.diffusion(changed) as trace:
            assert not torch.equal(changed(x), net(x))
    assert trace.names == stages
    assert [scale.shape for scale in trace.scales] == [mean.shape for mean in trace.means]
    if "swin" in name:  # its features are B×H×W×C, 2×16×16×96 at first
        assert changed.add_blocks[0].body[0].in_features == trace.means[0].shape[-1] == 96


def test_torchvisions_stages_are_found_by_an_example():
    peer("torchvision")
    net = built("torchvision:resnet18")
    assert placed(net, "stage") == ["layer1", "layer2", "layer3", "layer4"]
    assert placed(net, "block")[:3] == ["layer1.0", "layer1.1", "layer2.0"]
    assert net.fc.out_features == 3
    assert facts_of("torchvision:resnet18", {}) == Facts(size=224, mean=IMAGENET[0], std=IMAGENET[1], crop=224 / 256)


class Rows(nn.Module):
    """Six equal blocks in a list, an embedding before them and a head behind: a transformer's plan."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Conv2d(3, 8, 4, 4)
        self.layers = nn.ModuleList([nn.Linear(8, 8) for _ in range(6)])
        self.head = nn.Linear(8, 2)

    def forward(self, x):
        h = self.embed(x).flatten(2).mT
        for layer in self.layers:
            h = layer(h)
        return self.head(h.mean(1))


def test_equal_blocks_are_cut_into_quarters():
    stages = stages_of(Rows(), torch.rand(1, 3, 16, 16))
    assert stages == ["layers.0", "layers.2", "layers.3", "layers.5"]


def test_a_pyramid_within_a_trunk_ends_its_stages_where_the_resolution_changes():
    conv = [
        nn.Conv2d(3, 4, 3, padding=1),
        nn.Conv2d(4, 4, 3, 2, 1),
        nn.Conv2d(4, 4, 3, padding=1),
        nn.Conv2d(4, 4, 2, 2),
    ]
    net = nn.Sequential(nn.Sequential(*conv), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(4, 2))
    assert stages_of(net, torch.rand(1, 3, 16, 16)) == ["0.0", "0.2", "0.3"]


def test_the_networks_own_mean_and_deviation_are_part_of_it(timm):
    net, x = built("timm:resnet10t"), torch.rand(2, 3, 32, 32)
    torch.manual_seed(0)
    bare = timm.create_model("resnet10t", num_classes=3).eval()
    bare.load_state_dict(net.state_dict(), strict=False)
    mean, std = (torch.tensor(values).view(3, 1, 1) for values in IMAGENET)
    with torch.no_grad():
        assert torch.allclose(net(x), bare((x - mean) / std), atol=1e-5)
    mine = build_model("timm:resnet10t", {**UNTRAINED, "mean": (0.5,) * 3, "std": (0.5,) * 3}, classes=3, channels=3)
    assert mine.input_mean.flatten().tolist() == [0.5] * 3
    grey = build_model("timm:resnet10t", UNTRAINED, classes=3, channels=1)
    assert grey.input_mean.flatten().tolist() == pytest.approx([sum(IMAGENET[0]) / 3])


def test_weights_come_from_the_librarys_cache_and_the_head_is_new(timm, tmp_path, monkeypatch):
    from huggingface_hub import constants

    torch.manual_seed(1)
    theirs = timm.create_model("resnet10t", num_classes=1000)
    repo = tmp_path / "models--timm--resnet10t.c3_in1k"
    (repo / "refs").mkdir(parents=True)
    (repo / "refs" / "main").write_text("a" * 40)
    (repo / "snapshots" / ("a" * 40)).mkdir(parents=True)
    weights = repo / "snapshots" / ("a" * 40) / "model.safetensors"
    weights.write_bytes(encode_weights(theirs.state_dict()))
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path))
    net = build_model("timm:resnet10t.c3_in1k", {}, classes=3, channels=3)
    assert torch.equal(net.layer4[0].conv1.weight, theirs.layer4[0].conv1.weight)
    assert net.fc.out_features == 3
    other = build_model("timm:resnet10t", {"weights": str(weights)}, classes=3, channels=3)
    assert torch.equal(other.layer4[0].conv1.weight, theirs.layer4[0].conv1.weight)


def test_torchvisions_weights_come_from_its_cache(tmp_path, monkeypatch):
    models = peer("torchvision.models")
    monkeypatch.setenv("TORCH_HOME", str(tmp_path))
    (tmp_path / "hub" / "checkpoints").mkdir(parents=True)
    theirs, weights = models.shufflenet_v2_x0_5(), models.ShuffleNet_V2_X0_5_Weights.DEFAULT
    torch.save(theirs.state_dict(), tmp_path / "hub" / "checkpoints" / weights.url.rpartition("/")[2])
    net = build_model("torchvision:shufflenet_v2_x0_5", {}, classes=3, channels=3)
    assert torch.equal(net.conv5[0].weight, theirs.conv5[0].weight)
    assert net.fc.out_features == 3


@pytest.mark.parametrize(
    ("name", "answer"),
    [
        ("times:resnet18", "the scheme 'times' is not known; did you mean 'timm'"),
        ("timm:", "names no network; write timm:NAME"),
        ("timm:resnt18", "timm has no network 'resnt18'; similar: resnet18"),
        ("timm:resnet18.a1_in2k", "timm has no network 'resnet18.a1_in2k'; similar: resnet18.a1_in1k"),
        (
            "timm:resnet10t.c3_in1k",
            r"cannot be fetched .*huggingface.co/timm/resnet10t.c3_in1k and name timm:resnet10t.c3_in1k.weights=FILE",
        ),
        ("timm:vit_tiny_patch16_224.none", "timm has no network"),
        ("torchvision:resnet8", "torchvision has no network 'resnet8'; similar: resnet18"),
        ("torchvision:resnet18.V3", "the weights 'V3' is not known; did you mean|known: IMAGENET1K_V1"),
    ],
)
def test_bad_names_and_missing_weights_are_answered_in_one_line(timm, name, answer, tmp_path, monkeypatch):
    from huggingface_hub import constants

    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path))
    with pytest.raises(pp.UserError, match=answer) as told:
        build_model(name, {}, classes=3, channels=3)
    assert "\n" not in str(told.value)


def test_a_library_that_does_not_fit_this_torch_is_answered(monkeypatch):
    def fail(name):
        raise RuntimeError("operator torchvision::nms does not exist")

    monkeypatch.setattr("pdeplus.models._libraries.importlib.import_module", fail)
    with pytest.raises(pp.UserError, match="install both from one index"):
        library("timm", "timm:resnet18")


def test_what_is_no_classifier_of_these_classes_is_refused():
    with pytest.raises(pp.UserError, match="mine gives 2×7 for 2 images; logits of 3 classes, 2×3, are needed"):
        check_logits(nn.Sequential(nn.Flatten(), nn.Linear(48, 7)), "mine", (3, 4, 4), 3)
    with pytest.raises(pp.UserError, match="mine cannot take images of 3×5×5: .*; set data.size"):
        check_logits(nn.Sequential(nn.Flatten(), nn.Linear(48, 7)), "mine", (3, 5, 5), 3)


class Failing(nn.Module):
    def forward(self, x):
        raise KeyError("a fault of mine")


def test_a_network_that_fails_is_told_with_its_place():
    place = f"{re.escape(__file__)} line {Failing.forward.__code__.co_firstlineno + 1}, in forward"
    with pytest.raises(pp.UserError, match=rf"mine cannot take .*: 'a fault of mine' \({place}\); set data.size"):
        check_logits(Failing(), "mine", (3, 5, 5), 3)


@pytest.mark.parametrize(
    "content",
    [
        3,
        [torch.ones(2)],
        {"state_dict": 3},
        {"model": torch.ones(2)},
        {"state_dict": {"model": None}},
        {1: torch.ones(2)},
    ],
    ids=range(6),
)
def test_checkpoints_that_hold_no_weights_are_refused(tmp_path, content):
    file = tmp_path / "other.pth"
    torch.save(content, file)
    with pytest.raises(pp.UserError, match="holds weights of another network: it lacks weight, bias") as caught:
        load_start(nn.Linear(2, 2), file)
    assert "\n" not in str(caught.value)


def test_weights_of_another_network_are_refused(tmp_path):
    file = tmp_path / "other.safetensors"
    file.write_bytes(encode_weights(nn.Linear(2, 2).state_dict()))
    with pytest.raises(pp.UserError, match="holds weights of another network"):
        build_model("resnet18", {"width": 2, "weights": str(file)}, classes=3, channels=3)
    with pytest.raises(pp.UserError, match="there is no such file"):
        build_model("resnet18", {"width": 2, "weights": str(tmp_path / "none.pt")}, classes=3, channels=3)


@pytest.fixture(scope="module")
def run(timm, tmp_path_factory):
    """A timm network, started from a file that is gone after training."""
    folder = tmp_path_factory.mktemp("uri")
    torch.manual_seed(2)
    torch.save({"state_dict": timm.create_model("resnet10t", num_classes=9).state_dict()}, folder / "start.pt")
    chosen = [*TINY, "model.name=timm:resnet10t", f"model.weights={folder / 'start.pt'}", "train.lr=0.001"]
    chosen += ["method.name=pde_plus_stages"]
    done = pp.train(pp.load_config("demo", chosen), folder / "run")
    (folder / "start.pt").unlink()
    return done


def test_a_run_is_loaded_without_its_start_weights(run):
    assert run.model.fc.out_features == len(run.expects.classes)
    facts = json.loads((run.path / "model.json").read_text())["facts"]
    assert Facts.read(facts) == facts_of("timm:resnet10t", {}) == run.expects.facts
    assert (run.path / "model.json").read_text().count("facts") == 1
    assert run.metrics[0]["sigma/layer4"] > 0


def test_a_run_keeps_its_input_whatever_the_library_says_later(run, monkeypatch):
    before = run.model.input_mean
    monkeypatch.setattr("pdeplus.models._timm._facts", lambda name, options: None)
    assert torch.equal(run.model.input_mean, before)


def test_images_are_of_the_networks_size_unless_it_is_set(timm):
    from pdeplus.training.run_folder import fitted

    name = ["data.name=synthetic", "model.name=timm:resnet10t"]
    assert fitted(pp.load_config("demo", name)).data.options["size"] == 176
    assert fitted(pp.load_config("demo", [*name, "data.size=40"])).data.options["size"] == 40
    plain = pp.load_config("demo")
    assert fitted(plain) == plain


def test_nothing_is_imported_to_read_a_config(timm):
    assert find_uri("timm:no_such_network").facts


PROCESSOR = {
    "do_normalize": True, "image_mean": [0.5, 0.4, 0.3], "image_std": [0.2, 0.25, 0.3], "resample": 3,
    "size": {"shortest_edge": 40}, "do_center_crop": True, "crop_size": {"height": 32, "width": 32},
}  # fmt: skip


@pytest.fixture(scope="module")
def hub_folder(tmp_path_factory):
    """A network of transformers as the hub has it: config, image processor, weights."""
    transformers, folder = peer("transformers"), tmp_path_factory.mktemp("hub") / "tiny"
    config = transformers.ResNetConfig(
        embedding_size=8, hidden_sizes=[8, 16], depths=[1, 1], layer_type="basic", num_labels=7
    )
    torch.manual_seed(3)
    network = transformers.ResNetForImageClassification(config)
    network.save_pretrained(folder)
    (folder / "preprocessor_config.json").write_text(json.dumps(PROCESSOR))
    return folder, network.eval()


def test_transformers_networks_bring_their_config_and_image_processor(hub_folder):
    folder, theirs = hub_folder
    facts = facts_of(f"hf:{folder}", {})
    assert (facts.size, facts.crop, facts.interpolation) == (32, 0.8, "bicubic")
    net = build_model(f"hf:{folder}", {}, classes=3, channels=3).eval()
    assert net.input_std.flatten().tolist() == pytest.approx([0.2, 0.25, 0.3])
    assert placed(net, "stage") == ["resnet.encoder.stages.0", "resnet.encoder.stages.1"]
    x = torch.rand(2, 3, 32, 32)
    with torch.no_grad():
        assert net(x).shape == (2, 3)
        net.classifier[1].load_state_dict(
            {"weight": theirs.classifier[1].weight[:3], "bias": theirs.classifier[1].bias[:3]}
        )
        assert torch.allclose(net(x), theirs((x - net.input_mean) / net.input_std).logits[:, :3], atol=1e-5)
    by_file = build_model(str(folder / "model.safetensors"), {}, classes=3, channels=3)
    assert torch.equal(
        by_file.resnet.encoder.stages[1].layers[0].layer[0].convolution.weight,
        theirs.resnet.encoder.stages[1].layers[0].layer[0].convolution.weight,
    )


def test_a_run_of_a_hub_network_needs_no_hub_again(hub_folder, tmp_path):
    source, _ = hub_folder
    folder = tmp_path / "copy"
    shutil.copytree(source, folder)
    chosen = [*TINY, f"model.name=hf:{folder}", "method.name=erm", "train.lr=0.001"]
    run = pp.train(pp.load_config("demo", chosen), tmp_path / "run")
    shutil.rmtree(folder)
    x = torch.rand(2, 3, 32, 32)
    assert torch.equal(Run.load(run.path).model(x), run.model(x))
    assert run.model(x).shape == (2, len(run.expects.classes))


def test_a_folder_of_timms_is_read_by_its_config(timm, tmp_path):
    theirs = timm.create_model("resnet10t", num_classes=5)
    (tmp_path / "model.safetensors").write_bytes(encode_weights(theirs.state_dict()))
    shown = {"input_size": [3, 64, 64], "mean": [0.1, 0.2, 0.3], "std": [1, 1, 1], "crop_pct": 0.9}
    (tmp_path / "config.json").write_text(json.dumps({"architecture": "resnet10t", "pretrained_cfg": shown}))
    net = build_model(f"hf:{tmp_path}", {}, classes=3, channels=3)
    assert torch.equal(net.layer1[0].conv1.weight, theirs.layer1[0].conv1.weight)
    assert net.input_mean.flatten().tolist() == pytest.approx([0.1, 0.2, 0.3])
    assert facts_of(f"hf:{tmp_path}", {}).crop == 0.9


TIMMS = {"architecture": "resnet10t", "pretrained_cfg": {"input_size": [3, 32, 32], "mean": [0], "std": [1]}}
HUBS = {"model_type": "resnet"}


@pytest.mark.parametrize(
    ("config", "processor"),
    [
        ({**TIMMS, "model_args": {"checkpoint_path": "evil.pth"}}, {}),
        ({**TIMMS, "model_args": {"pretrained": True, "pretrained_cfg": {"file": "evil.pth"}}}, {}),
        ({**TIMMS, "architecture": "local-dir:."}, {}),
        ({**TIMMS, "architecture": 5}, {}),
        ({**TIMMS, "model_args": {"unheard_of": 1}}, {}),
        ({**TIMMS, "pretrained_cfg": None}, {}),
        ({**TIMMS, "pretrained_cfg": {"input_size": "x"}}, {}),
        (HUBS, {}),
        (HUBS, {"size": None}),
        (HUBS, {"size": 32, "image_mean": "x"}),
        ({**HUBS, "hidden_sizes": "abc"}, PROCESSOR),
        ({**HUBS, "model_type": 3}, PROCESSOR),
    ],
)
def test_a_strangers_config_reads_no_other_file_and_is_one_line_where_it_makes_no_sense(config, processor, tmp_path):
    peer("timm"), peer("transformers")
    for name, content in (("config", config), ("preprocessor_config", processor)):
        (tmp_path / f"{name}.json").write_text(json.dumps(content))
    with pytest.raises(pp.UserError, match="hf:.*(no network|cannot be fetched)") as caught:
        build_model(f"hf:{tmp_path}", UNTRAINED, classes=3, channels=3)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("labels", [{"a": "b"}, [1], 3])
def test_class_names_that_are_none_are_one_line(labels, tmp_path):
    (tmp_path / "config.json").write_text(json.dumps({**HUBS, "id2label": labels}))
    with pytest.raises(pp.UserError, match="no network can be made of its config.json"):
        find_uri(f"hf:{tmp_path}").own_classes()


def test_what_is_missing_of_a_hub_network_is_answered(tmp_path, monkeypatch):
    peer("transformers")
    from huggingface_hub import constants

    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path))
    weights = tmp_path / "some.safetensors"
    weights.write_bytes(encode_weights(nn.Linear(2, 2).state_dict()))
    (tmp_path / "empty").mkdir()
    for name, answer in {
        "hf:nobody/nothing": "hf:nobody/nothing cannot be fetched .*hf download nobody/nothing",
        f"hf:{tmp_path / 'empty'}": "has no config.json; a folder in the Hugging Face hub's layout",
        str(weights): "no config.json beside it says of which network; use timm:NAME.weights=",
        "gone/model.safetensors": "'gone/model.safetensors': there is no such file or folder",
        "network.onnx": "holds a finished network, which can be evaluated",
    }.items():
        with pytest.raises(pp.UserError, match=answer):
            build_model(name, {}, classes=3, channels=3)


def test_a_repository_without_a_config_is_one_line(tmp_path, monkeypatch):
    hub = peer("huggingface_hub")
    for name, value in {"HF_HUB_OFFLINE": False, "HF_HUB_CACHE": str(tmp_path)}.items():
        monkeypatch.setattr(peer("huggingface_hub.constants"), name, value)
    with local_hub() as (endpoint, repositories):
        repositories["someone/bare"] = {"model.safetensors": b""}
        monkeypatch.setattr(hub, "hf_hub_download", partial(hub.hf_hub_download, endpoint=endpoint))
        with pytest.raises(pp.UserError, match=r"^hf:someone/bare has no config.json, which says what the network is"):
            facts_of("hf:someone/bare", {})


def test_the_hubs_client_does_not_tell_of_each_try(monkeypatch):
    hub, told, log = peer("huggingface_hub"), [], logging.getLogger("huggingface_hub.utils._http")
    monkeypatch.setattr(log, "handle", told.append)

    def fail(*given):
        log.warning("Retrying in 1s")
        raise OSError("no network")

    monkeypatch.setattr(hub, "hf_hub_download", fail)
    with pytest.raises(
        pp.UserError, match="cannot be fetched .OSError: no network.; fetch it where there is a network"
    ):
        facts_of("hf:microsoft/resnet-18", {})
    assert not told
    log.warning("what others do with it")
    assert told
