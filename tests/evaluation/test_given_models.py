"""Models by name under test, folders of pictures, partial tests, adapted BatchNorm, corruptions of one's own."""

import re
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file
from support.data_files import write_class_folders
from support.peers import peer
from support.runs import by_hand, digits, pair, trained
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import pdeplus as pp
from pdeplus.corruptions.suite import corrupt
from pdeplus.data.image_folder import ImageFolder
from pdeplus.errors import UserError
from pdeplus.evaluation.deployment import export, predict_pictures
from pdeplus.evaluation.given_models import class_order, folder_for, open_model
from pdeplus.evaluation.summary import on_measured_tests, scores, series_of

pytestmark = pytest.mark.filterwarnings("ignore:.*no better than chance")
CLASSES = ("cat", "dog", "owl")
TINY = "timm:test_resnet?pretrained=false"
NET = """
from torch import nn
def build(*, classes: int, channels: int, width: int = 4) -> nn.Module:
    return nn.Sequential(nn.Conv2d(channels, width, 3), nn.BatchNorm2d(width), nn.ReLU(), nn.AdaptiveAvgPool2d(1),
                         nn.Flatten(), nn.Linear(width, classes))
"""


@pytest.fixture
def place(tmp_path, monkeypatch) -> Path:
    """A folder to work in, with pictures of three classes and a network of one's own."""
    write_class_folders(tmp_path / "pictures", CLASSES, 4, seed=0)
    (tmp_path / "own_package_of_tests").mkdir()
    (tmp_path / "own_package_of_tests" / "net.py").write_text(NET)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    return tmp_path


def test_classes_are_matched_by_name_whatever_their_order_and_signs():
    assert class_order(CLASSES, CLASSES, "d") is None
    assert class_order(("owl", "Cat", "dog"), ("cat", "dog", "owl"), "d") == [1, 2, 0]
    words = ("tench, Tinca tinca, n01440764", "crane, n02012849", "crane, n03126707", "great_white shark, n01484850")
    assert class_order(words, ("n01484850", "Tinca-Tinca"), "d") == [3, 0, 1, 2]
    assert class_order(("0", "1", "2"), CLASSES, "d") is None
    assert class_order(("0", "1", "10"), ("0", "10", "1"), "d") == [0, 2, 1]
    with pytest.raises(UserError, match="has 4 classes, d has 1: .* the model's: tench, crane, .*; of d: crane"):
        class_order(words, ("crane",), "d")  # which of the two?
    with pytest.raises(UserError, match="model's: cat, dog, owl; of d: cat, dog, hen"):
        class_order(CLASSES, ("cat", "dog", "hen"), "d")


def test_lazy_layers_are_answered_in_one_line(place):
    lazy = NET.replace("nn.Linear(width, classes)", "nn.LazyLinear(classes)")
    (place / "own_package_of_tests" / "lazy.py").write_text(lazy)
    with pytest.raises(UserError, match="own_package_of_tests.lazy has lazy layers without a size; let its build call"):
        open_model("own_package_of_tests.lazy", CLASSES)


def test_a_network_by_uri_is_tested_on_a_folder_as_it_takes_pictures(place):
    peer("timm")
    said = []
    records = pp.evaluate(TINY, "clean", data="pictures", say=said.append)
    facts = "images of 160 pixels, normalised by mean [0.5, 0.5, 0.5] and deviation [0.5, 0.5, 0.5]; 3 classes"
    assert said == [f"timm:test_resnet: {facts}"]
    assert "data.crop=0.95" in records[0].origin
    assert "3×160×160" in records[0].origin
    net = open_model(TINY, CLASSES).model
    images = ImageFolder(root="pictures", held_out=1.0, size=160, crop=0.95).test()["test"]
    with torch.no_grad():
        expected = by_hand(net(images.floats()), images.labels)
    assert records[0].n == 12
    assert records[0].nll == pytest.approx(expected["nll"], rel=1e-4)
    assert records[0].classes == CLASSES
    assert sum(n for *_, n in records[0].confusion) == 12
    assert sum(n for a, b, n in records[0].confusion if a == b) == records[0].correct


def test_images_of_another_size_are_resized_for_a_network_by_uri(place):
    peer("timm")
    x = torch.randint(0, 256, (4, 3, 20, 20), dtype=torch.uint8)
    labels = torch.tensor([0, 1, 2, 0])
    (record,) = pp.evaluate(TINY + "&drop_rate=0", "clean", data=(x, labels))
    net = open_model(TINY).model
    big = nn.functional.interpolate(x.float() / 255, (160, 160), mode="bilinear", antialias=True)
    with torch.no_grad():
        assert record.nll == pytest.approx(by_hand(net(big), labels)["nll"], rel=1e-4)


