"""Models and images that a user brings: functions, modules, peers' classifiers, ONNX files; and what can be wrong."""

import json
import shutil
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from support.peers import peer
from support.runs import by_hand, digits, numbers, pair, spoilt
from torch import nn

import pdeplus as pp
from pdeplus.errors import RunFailed, UserError
from pdeplus.evaluation.records import read_records
from pdeplus.training.run_folder import Run

TEST = pair(digits(60))


class Ink(nn.Module):
    """Logits that follow from an image by hand: ten weighted sums of its pixels."""

    def __init__(self, classes: int = 10):
        super().__init__()
        self.linear = nn.Linear(3 * 64, classes)

    def forward(self, x):
        return self.linear(x.flatten(1))


@pytest.fixture(scope="module")
def ink() -> nn.Module:
    """Good at digits: fitted to the very test images, so that it is well above chance."""
    images = digits()
    x, y = images.floats().flatten(1), nn.functional.one_hot(images.labels, 10).float()
    model = Ink()
    with torch.no_grad():
        model.linear.weight.copy_(4 * torch.linalg.lstsq(x, y, driver="gelsd").solution.T)
        model.linear.bias.zero_()
    return model


@pytest.mark.parametrize("kind", ["module", "function", "with .logits", "probabilities"])
def test_any_function_of_images_is_evaluated(ink, kind):
    given = {
        "module": ink,
        "function": lambda x: ink(x),
        "with .logits": lambda x: SimpleNamespace(logits=ink(x)),
        "probabilities": lambda x: ink(x).softmax(-1),
    }[kind]
    outputs = "probabilities" if kind == "probabilities" else "logits"
    records = pp.evaluate(given, severities=(4,), data=TEST, outputs=outputs, name="ink")
    assert len(records) == 16
    images = digits(60)
    for r in records:
        if r.corruption in ("clean", "fog", "gaussian_noise"):
            x = images.floats() if r.corruption == "clean" else spoilt(images, r.corruption, 4)
            expected = by_hand(ink(x), images.labels)
            assert {name: getattr(r, name) for name in expected} == pytest.approx(expected, rel=1e-4, abs=1e-6)
    assert {(r.model, r.selection, r.temperature) for r in records} == {("ink", "given", None)}
    assert records[0].data == "given images"


def test_a_module_says_what_it_costs(ink):
    (record,) = pp.evaluate(ink, "clean", data=TEST)
    assert record.model == "Ink"
    assert record.parameters == 192 * 10 + 10
    assert record.flops == 2 * 192 * 10


def test_a_module_in_training_mode_is_tested_in_eval_mode(net):
    x = torch.rand(20, 3, 16, 16)
    labels = net(x).argmax(-1)
    (record,) = pp.evaluate(net.train(), "clean", data=((x * 255).round().byte(), labels))
    assert net.training
    assert record.accuracy > 0.8  # with a batch's own statistics it would say something else


def test_a_module_with_add_blocks_can_be_sampled(net):
    x = torch.rand(20, 3, 16, 16)
    data = ((x * 255).round().byte(), net(x).argmax(-1))
    noisy = pp.add_diffusion(net, ["layer1"], x, initial_scale=0.5)
    plain, first, second = (pp.evaluate(noisy, "clean", data=data, samples=e)[0] for e in (0, 4, 4))
    assert plain.nll == pytest.approx(pp.evaluate(net, "clean", data=data)[0].nll, rel=1e-4)
    assert first.nll == second.nll != plain.nll
    assert plain.parameters == sum(p.numel() for p in net.parameters()) < first.parameters
    with pytest.raises(UserError, match="samples=4: the model has no ADD blocks"):
        pp.evaluate(net, "clean", data=data, samples=4)
    with pytest.raises(UserError, match="samples=4 needs a model that returns logits"):
        pp.evaluate(noisy, "clean", data=data, samples=4, outputs="probabilities")


