"""A run through a suite: its numbers, going on after an interruption, noise, temperature."""

import base64
import io
import json
import shutil
import threading
from dataclasses import replace

import numpy as np
import pytest
import torch
from PIL import Image
from support.runs import by_hand, damage, digits, numbers, pair, spoilt, sum_again, trained
from torch.nn import functional as F

import pdeplus as pp
from pdeplus._lib.seeds import generator_for
from pdeplus.core.prediction import sample_logits
from pdeplus.data.base import split
from pdeplus.data.digits import Digits
from pdeplus.errors import UserError
from pdeplus.evaluation import loop
from pdeplus.evaluation.metrics import fit_temperature
from pdeplus.evaluation.records import Record, read_records
from pdeplus.evaluation.tested_models import fast_copy
from pdeplus.training.run_folder import Run

SMALL = {"suite": "corruptions", "severities": (3,), "limit": 30}
"""Sixteen test sets of thirty images."""


@pytest.fixture
def copy(erm, tmp_path) -> Run:
    """A run that a test may change."""
    return Run.load(shutil.copytree(erm.path, tmp_path / "run"))


@pytest.fixture(scope="module")
def whole(erm, tmp_path_factory) -> list[Record]:
    """All of the test images, uninterrupted."""
    return pp.evaluate(erm, severities=(3, 5), out=tmp_path_factory.mktemp("whole"))


def counting():
    """A watch that notes what it was told."""
    told = []
    return told, lambda n, total: told.append((n, total))


def scores(record: Record) -> dict[str, float]:
    return {name: getattr(record, name) for name in ("correct", "nll", "brier", "ece")}


def close(expected: dict[str, float]):
    return pytest.approx(expected, rel=1e-4, abs=1e-6)


@pytest.mark.parametrize(
    ("name", "severity"), [("clean", 0), ("gaussian_noise", 3), ("fog", 5), ("jpeg_compression", 5)]
)
def test_a_records_numbers_are_those_of_the_networks_own_logits_on_corrupts_images(erm, whole, name, severity):
    images = digits()
    x = images.floats() if name == "clean" else spoilt(images, name, severity)
    (record,) = [r for r in whole if r.cell == (name, severity)]
    logits = erm.network("validation")(x)
    assert scores(record) == close(by_hand(logits, images.labels))
    assert record.n == 500
    assert np.array_equal(record.right, (logits.argmax(-1) == images.labels).numpy())


def test_it_has_learnt_something_and_corruptions_hurt(whole):
    corrupted = [r.accuracy for r in whole if r.severity == 5]
    assert whole[0].accuracy > 0.4
    assert sum(corrupted) / 15 < whole[0].accuracy


def test_a_record_says_what_was_measured(erm, whole):
    first = whole[0]
    assert (first.corruption, first.severity, first.suite, first.data) == ("clean", 0, "corruptions", "digits")
    assert (first.model, first.selection, first.samples, first.seed) == ("ERM", "validation", 0, 0)
    assert first.epoch == erm.weights("validation")[0]
    assert first.parameters == sum(p.numel() for p in erm.model.parameters())
    assert "seed 0" in first.origin
    assert "3×8×8" in first.origin
    assert first.train_seconds == pytest.approx(sum(record["seconds"] for record in erm.metrics))
    assert all(r.seconds > 0 for r in whole)
    assert len({r.cell for r in whole}) == len(whole) == 31


def test_batches_and_seeds_of_corruption(erm, tmp_path):
    """How images are cut into batches changes nothing; another seed is other noise, and another origin."""
    options = {"suite": "corruptions", "severities": (5,), "limit": 30}
    one, cut = (pp.evaluate(erm, **options, batch_size=size, out=tmp_path / str(size)) for size in (250, 7))
    assert [r.hits for r in one] == [r.hits for r in cut]
    assert [r.nll for r in one] == pytest.approx([r.nll for r in cut], rel=1e-4)
    other = pp.evaluate(erm, **options, seed=1, out=tmp_path / "seed")
    noise = ("gaussian_noise", 5)
    assert [r.nll for r in one if r.cell == noise] != [r.nll for r in other if r.cell == noise]
    assert one[0].origin != other[0].origin


