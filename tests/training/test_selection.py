"""Which epoch's weights: chosen without looking at the test, or, said so, by it."""

import pytest
import torch
from support.data_files import write_class_folders
from support.runs import by_hand, digits, pair, spoilt, sum_again, trained

import pdeplus as pp
from pdeplus._lib.files import read_weights
from pdeplus.corruptions.suite import CORRUPTIONS, EXTRA_CORRUPTIONS
from pdeplus.data.base import Images, split
from pdeplus.data.digits import Digits
from pdeplus.data.image_folder import ImageFolder
from pdeplus.errors import UserError
from pdeplus.evaluation.records import read_records
from pdeplus.training import loop as trainer
from pdeplus.training import selection
from pdeplus.training.run_folder import Run, score_of
from pdeplus.training.selection import MOST, shifted

CLEAN, SHIFTED = (0.9, 0.7, 0.55), (0.1, 0.6, 0.7)
"""Scripted accuracies of three epochs: the first is best when clean, the last when shifted, the second on average."""


@pytest.fixture(scope="module")
def run(tmp_path_factory) -> Run:
    """Three epochs, all kept, validated as scripted; the weights of the middle one are the best on the test."""

    def test(session, network, images, purpose):
        script = SHIFTED if purpose == "validate shifted" else CLEAN
        return script[len(session.progress.history)], 1.0

    folder = tmp_path_factory.mktemp("selection") / "run"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(trainer, "_test", test)
        run = trained(folder, "method.name=erm", "train.epochs=3", "train.keep_every=1")
    second, third = (run.path / "epochs" / f"000{k}.safetensors" for k in (2, 3))
    (before, after) = (second.read_bytes(), third.read_bytes())
    assert (run.path / "best.safetensors").read_bytes() == before
    second.write_bytes(after)
    third.write_bytes(before)
    sum_again(run)
    return run


def test_shifted_images_use_only_the_corruptions_that_no_test_has(monkeypatch):
    called = []
    original = selection.apply_planes

    def noting(corruption, pixels, places, severity, seed):
        called.append((corruption.name, severity, list(places)))
        return original(corruption, pixels, places, severity, seed)

    monkeypatch.setattr(selection, "apply_planes", noting)
    images = digits(100)
    made = shifted(images, 3)
    assert {name for name, _, _ in called} == set(EXTRA_CORRUPTIONS)
    assert not set(EXTRA_CORRUPTIONS) & set(CORRUPTIONS)
    assert {severity for _, severity, _ in called} == {1, 2, 3, 4, 5}
    assert [len(places) for _, _, places in called] == [5] * 20  # equal shares
    assert sorted(i for _, _, places in called for i in places) == list(range(100))
    for name, severity, places in called:
        some = images.take(torch.tensor(places))
        expected = pp.corrupt(some.images.permute(0, 2, 3, 1), name, severity, seed=3, indices=places)
        assert torch.equal(made.images[places], expected.permute(0, 3, 1, 2))
    assert torch.equal(made.labels, images.labels)


def test_shifted_images_depend_on_images_and_seed_alone():
    images = digits(50)
    assert torch.equal(shifted(images, 0).images, shifted(images, 0).images)
    assert not torch.equal(shifted(images, 0).images, shifted(images, 1).images)
    assert torch.equal(images.images, digits(50).images)


def test_few_many_grey_and_odd_images():
    assert len(shifted(digits(7), 0)) == 7
    assert shifted(digits(30, channels=1), 0).images.shape == (30, 1, 8, 8)
    assert shifted(digits(30, channels=2), 0) is None
    many = Images(torch.zeros(MOST + 5, 3, 8, 8, dtype=torch.uint8), torch.zeros(MOST + 5).long())
    assert len(shifted(many, 0)) == MOST


def test_metrics_tell_both_validation_accuracies(erm):
    parts = split(Digits(size=8), validation=erm.config.train.validation, limit=0, seed=0)
    last = erm.metrics[-1]
    for images, name in ((parts.validation, "accuracy"), (shifted(parts.validation, 0), "shifted_accuracy")):
        right = (erm.model(images.floats()).argmax(-1) == images.labels).float().mean()
        assert last[f"validation/{name}"] == pytest.approx(float(right), abs=1e-6)
    assert score_of(last) == (last["validation/accuracy"] + last["validation/shifted_accuracy"]) / 2
    assert score_of({"validation/accuracy": 0.7}) == 0.7  # of an older run, or of odd images