def test_weights_in_a_file_bring_their_own_head(place):
    peer("timm")
    net = open_model(TINY, CLASSES).model
    weights = {name: tensor for name, tensor in net.state_dict().items() if not name.startswith("input_")}
    save_file(weights, "mine.safetensors")
    given = open_model("timm:test_resnet?weights=mine.safetensors")  # without data to tell how many classes
    x = torch.rand(2, 3, 160, 160)
    assert given.expects.classes == ("0", "1", "2")
    assert given.label == "timm:test_resnet (mine)"
    assert torch.equal(given.model(x), net(x))
    assert torch.equal(pp.load_model("timm:test_resnet?weights=mine.safetensors")(x), net(x))
    write_class_folders(place / "four", ("a", "b", "c", "d"), 2, seed=0)
    with pytest.raises(UserError, match="has 3 classes, four has 4"):
        pp.evaluate("timm:test_resnet?weights=mine.safetensors", data="four")
    del weights["fc.weight"], weights["fc.bias"]
    save_file(weights, "headless.safetensors")
    with pytest.raises(UserError, match=r"headless.safetensors: the file lacks fc.weight, fc.bias"):
        open_model("timm:test_resnet?weights=headless.safetensors")


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("tim:resnet18", "the scheme 'tim' is not known; did you mean 'timm'"),
        ("timm:resnet81", "timm has no network 'resnet81'; similar: resnet18"),
        ("empty/model.safetensors", "holds weights, but no config.json"),
        ("hf:empty", "empty has no config.json"),
        ("nothing.onnx", "nothing.onnx: there is no such file"),
        ("nothing.pt2", "nothing.pt2: there is no such file"),
        ("broken.pt2", "broken.pt2 cannot be read as an exported program"),
        ("own_package_of_tests.net?width=x", "model.width='x' must be a whole number"),
        ("no_such_module.net", "'no_such_module.net' cannot be imported"),
        ("broken.pt2?mean=[0.5]", "a file takes mean and std, both or neither"),
    ],
)  # fmt: skip
def test_names_that_stand_for_no_model_cost_one_line(place, name, words):
    peer("timm")
    (place / "empty").mkdir()
    (place / "empty" / "model.safetensors").touch()
    (place / "broken.pt2").write_bytes(b"nonsense")
    with pytest.raises(UserError, match=re.escape(words)) as caught:
        pp.evaluate(name, data="pictures")
    assert "\n" not in str(caught.value)


def test_an_exported_program_answers_as_the_network_of_ones_own(place):
    given = open_model("own_package_of_tests.net", CLASSES)
    made = export(given, "torch", place / "net.pt2")
    assert made.path.is_file()
    second = pp.evaluate("net.pt2", "clean", data="pictures?size=224")
    third = pp.evaluate("own_package_of_tests.net", "clean", data="pictures?size=224")
    assert second[0].nll == pytest.approx(third[0].nll, rel=1e-4)
    rows = list(predict_pictures(open_model("net.pt2"), ["pictures/cat"]))
    assert len(rows) == 4
    assert {name for row in rows for name, _ in row.top} == set(CLASSES)
    with pytest.raises(UserError, match="net is an exported file already"):
        export(open_model("net.pt2"), "torch", place / "again.pt2")
    moved = open_model("net.pt2?mean=[0.5,0.5,0.5]&std=[2,2,2]")
    x = torch.rand(2, 3, 224, 224)
    assert torch.allclose(moved.model(x), open_model("net.pt2").model((x - 0.5) / 2))


def test_what_of_a_folder_is_the_test(place, tmp_path):
    assert len(folder_for("pictures", []).test()["test"]) == 12
    with pytest.raises(UserError, match="no pictures to train on"):
        folder_for("pictures", []).train()
    (place / "only").mkdir()
    (place / "pictures").rename(place / "only" / "test")
    source = folder_for("only?size=8", [])
    assert (len(source.test()["test"]), source.size, source.classes) == (12, 8, CLASSES)
    with pytest.raises(UserError, match="no pictures to train on"):
        source.train()
    with pytest.raises(UserError, match="there is no such folder"):
        pp.evaluate(lambda x: x, data="no/such")
    with pytest.raises(UserError, match="a folder takes size, crop"):
        folder_for("only?colour=1", [])


def test_of_the_folder_a_run_learnt_from_only_what_it_held_out_is_tested(tmp_path):
    write_class_folders(tmp_path / "mine", CLASSES, 10, seed=0)
    options = ("data.name=image_folder", f"data.root={tmp_path / 'mine'}", "data.size=8", "train.epochs=1")
    run = trained(tmp_path / "run", "method.name=erm", *options)
    other = lambda x: torch.zeros(len(x), 3)  # noqa: E731
    shared = folder_for(str(tmp_path / "mine"), [str(run.path), other])
    assert pp.evaluate(run, "clean", data=str(tmp_path / "mine"), out=tmp_path / "a")[0].n == 6
    assert pp.evaluate(other, "clean", data=shared)[0].n == 6