def test_grey_images_stay_grey(tmp_path):
    run = trained(tmp_path / "grey", "method.name=erm", "data.channels=1", "train.epochs=1", "train.limit=80")
    records = pp.evaluate(run, severities=(5,))
    images = digits(channels=1)
    colour = spoilt(replace(images, stored=images.images.expand(-1, 3, -1, -1)), "shot_noise", 5)
    grey = (colour * 255).mean(1, keepdim=True).round() / 255
    (record,) = [r for r in records if r.corruption == "shot_noise"]
    assert scores(record) == close(by_hand(run.network("validation")(grey), images.labels))


def test_an_interrupted_evaluation_goes_on_and_measures_nothing_twice(erm, tmp_path):
    full = pp.evaluate(erm, **SMALL, out=tmp_path / "full")
    seen = []

    def stop(n, total):
        seen.append(n)
        if len(seen) == 6:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        pp.evaluate(erm, **SMALL, out=tmp_path / "cut", watch=stop)
    assert len(read_records(tmp_path / "cut" / "records.jsonl")) == 5
    told, watch = counting()
    again = pp.evaluate(erm, **SMALL, out=tmp_path / "cut", watch=watch)
    assert told == [(30, 11 * 30)] * 11
    assert numbers(again) == numbers(full) == numbers(read_records(tmp_path / "cut" / "records.jsonl"))
    samples = [json.loads((tmp_path / name / "samples.json").read_text())["images"] for name in ("full", "cut")]
    assert samples[0] == samples[1]


def test_what_is_measured_is_not_measured_again(erm, tmp_path, monkeypatch):
    first = pp.evaluate(erm, **SMALL, out=tmp_path)
    before = (tmp_path / "records.jsonl").read_bytes()
    monkeypatch.setattr(loop, "_measure_one", None)
    assert pp.evaluate(erm, **SMALL, out=tmp_path) == first
    assert (tmp_path / "records.jsonl").read_bytes() == before


def test_a_torn_last_line_is_measured_again(erm, tmp_path):
    first = pp.evaluate(erm, **SMALL, out=tmp_path)
    file = tmp_path / "records.jsonl"
    file.write_bytes(file.read_bytes()[:-40])
    told, watch = counting()
    with pytest.warns(UserWarning, match="its last line is incomplete and left out"):
        assert numbers(pp.evaluate(erm, **SMALL, out=tmp_path, watch=watch)) == numbers(first)
    assert told == [(30, 30)]
    assert numbers(read_records(file)) == numbers(first)


def test_other_weights_in_the_same_folder_are_measured_anew(copy):
    first = pp.evaluate(copy, **SMALL)
    assert (copy.path / "records.jsonl").is_file()
    damage(copy)
    sum_again(copy)
    told, watch = counting()
    second = pp.evaluate(copy, **SMALL, watch=watch)
    assert len(told) == 16
    assert second[0].weights != first[0].weights
    assert second[0].nll != first[0].nll


def test_more_severities_later_cost_only_what_is_new(erm, tmp_path):
    pp.evaluate(erm, severities=(3,), limit=30, out=tmp_path)
    told, watch = counting()
    both = pp.evaluate(erm, "all_corruptions", severities=(3, 4), limit=30, out=tmp_path, watch=watch)
    assert len(both) == 1 + 2 * 19
    assert len(told) == 2 * 19 - 15


def test_repeated_noise_is_the_same_noise_and_touches_no_global_state(pde, tmp_path):
    state = torch.get_rng_state()
    first, second = (pp.evaluate(pde, **SMALL, samples=5, out=tmp_path / name) for name in "ab")
    assert torch.equal(state, torch.get_rng_state())
    assert numbers(first) == numbers(second)
    fewer = pp.evaluate(pde, **SMALL, samples=2, out=tmp_path / "a")
    none = pp.evaluate(pde, **SMALL, samples=0, out=tmp_path / "a")
    assert len({r.nll for r in (first[0], fewer[0], none[0])}) == 3
    assert [r.samples for r in (first[0], fewer[0], none[0])] == [5, 2, 0]
    assert len(read_records(tmp_path / "a" / "records.jsonl")) == 3 * 16
    assert none[0].parameters == first[0].parameters - sum(p.numel() for p in pde.model.add_blocks.parameters())