def test_the_best_epoch_has_the_best_mean_of_clean_and_shifted(run):
    assert [r["validation/accuracy"] for r in run.metrics] == list(CLEAN)
    assert [r["validation/shifted_accuracy"] for r in run.metrics] == list(SHIFTED)
    epoch, path = run.weights("validation")
    assert (epoch, path.name) == (2, "best.safetensors")  # the fixture compared its bytes with epoch 2's
    assert run.weights("last") == (3, run.path / "model.safetensors")
    assert path.read_bytes() != (run.path / "model.safetensors").read_bytes()
    with pytest.raises(UserError, match="selection='oracle' is not known"):
        run.weights("oracle")


def test_every_other_epoch_is_kept(tmp_path):
    options = ("method.name=erm", "train.epochs=3", "train.keep_every=2", "train.limit=80")
    run = trained(tmp_path / "run", *options)
    assert list(run.kept) == [2]
    assert run.load_weights(run.kept[2]).state_dict().keys() == run.model.state_dict().keys()


def test_selection_reaches_the_network(run, tmp_path):
    images = digits()
    for chosen, epoch, file in (("last", 3, "model"), ("validation", 2, "best")):
        (record,) = pp.evaluate(run, "clean", selection=chosen, out=tmp_path)
        net = run.load_weights(run.path / f"{file}.safetensors")
        assert (record.selection, record.epoch) == (chosen, epoch)
        assert record.nll == pytest.approx(by_hand(net(images.floats()), images.labels)["nll"], rel=1e-4)
    assert len(read_records(tmp_path / "records.jsonl")) == 2


def test_the_oracle_takes_the_kept_epoch_that_is_best_on_the_test_itself(run, tmp_path):
    images = digits(200)
    sums = {}
    for epoch, path in run.kept.items():
        net = run.load_weights(path)
        logits = {name: net(spoilt(images, name, 5)) for name in CORRUPTIONS}
        sums[epoch] = sum(by_hand(z, images.labels)["correct"] for z in logits.values())
    assert max(sums, key=sums.get) == 2, sums
    records = pp.evaluate(run, data=pair(images), severities=(5,), selection="oracle", out=tmp_path)
    assert {(r.selection, r.epoch) for r in records} == {("oracle", 2)}
    assert sum(r.correct for r in records[1:]) == sums[2]
    assert read_records(tmp_path / "records.jsonl") == records
    assert len(read_records(tmp_path / "oracle" / "records.jsonl")) == 3 * 16
    written = {path: path.read_bytes() for path in tmp_path.rglob("*.jsonl")}
    told = []
    again = pp.evaluate(
        run, data=pair(images), severities=(5,), selection="oracle", out=tmp_path, watch=lambda *_: told.append(1)
    )
    assert (again, told) == (records, [])
    assert len(written) == 2
    assert {path: path.read_bytes() for path in tmp_path.rglob("*.jsonl")} == written


def test_the_oracle_of_clean_images_goes_by_these(run, tmp_path):
    images = digits()
    right = {
        epoch: by_hand(run.load_weights(path)(images.floats()), images.labels)["correct"]
        for epoch, path in run.kept.items()
    }
    (record,) = pp.evaluate(run, "clean", selection="oracle", out=tmp_path)
    assert record.correct == max(right.values()) > right[1]


def test_the_oracle_needs_kept_epochs(erm):
    with pytest.raises(UserError, match="kept no epochs' weights; train with train.keep_every=1 for selection=oracle"):
        pp.evaluate(erm, "clean", selection="oracle")


def test_weights_on_disk_are_those_that_were_kept(run):
    assert not torch.equal(*(read_weights(path)["linear.weight"] for path in (run.kept[1], run.kept[2])))


@pytest.mark.parametrize("read_size", [0, 12])
def test_of_a_streamed_folder_nothing_is_kept_and_shifted_images_are_those_of_memory(tmp_path, read_size):
    write_class_folders(tmp_path, ("a", "b"), 40, 0)
    made = []
    for memory_gb in (1, 0):
        source = ImageFolder(root=str(tmp_path), size=8, read_size=read_size, memory_gb=memory_gb)
        validation = split(source, validation=0.5, limit=0, seed=0).validation
        made.append((validation, shifted(validation, 3)))
    (kept, in_memory), (streamed, from_disk) = made
    assert kept.stored.kept is not None
    assert isinstance(in_memory.stored, torch.Tensor)
    assert streamed.stored.kept is None
    assert from_disk.stored.kept is None
    assert not torch.equal(from_disk.images, streamed.images)
    order = torch.randperm(len(in_memory))
    assert torch.equal(from_disk.take(order).images, in_memory.images[order])