def test_a_partial_test_gives_a_mean_that_says_what_it_is_over():
    model = lambda x: x.flatten(1)[:, :10] * 9  # noqa: E731
    records = pp.evaluate(model, data=pair(digits(40)), corruptions=["fog", "snow"], severities=(1, 4))
    assert [r.cell for r in records] == [("clean", 0), ("fog", 1), ("fog", 4), ("snow", 1), ("snow", 4)]
    (series,) = on_measured_tests(series_of(records))
    assert series.extent == "snow, fog × severities 1, 4"
    found = scores(series)
    assert found["part"].mean == pytest.approx(sum(r.accuracy for r in records[1:]) / 4)
    assert found["ece"].mean == pytest.approx(sum(r.ece for r in records[1:]) / 4)
    assert "corrupted" not in found
    torn = on_measured_tests(series_of(records[:-1]))  # interrupted: no product of corruptions and severities
    assert torn[0].part is None
    assert "part" not in scores(torn[0])
    with pytest.raises(UserError, match="corruption 'fogg' is not known; did you mean 'fog'"):
        pp.evaluate(model, data=pair(digits(40)), corruptions=["fogg"])


def test_a_corruption_of_ones_own_is_seeded_and_known_by_its_code(tmp_path, monkeypatch):
    code = "import torch\ndef rain(image, severity, generator):\n"
    code += "    return image + severity * torch.rand(1, generator=generator) / 20\n"
    (tmp_path / "own_rain_of_tests.py").write_text(code + "def bad(image, severity, generator):\n    return image[0]\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    images = digits(6).images.permute(0, 2, 3, 1).contiguous()
    first, second, third = (
        corrupt(images, "own_rain_of_tests.rain", s, seed=seed) for s, seed in ((3, 0), (3, 0), (3, 1))
    )
    assert torch.equal(first, second)
    assert not torch.equal(first, third)
    added = (first.int() - images.int())[images < 200].float()
    assert 0 < added.max() <= 3 / 20 * 255
    records = pp.evaluate(lambda x: x.flatten(1)[:, :10], data=pair(digits(6)), corruptions=["own_rain_of_tests.rain"])
    assert len(records) == 6
    assert re.search(r"own_rain_of_tests.rain #\w{6}\)", records[1].origin)
    with pytest.raises(UserError, match="own_rain_of_tests.bad makes 8×8 of an image of 3×8×8"):
        corrupt(images, "own_rain_of_tests.bad")
    with pytest.raises(UserError, match="the module own_rain_of_tests has no function hail"):
        corrupt(images, "own_rain_of_tests.hail")


def test_adapted_batch_norm_takes_the_statistics_of_the_test_batch(net):
    x = torch.randint(0, 256, (30, 3, 16, 16), dtype=torch.uint8)
    data = x, torch.arange(30) % 10
    plain, adapted = (pp.evaluate(net, "clean", data=data, adapt=adapt, name="m")[0] for adapt in (False, True))
    with torch.no_grad():
        expected = {mode: by_hand(net.train(mode)(x.float() / 255), data[1])["nll"] for mode in (False, True)}
    assert plain.nll == pytest.approx(expected[False], rel=1e-3)
    assert adapted.nll == pytest.approx(expected[True], rel=1e-3)
    assert (plain.adapted, adapted.adapted) == (False, True)
    assert adapted.model == "m + BatchNorm of the test batch (uses test images)"
    with pytest.raises(UserError, match="Linear has no BatchNorm to adapt"):
        pp.evaluate(nn.Linear(16, 10), "clean", data=data, adapt=True)


def test_a_dataset_and_a_loader_are_images_and_labels():
    pixels, labels = pair(digits(20))
    model = lambda x: x.flatten(1)[:, :10] * 9  # noqa: E731
    floats = TensorDataset(pixels.float() / 255, labels)
    forms = [(pixels, labels), floats, DataLoader(floats, batch_size=7)]
    assert len({pp.evaluate(model, "clean", data=form)[0].nll for form in forms}) == 1
    normalised = TensorDataset((pixels.float() / 255 - 0.5) / 0.5, labels)
    with pytest.raises(UserError, match="images are already normalised: they run from -1 to 1; .* into the model"):
        pp.evaluate(model, "clean", data=normalised)
    with pytest.raises(UserError, match="its items are no"):
        pp.evaluate(model, "clean", data=TensorDataset(pixels))


def test_quick_tests_few_images_at_three_severities():
    pixels, labels = torch.zeros(310, 3, 8, 8, dtype=torch.uint8), torch.arange(310) % 10
    model = lambda x: x.flatten(1)[:, :10] + torch.arange(10)  # noqa: E731
    for quick, n, levels in ((True, 300, {1, 3, 5}), (None, 310, {1, 2, 3, 4, 5})):  # 8 pixels are not big
        records = pp.evaluate(model, data=(pixels, labels), quick=quick, corruptions=["contrast"])
        assert {r.n for r in records} == {n}
        assert {r.severity for r in records[1:]} == levels
