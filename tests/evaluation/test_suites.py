"""Test sets: which there are, and that they hold exactly the images they should, wherever these come from."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from support.data_files import make, write_corrupted
from support.runs import digits, numbers, pair, spoilt

import pdeplus as pp
from pdeplus.corruptions.base import SEVERITIES
from pdeplus.corruptions.copies import CorruptionPlan, corrupt_arrays, corrupt_labelled
from pdeplus.corruptions.suite import CBAR, CORRUPTIONS, EXTRA_CORRUPTIONS, SUITE
from pdeplus.data.cifar10 import Cifar10
from pdeplus.data.cifar10_c import Cifar10C
from pdeplus.data.digits import Digits
from pdeplus.data.synthetic import STYLES, Synthetic
from pdeplus.errors import UserError
from pdeplus.evaluation.test_sets import TestSet, as_source, build_suite

N = 40
FEW = digits(N)


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    """The fifteen corruptions of a few digits with seed 7, in both published layouts; as pictures at two severities."""
    out = tmp_path_factory.mktemp("files")
    plan = CorruptionPlan(names=CORRUPTIONS, constants="cifar", seed=7, workers=1)
    corrupt_arrays(FEW, out / "npy", plan, lambda n: None)
    two = replace(plan, severities=(2, 4))
    corrupt_labelled(FEW, tuple("0123456789"), out / "folders", two, lambda n: None)
    return out


def few(**options):
    source, label = as_source(pair(FEW))
    return build_suite(source, label, options.pop("suite", "corruptions"), **options)


def pixels(test: TestSet, size: int = 250) -> torch.Tensor:
    """As bytes again, which floats of bytes are without loss."""
    return torch.cat([x for x, _ in test.batches(size)]).mul(255).round().byte()


def test_every_suite_has_its_test_sets_in_order():
    clean = [("clean", 0)]
    fifteen = [(name, severity) for name in CORRUPTIONS for severity in SEVERITIES]
    more = [(name, severity) for name in SUITE for severity in SEVERITIES]
    ten = [(name, severity) for name in CBAR for severity in SEVERITIES]
    known = {"clean": clean, "corruptions": clean + fifteen, "all_corruptions": clean + more, "cbar": clean + ten}
    for suite, expected in known.items():
        cells = [(test.corruption, test.severity) for test in few(suite=suite).sets]
        assert cells == expected
    assert (len(fifteen), len(more)) == (75, 95)
    assert {name for name, _ in more} - {name for name, _ in fifteen} == set(EXTRA_CORRUPTIONS)
    assert [test.severity for test in few(severities=(2, 5)).sets] == [0] + [2, 5] * 15


def test_corrupted_images_are_exactly_corrupts_whatever_the_batches():
    for test in few(suite="all_corruptions", severities=(1, 4), seed=5).sets[1:]:
        expected = spoilt(FEW, test.corruption, test.severity, seed=5).mul(255).round().byte()
        assert torch.equal(pixels(test, 7), expected)
    for test in few(suite="cbar", severities=(3,), seed=5).sets[1:]:
        expected = spoilt(FEW, test.corruption, 3, seed=5).mul(255).round().byte()
        assert torch.equal(pixels(test, 7), expected)
    assert torch.equal(pixels(few().sets[0]), FEW.images)


def test_cbar_has_an_origin_of_its_own_and_its_files_are_read(tmp_path, erm):
    made, other = few(suite="cbar", seed=3), few(suite="corruptions", seed=3)
    assert made.name == "cbar"
    assert "corrupted by pdeplus (C̄, seed 3)" in made.origin
    assert "ice" not in made.origin
    assert made.origin.rpartition("#")[2] == other.origin.rpartition("#")[2]  # the same clean images
    corrupt_arrays(
        FEW, tmp_path / "c", CorruptionPlan(names=CBAR, constants="cifar", seed=3, workers=1), lambda n: None
    )
    for ours, read in zip(made.sets, few(suite="cbar", files=tmp_path / "c").sets, strict=True):
        assert torch.equal(pixels(ours), pixels(read))
    with pytest.raises(UserError, match="has no gaussian_noise at severity 1") as refusal:
        few(suite="corruptions", files=tmp_path / "c")
    assert "\n" not in str(refusal.value)
    with pytest.raises(UserError, match="selection='oracle' would select on C̄, which is only for testing"):
        pp.evaluate(erm, "cbar", selection="oracle")


def test_cbar_of_a_run_stands_beside_the_fifteen(erm, tmp_path):
    records = pp.evaluate(erm, "cbar", severities=(1,), limit=20, out=tmp_path)
    assert [r.corruption for r in records] == ["clean", *CBAR]
    assert {r.suite for r in records} == {"cbar"}
    assert numbers(pp.evaluate(erm, "cbar", severities=(1,), limit=20, out=tmp_path / "again")) == numbers(records)


def test_larger_images_get_the_constants_of_their_size():
    suite = build_suite(Synthetic(size=64, test_images=7), "synthetic", "corruptions", severities=(3,))
    images = suite.sets[0].read()
    (test,) = [test for test in suite.sets if test.corruption == "defocus_blur"]
    found = pixels(test)
    expected = spoilt(images, "defocus_blur", 3, constants="tiny").mul(255).round().byte()
    assert torch.equal(found, expected)
    assert "scale tiny" in suite.origin


def test_domains_are_all_styles_the_learnt_one_first():
    data = Synthetic(style="cartoon", size=16, test_images=14)
    suite = build_suite(data, "synthetic", "domains")
    assert [test.corruption for test in suite.sets] == ["clean", *(s for s in STYLES if s != "cartoon")]
    assert len(suite.sets) == 4
    for test in suite.sets:
        name = "cartoon" if test.corruption == "clean" else test.corruption
        assert torch.equal(pixels(test), data.test()[name].images)
    assert "learnt from cartoon" in suite.origin


@pytest.mark.parametrize("layout", ["npy", "folders"])
def test_files_score_as_images_corrupted_with_the_same_seed(erm, folders, tmp_path, layout):
    options = {"data": pair(FEW), "severities": SEVERITIES if layout == "npy" else (2, 4)}
    made = pp.evaluate(erm, **options, seed=7, out=tmp_path / "made")
    read = pp.evaluate(erm, **options, files=folders / layout, out=tmp_path / "read")
    assert [r.cell for r in read] == [r.cell for r in made]
    assert [r.correct for r in read] == [r.correct for r in made]
    assert [r.nll for r in read] == pytest.approx([r.nll for r in made], rel=1e-5)
    assert read[0].origin.startswith(f"files of {layout} (made with seed 7)")
    if layout == "npy":  # folders have the images in the order of their classes
        assert [r.hits for r in read] == [r.hits for r in made]


def test_a_limit_takes_the_same_images_and_the_same_noise_everywhere(folders):
    made = few(limit=9, seed=7).sets
    read = few(limit=9, files=folders / "npy").sets
    for a, b in zip(made, read, strict=True):
        assert torch.equal(pixels(a), pixels(b)), a.corruption
        assert torch.equal(a.read().labels, b.read().labels)
    assert len(made[0].read()) == 9


def test_a_limit_keeps_the_classes_of_a_sorted_set_mixed():
    labels = torch.arange(1000) // 100
    source, label = as_source((torch.zeros(1000, 1, 8, 8, dtype=torch.uint8), labels))
    suite = build_suite(source, label, "clean", limit=100)
    counts = torch.bincount(suite.sets[0].read().labels, minlength=10)
    assert int(counts.sum()) == 100
    assert int(counts.min()) >= 3  # 10 expected of each, standard deviation 2.9
    assert "100 of each" in suite.origin


def test_published_arrays_as_a_data_set(tmp_path):
    options = make("cifar10_c", tmp_path)
    write_corrupted(tmp_path / "all" / "CIFAR-10-C", 10, 20, CORRUPTIONS)
    (tmp_path / "all" / "cifar-10-batches-py").symlink_to(tmp_path / "cifar-10-batches-py")
    data = Cifar10C(root=str(tmp_path / "all"))
    suite = build_suite(data, "cifar10_c", "corruptions")
    assert len(suite.sets) == 76
    for test in suite.sets[1:4]:
        array = np.load(tmp_path / "all" / "CIFAR-10-C" / f"{test.corruption}.npy")
        part = array[20 * (test.severity - 1) : 20 * test.severity]
        assert np.array_equal(pixels(test).permute(0, 2, 3, 1).numpy(), part)
    assert torch.equal(pixels(suite.sets[0]), Cifar10(**options).test()["clean"].images)
    assert suite.origin.startswith("published files of cifar10_c, 3×32×32, #")
    with pytest.raises(UserError, match="cifar10_c lacks 65 of 75 test sets, such as gaussian_noise 1"):
        build_suite(Cifar10C(**options), "cifar10_c", "corruptions")  # has fog and snow alone


def test_files_that_lack_a_corruption_are_refused_before_anything_is_measured(erm, folders, tmp_path):
    write_corrupted(tmp_path / "some", 10, N, CORRUPTIONS[:-1])
    with pytest.raises(UserError, match=f"some lacks 5 of 75 test sets, such as {CORRUPTIONS[-1]} 1"):
        pp.evaluate(erm, data=pair(FEW), files=tmp_path / "some", out=tmp_path / "out")
    assert not (tmp_path / "out").exists()
    with pytest.raises(UserError, match="lacks 20 of 95 test sets"):
        few(suite="all_corruptions", files=folders / "npy")
    with pytest.raises(UserError, match="nowhere has no gaussian_noise at severity 1"):
        few(files=tmp_path / "nowhere")
    with pytest.raises(UserError, match="is for corruptions; the suite is 'clean'"):
        few(suite="clean", files=folders / "npy")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"suite": "corrupted"}, "suite='corrupted' is not known; choose from clean, corruptions, all_corruptions"),
        ({"severities": (1, 6)}, r"severities=\[1, 6\] must be some of 1, 2, 3, 4, 5"),
        ({"severities": ()}, r"severities=\[\] must be"),
        ({"limit": -1}, "limit=-1 must be 0"),
    ],
)
def test_wrong_options_are_answered(options, message):
    with pytest.raises(UserError, match=message):
        few(**options)


def test_equal_origins_mean_equal_images():
    """What changes the images changes the words, so that nothing is taken for measured that is not."""
    variants = [
        Synthetic(size=16, test_images=7, **o) for o in ({}, {"seed": 1}, {"style": "art"}, {"train_images": 70})
    ]
    origins = [build_suite(data, "synthetic", "corruptions").origin for data in variants]
    assert len(set(origins[:3])) == 3
    assert origins[3] == origins[0]  # tested on the same images, learnt from fewer
    assert (
        build_suite(Digits(size=8), "digits", "clean").origin != build_suite(Digits(size=9), "digits", "clean").origin
    )


def test_suites_of_one_data_set_share_what_they_share(erm, tmp_path):
    every = pp.evaluate(erm, "all_corruptions", severities=(2,), limit=20, out=tmp_path)
    told = []
    fifteen = pp.evaluate(erm, severities=(2,), limit=20, out=tmp_path, watch=lambda *_: told.append(1))
    assert not told
    assert numbers(fifteen) == [r for r in numbers(every) if r.corruption not in EXTRA_CORRUPTIONS]