@pytest.mark.parametrize("average", ["probabilities", "logits"])
def test_noisy_passes_average_what_is_asked_for(pde, average, tmp_path):
    images = digits(40)
    records = pp.evaluate(pde, severities=(3,), data=pair(images), samples=3, average=average, out=tmp_path)
    x, net = spoilt(images, "fog", 3), pde.network("validation")
    stream = generator_for(0, "evaluate", "fog", 3, 0)
    logits = sample_logits(fast_copy(net, x), x, 3, generator=stream)
    mean = logits.softmax(-1).mean(0).log() if average == "probabilities" else logits.mean(0)
    other = logits.mean(0) if average == "probabilities" else logits.softmax(-1).mean(0).log()
    (record,) = [r for r in records if r.corruption == "fog"]
    assert scores(record) == close(by_hand(mean, images.labels))
    assert record.average == average
    assert record.nll != pytest.approx(by_hand(other, images.labels)["nll"], rel=1e-6)


def test_a_method_without_noise_has_none_to_sample(erm):
    with pytest.raises(UserError, match="samples=3: the method erm has no noise to sample"):
        pp.evaluate(erm, "clean", samples=3)


def test_temperature_is_fitted_on_validation_images_alone(erm, whole):
    net = erm.network("validation")
    held_out = split(Digits(size=8), validation=erm.config.train.validation, limit=0, seed=0).validation
    expected = fit_temperature(net(held_out.floats()), held_out.labels)
    assert [r.temperature for r in whole] == pytest.approx([expected] * len(whole), rel=1e-3)
    images = digits()
    (fog,) = [r for r in whole if r.cell == ("fog", 3)]
    scaled = by_hand(net(spoilt(images, "fog", 3)) / fog.temperature, images.labels)
    found = {"nll": fog.scaled_nll, "brier": fog.scaled_brier, "ece": fog.scaled_ece}
    assert found == close({name: scaled[name] for name in found})
    z = net(held_out.floats()).detach()
    best = F.cross_entropy(z / expected, held_out.labels)
    assert all(best <= F.cross_entropy(z / (expected * f), held_out.labels) for f in (0.9, 1, 1.1))


def test_a_run_whose_training_data_are_gone_is_tested_on_given_images(tmp_path):
    pictures = tmp_path / "pictures"
    for k, shade in enumerate((30, 220)):
        (pictures / f"shade {k}").mkdir(parents=True)
        for i in range(8):
            Image.new("RGB", (8, 8), (shade + i, shade, shade)).save(pictures / f"shade {k}" / f"{i}.png")
    run = trained(tmp_path / "run", "data.name=image_folder", f"data.root={pictures}", "train.epochs=1")
    shutil.rmtree(pictures)
    x = torch.full((4, 3, 8, 8), 30, dtype=torch.uint8)
    (record,) = pp.evaluate(run, "clean", data=(x, [0, 1, 0, 1]))
    assert record.correct == 2
    assert record.temperature is None


def test_samples_show_the_tested_pixels_and_what_the_network_said(erm, whole, tmp_path):
    pp.evaluate(erm, severities=(3,), out=tmp_path)
    shown = json.loads((tmp_path / "samples.json").read_text())["images"]
    assert {(s["corruption"], s["severity"]) for s in shown} == {r.cell for r in whole if r.severity in (0, 3)}
    images = digits()
    (first, *_) = [s for s in shown if s["corruption"] == "contrast"]
    x = spoilt(images, "contrast", 3)[: first["index"] + 1]
    pixels = np.asarray(Image.open(io.BytesIO(base64.b64decode(first["png"]))))
    assert np.array_equal(pixels, (x[first["index"]] * 255).round().byte().permute(1, 2, 0).numpy())
    p = erm.network("validation")(x).detach().softmax(-1)[first["index"]]
    assert first["label"] == str(int(images.labels[first["index"]]))
    assert first["prediction"] == str(int(p.argmax()))
    assert first["confidence"] == pytest.approx(float(p.max()), abs=1e-3)


@pytest.mark.filterwarnings("ignore:.*waiting for its end")
def test_two_evaluations_of_a_folder_take_turns_and_measure_once(erm, tmp_path):
    measured, given = list[str](), {"suite": "clean", "out": tmp_path, "limit": 20}
    second = threading.Thread(
        target=lambda: pp.evaluate(erm, **given, watch=lambda n, of: measured.append("second")), daemon=True
    )

    def first(n: int, of: int) -> None:
        measured.append("first")
        second.start()
        second.join(3)

    pp.evaluate(erm, **given, watch=first)
    second.join()
    assert measured == ["first"]
    assert (tmp_path / "records.jsonl").read_text().count("\n") == 1