def test_models_are_told_apart_by_what_they_say(ink, tmp_path):
    calls, divisor = [], 1

    def model(x):
        calls.append(len(x))
        return ink(x) / divisor

    for divisor in (1, 1, 2):  # noqa: B007 (the function sees it)
        records = pp.evaluate(model, "clean", data=TEST, out=tmp_path / "function")
    assert calls == [8, 60, 8, 8, 60]  # eight images tell whether it is another
    assert len(read_records(tmp_path / "function" / "records.jsonl")) == 2
    assert records[0].nll == pytest.approx(by_hand(ink(TEST[0].float() / 255) / 2, TEST[1])["nll"], rel=1e-4)
    first = pp.evaluate(ink, "clean", data=TEST, out=tmp_path / "module")
    assert pp.evaluate(ink, "clean", data=TEST, out=tmp_path / "module", watch=calls.append) == first


def test_images_as_arrays_in_either_order_and_as_floats(ink):
    pixels, labels = TEST
    last = np.ascontiguousarray(pixels.permute(0, 2, 3, 1).numpy())
    last.flags.writeable = False  # as mapped files are
    floats = pixels.double() / 255
    forms = [(pixels, labels), (last, labels.numpy()), (floats, labels.tolist())]
    records = [numbers(pp.evaluate(ink, severities=(2,), data=form)) for form in forms]
    assert records[0] == records[1] == records[2]
    one = pp.evaluate(ink, "clean", data=(pixels[:1], labels[:1]))
    assert one[0].n == 1


def test_other_images_are_other_data(ink, tmp_path):
    first = pp.evaluate(ink, "clean", data=TEST, out=tmp_path)
    second = pp.evaluate(ink, "clean", data=(TEST[0] // 2, TEST[1]), out=tmp_path)
    assert first[0].origin != second[0].origin
    assert first[0].nll != second[0].nll


def test_hugging_face_classifier():
    hf = peer("transformers")
    config = hf.ResNetConfig(embedding_size=8, hidden_sizes=[8, 16], depths=[1, 1], layer_type="basic", num_labels=10)
    check_peer(hf.ResNetForImageClassification(config), lambda model, x: model(x).logits)


@pytest.mark.parametrize("name", ["resnet18", "vit_tiny_patch16_224"])
def test_timm_classifier(name):
    options = {"img_size": 32} if "vit" in name else {}
    check_peer(peer("timm").create_model(name, num_classes=10, **options), lambda model, x: model(x))


@torch.no_grad()
def check_peer(model, logits_of):
    x = torch.randint(0, 256, (6, 3, 32, 32), dtype=torch.uint8)
    z = logits_of(model.eval(), x.float() / 255)
    labels = z.argmax(-1)
    (record,) = pp.evaluate(model, "clean", data=(x, labels))
    assert record.correct == 6
    assert record.nll == pytest.approx(by_hand(z, labels)["nll"], rel=1e-4)
    assert record.parameters == sum(p.numel() for p in model.parameters())


def test_an_exported_run_scores_what_the_run_scores(erm, tmp_path):
    pytest.importorskip("onnx")
    pytest.importorskip("onnxruntime")
    from pdeplus.evaluation.deployment import export

    file = export(erm, "onnx", tmp_path / "mine.onnx", selection="validation").path
    options = {"severities": (5,), "data": TEST}
    of_run = pp.evaluate(erm, **options, out=tmp_path / "run")
    of_file = pp.evaluate(str(file), **options, out=tmp_path / "file")
    assert [r.hits for r in of_file] == [r.hits for r in of_run]
    assert [r.nll for r in of_file] == pytest.approx([r.nll for r in of_run], rel=1e-4)
    assert of_file[0].model == "mine"
    told = []
    pp.evaluate(file, **options, out=tmp_path / "file", watch=lambda *_: told.append(1))
    assert not told  # the file's bytes are its weights
    wide = (torch.zeros(3, 3, 9, 9, dtype=torch.uint8), [0, 1, 2])
    with pytest.raises(UserError, match="mine.onnx takes floats of B×3×8×8, not float32 of 3×3×9×9"):
        pp.evaluate(file, "clean", data=wide)
    with pytest.raises(UserError, match="there is no such file"):
        pp.evaluate(tmp_path / "nothing.onnx", "clean", data=TEST)


@pytest.mark.parametrize(
    ("images", "labels", "message"),
    [
        (torch.rand(4, 3, 8, 8) * 255, [0, 1, 2, 3], r"images run from .* to 25\d; give them in \[0, 1\] or as bytes"),
        (
            torch.randn(4, 3, 8, 8),
            [0, 1, 2, 3],
            "already normalised: they run from -.*put any normalisation into the model",
        ),
        (torch.full((4, 3, 8, 8), float("nan")), [0, 1, 2, 3], "images run from nan"),
        (torch.zeros(4, 3, 8, 8).int(), [0, 1, 2, 3], "bytes or floats in .*, not int32"),
        (torch.zeros(4, 8, 8).byte(), [0, 1, 2, 3], "four dimensions"),
        (torch.zeros(0, 3, 8, 8), [], "there are no images"),
        (torch.zeros(4, 3, 8, 8), [0, 1], "4 images need as many labels in one row, not 2"),
        (torch.zeros(4, 3, 8, 8), [0, 1, 2, -1], "labels start at 0; the least is -1"),
        (torch.zeros(4, 3, 8, 8), np.eye(4), "4 images need as many labels in one row, not 4×4"),
    ],
)
def test_images_in_a_wrong_form_are_refused(ink, images, labels, message):
    with pytest.raises(UserError, match=message):
        pp.evaluate(ink, "clean", data=(images, labels))


@pytest.mark.parametrize(
    ("model", "options", "message"),
    [
        (lambda x: x.flatten(1)[:, :10].softmax(-1), {}, "returns probabilities: .* set outputs='probabilities'"),
        (lambda x: x.flatten(1)[:, :10], {"outputs": "probabilities"}, "rows do not sum to 1; set outputs='logits'"),
        (lambda x: x.flatten(1)[:, :10], {"outputs": "scores"}, "outputs='scores' is not known"),
        (lambda x: x.flatten(1)[:, :9], {}, "has 9 classes, .* has 10"),
        (lambda x: x, {}, "returns 8×3×8×8 for 8 images; 8×classes is needed"),
        (lambda x: x.flatten(1)[:7], {}, "returns 7×192 for 8 images"),
        (lambda x: [1, 2], {}, "returns list; a tensor or .logits is needed"),
        (3, {}, "a int cannot be evaluated"),
        (Ink(), {"batch_size": 0}, "batch_size=0 must be at least 1"),
        (Ink(), {"suite": "corruption"}, "suite='corruption' is not known; choose from clean, corruptions"),
        (Ink(), {"data": [1, 2]}, r"data must be .*, a folder, a Source, a pair \(images, labels\) or a Dataset"),
        (Ink(), {"data": None}, "say what to test on"),
        (Ink(), {"suite": "domains"}, "has one test set, 'clean'; domains need several"),
    ],
)
def test_models_and_options_that_do_not_fit_are_refused_in_one_line(model, options, message):
    with pytest.raises(UserError, match=message) as caught:
        pp.evaluate(model, **{"suite": "clean", "data": TEST, **options})
    assert "\n" not in str(caught.value)


def test_given_labels_tell_only_the_least_number_of_classes(ink):
    pixels, labels = TEST
    few = labels < 5
    (record,) = pp.evaluate(ink, "clean", data=(pixels[few], labels[few]))
    assert record.n == int(few.sum())


def test_two_channels_have_no_corruptions_but_can_be_tested(tmp_path):
    data = (torch.randint(0, 256, (6, 2, 8, 8), dtype=torch.uint8), [0, 1, 0, 1, 0, 1])

    def model(x):
        return torch.stack([x[:, 0].mean((1, 2)), x[:, 1].mean((1, 2))], 1) * 9

    with pytest.raises(UserError, match="^corruptions need images of one or three channels, not 2$"):
        pp.evaluate(model, data=data, out=tmp_path)
    five = (torch.randint(0, 256, (6, 5, 8, 8), dtype=torch.uint8), [0, 1, 0, 1, 0, 1])
    for tested in (data, five):
        (record,) = pp.evaluate(model, "clean", data=tested, out=tmp_path)
        assert record.n == 6  # too few to say that it only guesses


def test_output_that_is_not_finite_names_the_test_set(ink, tmp_path):
    clean = digits(60).floats()

    def model(x):
        return ink(x) if torch.equal(x, clean) else ink(x) * float("nan")

    with pytest.raises(RunFailed, match="^the model's output is not finite on gaussian_noise 2$"):
        pp.evaluate(model, severities=(2,), data=TEST, out=tmp_path)
    assert [r.corruption for r in read_records(tmp_path / "records.jsonl")] == ["clean"]
    with pytest.raises(RunFailed, match="^the model's output is not finite on clean$"):
        pp.evaluate(lambda x: ink(x) * float("inf"), "clean", data=TEST)


def test_a_model_that_only_guesses_is_pointed_to_its_input():
    def model(x):
        return torch.eye(10)[[0] * len(x)] * 3

    text = r"^model is right on \d+\.\d % of the clean images, no better than chance; it receives floats in \[0, 1\]"
    with pytest.warns(UserWarning, match=text) as caught:
        pp.evaluate(model, "clean", data=TEST)
    assert caught[0].filename == __file__


def test_a_file_of_code_is_answered_with_the_name_to_give(tmp_path):
    (tmp_path / "net.py").touch()
    for name in ("net", "net.py"):
        with pytest.raises(UserError, match=r"not a run folder.*dotted name: my_package\.net$"):
            pp.evaluate(tmp_path / name, "clean", data=TEST)


def test_runs_that_cannot_be_tested_are_refused_in_one_line(erm, tmp_path):
    with pytest.raises(UserError, match="is not a run folder: it has no config.toml .and no config.json"):
        pp.evaluate(tmp_path, "clean")
    begun = Run.load(shutil.copytree(erm.path, tmp_path / "begun"))
    (begun.path / "best.safetensors").unlink()
    with pytest.raises(
        UserError, match=r"begun is unfinished, 2 of 2 epochs are done; finish it: pdeplus train --resume"
    ):
        pp.evaluate(begun, "clean")
    with pytest.raises(UserError, match="has 10 classes, synthetic has 7"):
        pp.evaluate(erm, "clean", data="synthetic")
    with pytest.raises(UserError, match="takes images of 3 channels, those of given .* have 1"):
        pp.evaluate(erm, "clean", data=pair(digits(20, channels=1)))
    with pytest.raises(UserError, match="selection='best' is not known"):
        pp.evaluate(erm, "clean", selection="best")
    with pytest.raises(UserError, match="selection='given' is for models that are not runs"):
        pp.evaluate(erm, "clean", selection="given")
    with pytest.raises(UserError, match="'cifar11'"):
        pp.evaluate(erm, "clean", data="cifar11")


def test_a_run_folder_of_another_version_says_so(erm, tmp_path):
    other = shutil.copytree(erm.path, tmp_path / "other")
    config = (other / "config.toml").read_text()
    (other / "config.toml").write_text(config.replace("[train]\n", "[train]\nmagic = 3\n"))
    sessions = json.loads((other / "environment.json").read_text())
    (other / "environment.json").write_text(json.dumps([sessions[0] | {"pdeplus": "99.0"}]))
    with pytest.raises(
        UserError, match=rf"written by pdeplus 99.0 and this is {pp.__version__}, which cannot read its config: .*magic"
    ):
        pp.evaluate(other, "clean")
