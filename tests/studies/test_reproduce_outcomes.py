"""Outcomes: records written by hand come out where they belong, with the paper's values beside them, never mixed in."""

from dataclasses import replace

import pytest
import torch
from support.hand_records import one_seed, record

from pdeplus.corruptions.suite import CORRUPTIONS, EXTRA_CORRUPTIONS
from pdeplus.data.base import split
from pdeplus.data.digits import Digits
from pdeplus.evaluation.cost import training_flops
from pdeplus.evaluation.records import pack_hits
from pdeplus.reports.paper import paper_numbers
from pdeplus.studies.cells import Done, plan
from pdeplus.studies.experiment import load_experiment
from pdeplus.studies.other_tests import AugmentedTests, HeldOut
from pdeplus.studies.outcomes import OUTCOMES
from pdeplus.studies.outcomes.costs import PUBLISHED
from pdeplus.studies.study import Outcome, Study
from pdeplus.training.config import config_hash, load_config
from pdeplus.training.run_folder import Expects, Run, build_method

ERRORS = {"ERM": 0.4, "AugMix": 0.3, "PDE+": 0.2}


def study_of(name: str, records, rows=("erm", "augmix", "pde_plus_stages"), seeds: int = 1) -> Study:
    """The experiment with so many seeds and those rows, its records given by a function of the cell."""
    experiment = load_experiment(name)
    kept = tuple(row for row in experiment.rows if row.name in rows)
    experiment, size = replace(experiment, rows=kept), replace(experiment.sizes["full"], seeds=seeds)
    cells = plan(experiment, size)
    done = [Done(cell=cell, run=Run(None), records=records(cell)) for cell in cells]
    return Study(experiment=experiment, size=size, cells=cells, done=done)


def outcome_of(study: Study) -> Outcome:
    return OUTCOMES[study.experiment.outcome](study)


def corrupted(cell, **more):
    """A constant error under corruption, none on clean images."""
    error = ERRORS[cell.label.removesuffix(" (ours)")]
    about = {"model": cell.label, "config": config_hash(cell.config), "data": cell.config.data.name, **more}
    return one_seed(lambda name, level: error if level else 0.0, **about)


def rows_of(table) -> dict[str, dict[str, str]]:
    return {row[0]: dict(zip(table.columns, row, strict=True)) for row in table.rows}


def test_table_1_has_our_scores_and_the_papers_beside_them():
    (table,) = outcome_of(study_of("table1_cifar10", corrupted)).tables
    rows = rows_of(table)
    assert list(rows) == ["ERM", "AugMix", "PDE+"]
    assert rows["PDE+"]["clean"] == "100.00"
    assert rows["PDE+"]["corrupted"] == "80.00"
    assert rows["PDE+"]["mCE"] == "50.00"
    assert rows["PDE+"]["mCE, severity 5"] == "50.00"
    assert rows["PDE+"]["paper: corrupted"] == "89.11"
    assert rows["ERM"]["paper: severity 5"] == "57.19"
    assert rows["AugMix"]["paper: mCE"] == "60.44"
    assert "scale full" in table.title


def test_the_study_compares_accuracy_and_cost():
    operations = {"ERM": 3e9, "AugMix": 3e9, "PDE+": 10.5e9}

    def records(cell):
        each = corrupted(cell, train_flops=operations[cell.label])
        return [replace(r, hits=pack_hits(torch.arange(r.n) < r.correct)) for r in each]

    rows = rows_of(outcome_of(study_of("study_methods", records)).tables[0])
    assert rows["PDE+"]["corrupted"] == "80.00"
    assert rows["PDE+"]["without overlaps"] == "80.00"
    assert rows["PDE+"]["mCE"] == rows["PDE+"]["rmCE"] == "50.00"
    assert [rows[label]["cost"] for label in operations] == ["1.0", "1.0", "3.5"]
    assert rows["PDE+"]["against ERM"].startswith("+20.00 (+")
    assert rows["PDE+"]["against AugMix"].startswith("+10.00 (+")
    assert rows["AugMix"]["against AugMix"] == "—"
    assert rows["PDE+"]["paper: corrupted"] == "89.11"


def test_the_difference_of_rows_with_several_seeds_has_its_interval_over_seeds():
    errors = {("AugMix", 0): 0.3, ("AugMix", 1): 0.24, ("PDE+", 0): 0.2, ("PDE+", 1): 0.1, ("ERM", 0): 0.4}

    def records(cell):
        error = errors[cell.label, cell.config.seed]
        about = {"model": cell.label, "config": config_hash(cell.config), "seed": cell.config.seed}
        return one_seed(lambda name, level: error if level else 0.0, **about)

    study = study_of("study_methods", lambda cell: [], seeds=2)
    done = [replace(one, records=records(one.cell)) for one in study.done if one.cell.label != "ERM"]
    rows = rows_of(outcome_of(replace(study, done=done)).tables[0])
    assert rows["PDE+"]["against AugMix"] == "+12.00 ± 25.41"  # of +10 and +14


def test_the_presets_rows_have_the_papers_pde_plus_beside_them():
    experiment = load_experiment("table1_cifar100")
    cells = {cell.label: cell for cell in plan(experiment, experiment.sizes["full"])}
    assert cells["PDE+ (paper)"].paper == cells["PDE+ (authors)"].paper == "PDE+"
    assert cells["PDE+ (paper)"].config.method.options["diffusion_lr"] == 0.01
    assert cells["PDE+ (authors)"].config.data.name == "cifar100"


def test_what_was_not_done_is_said():
    study = study_of("table1_cifar10", corrupted)
    study = replace(study, done=[one for one in study.done if one.cell.label != "ERM"])
    (table,) = outcome_of(study).tables
    assert "not done: ERM" in table.notes
    assert rows_of(table)["PDE+"]["mCE"] == "—"


def test_table_3_has_the_papers_row_below_ours():
    (first, second) = outcome_of(study_of("table3_per_corruption", corrupted)).tables
    rows = rows_of(first)
    assert rows["PDE+"]["fog"] == "80.0"
    assert rows["PDE+"]["mean"] == "80.0"
    assert rows["PDE+"]["rmCE"] == "50.0"
    assert rows["PDE+, paper at full scale"]["fog"] == "93.56"
    assert rows["PDE+, paper at full scale"]["rmCE"] == "33.83"
    assert rows_of(second)["PDE+, paper at full scale"]["fog"] == "69.84"


def test_table_2_has_targets_of_every_source():
    accuracy = {"photo": 800, "art_painting": 500, "cartoon": 400, "sketch": 300}

    def on_domains(cell):
        source, less = cell.place["data.source"], 60 if cell.label == "ERM" else 0
        about = {"model": cell.label, "config": config_hash(cell.config), "data": "pacs", "suite": "domains"}
        right = {"clean": 900} | {name: n - less for name, n in accuracy.items() if name != source}
        hits = {name: pack_hits(torch.arange(1000) < n) for name, n in right.items()}
        return [record(corruption=name, severity=0, correct=n, hits=hits[name], **about) for name, n in right.items()]

    outcome = outcome_of(study_of("table2_pacs", on_domains))
    (table,) = outcome.tables
    assert len(table.rows) == 12
    dot = {"row": "sketch", "series": "PDE+", "x": 170 / 3, "low": 170 / 3, "high": 170 / 3}
    assert outcome.rows["domains"][-1] == pytest.approx(dot, abs=1e-9)
    row = next(dict(zip(table.columns, r, strict=True)) for r in table.rows if r[:2] == ("sketch", "PDE+"))
    assert row["own domain"] == "90.0"
    assert (row["photo"], row["art painting"], row["cartoon"]) == ("80.0", "50.0", "40.0")
    assert row["sketch"] == "—"
    assert row["mean"] == "56.7"
    assert row["against AugMix"] == "+0.00 (+0.00 to +0.00)"
    assert row["against ERM"].startswith("+6.00 (+5.")
    assert (row["paper: photo"], row["paper: mean"], row["paper: sketch"]) == ("30.05", "35.47", "—")


def test_severity_has_the_authors_curve_below_ours():
    outcome = outcome_of(study_of("fig_severity", corrupted))
    rows = rows_of(outcome.tables[0])
    assert rows["PDE+"]["severity 0"] == "100.0"
    assert rows["PDE+"]["severity 5"] == "80.0"
    assert rows["PDE+, authors at full scale"]["severity 5"] == "82.81"
    assert {row["series"] for row in outcome.rows["severity"]} == set(ERRORS), (
        "the paper's line is in no figure of ours"
    )


def test_the_best_under_each_corruption_is_framed():
    def by_sigma(cell):
        best = {"0.1": "fog", "0.5": "snow"}.get(cell.label)
        about = {"model": cell.label, "config": config_hash(cell.config)}
        return one_seed(lambda name, level: 0.1 if name == best else 0.5, **about)

    outcome = outcome_of(study_of("fig_fixed_vs_adaptive", by_sigma, rows=("fixed_0", "fixed_0.1", "fixed_0.5")))
    best = {(r["corruption"], r["network"]) for r in outcome.rows["fig_fixed_vs_adaptive"] if r["best"]}
    assert ("fog", "0.1") in best
    assert ("snow", "0.5") in best
    assert ("fog", "0") not in best
    assert len(outcome.tables[0].rows) == len(CORRUPTIONS)
    table = rows_of(outcome.tables[0])
    for row in outcome.rows["fig_fixed_vs_adaptive"]:
        assert row["shown"] == table[row["corruption"]][row["network"]], "the figure says what the table says"
    assert outcome.figures[0].spec["layer"][-1]["encoding"]["text"]["field"] == "shown"


def test_the_best_on_each_distribution_is_red():
    names = load_experiment("fig1_motivation").options["augmentations"]

    def diagonal(cell):
        about = {"model": cell.label, "config": config_hash(cell.config), "suite": "domains", "severity": 0}
        mine = {name: 900 if name.replace("_", " ") == cell.label else 500 for name in names}
        return [record(corruption=name, correct=n, **about) for name, n in ({"clean": 950} | mine).items()]

    outcome = outcome_of(study_of("fig1_motivation", diagonal, rows=("erm", "rotation", "blur")))
    red = {(row["trained"], row["test"]) for row in outcome.rows["fig1_motivation"] if row["best"]}
    assert ("rotation", "rotation") in red
    assert ("original", "rotation") not in red
    assert ("blur", "blur") in red
    table = rows_of(outcome.tables[0])
    for row in outcome.rows["fig1_motivation"]:
        assert row["shown"] == table[row["trained"]][row["test"]], "the figure says what the table says"
    assert outcome.figures[0].spec["spec"]["layer"][-1]["encoding"]["text"]["field"] == "shown"


def test_augmented_tests_are_the_same_for_every_network_and_leave_clean_images_alone():
    tests = AugmentedTests(Digits(), "digits", ("rotation", "gaussian_noise"), limit=20)
    first, second = tests.test(), tests.test()
    assert list(first) == ["digits", "rotation", "gaussian_noise"]
    for name in first:
        assert torch.equal(first[name].images, second[name].images)
        assert torch.equal(first[name].labels, first["digits"].labels)
    changed = (first["gaussian_noise"].images != first["digits"].images).flatten(1).float().mean(1)
    assert (changed > 0.3).all(), "every test image is changed"
    full = Digits().test()["clean"]
    assert all(any(torch.equal(image, other) for other in full.images) for image in first["digits"].images[:3])


class NoTests(Digits):
    """Digits whose test images must not be read."""

    def test(self):
        raise AssertionError("a test image was asked for")


def test_selection_sees_the_held_out_images_of_the_run_and_no_test_image():
    config = load_config("demo", ["seed=3", "train.validation=0.2"])
    tests = HeldOut(NoTests(), config, limit=30).test()
    assert list(tests) == ["clean", *(f"{name} {severity}" for name in EXTRA_CORRUPTIONS for severity in range(1, 6))]
    mine = split(Digits(), validation=0.2, limit=config.train.limit, seed=3).validation
    known = {image.numpy().tobytes() for image in mine.images}
    assert all(image.numpy().tobytes() in known for image in tests["clean"].images)
    for name, images in tests.items():
        assert torch.equal(images.labels, tests["clean"].labels)
        if not name.startswith("saturate"):  # a grey image has no saturation
            assert torch.equal(images.images, tests["clean"].images) == (name == "clean")


def test_held_out_images_are_corrupted_only_when_they_are_asked_for(monkeypatch):
    asked = []

    def corrupted(corruption, images, places, severity, seed):
        asked.append((corruption.name, severity))
        return images

    monkeypatch.setattr("pdeplus.studies.other_tests.apply_planes", corrupted)
    tests = HeldOut(NoTests(), load_config("demo", ["train.validation=0.2"]), limit=5).test()
    assert (len(list(tests)), asked) == (21, [])
    assert len(tests["spatter 4"]) == 5
    assert asked == [("spatter", 4)]


def test_selection_puts_the_best_under_corruptions_first():
    def records(cell):
        about = {"model": cell.label, "config": config_hash(cell.config), "suite": "domains", "severity": 0}
        right = {"ERM": 500, "AugMix": 700, "PDE+ (ours)": 800}[cell.label]
        shifted = {
            f"{name} {severity}": right - 10 * severity for name in EXTRA_CORRUPTIONS for severity in range(1, 6)
        }
        return [
            record(corruption=n, correct=c, train_flops=2e15, **about) for n, c in ({"clean": 900} | shifted).items()
        ]

    outcome = outcome_of(study_of("study_strengths", records, rows=("erm", "augmix", "pde_plus")))
    (table,) = outcome.tables
    assert [row[0] for row in table.rows] == ["PDE+ (ours)", "AugMix", "ERM"]
    first = dict(zip(table.columns, table.rows[0], strict=True))
    assert (first["clean"], first["shifted"], first["severity 5"]) == ("90.00", "77.00", "75.00")
    assert (first["PFLOP"], first["cost"], first["seeds"]) == ("2.000", "1.00", "1")


@pytest.mark.parametrize(("first", "second"), [("3", "3.0"), ("5", "5.0")])
def test_a_whole_number_and_its_float_are_one_setting(first, second):
    setting = "method.augmentor={{name='augmix', severity={}}}"
    one, other = (load_config("pde_plus", [setting.format(value)]) for value in (first, second))
    assert config_hash(one) == config_hash(other)
    assert config_hash(one) != config_hash(load_config("pde_plus", [setting.format("4")]))


def test_without_contrast_and_brightness_the_papers_lead_on_cifar10_is_gone():
    known = paper_numbers("paper_corruptions", "cifar10")
    kept = [name for name in CORRUPTIONS if name not in ("contrast", "brightness")]
    means = {name: sum(float(known[name][c]) for c in kept) / len(kept) for name in ("RLAT+AugMix", "PDE+")}
    assert means["RLAT+AugMix"] == pytest.approx(88.52, abs=0.01)
    assert means["PDE+"] == pytest.approx(88.35, abs=0.01)


def test_time_to_accuracy_has_the_cost_of_every_length_and_published_results_beside():
    def records(cell):
        epochs = cell.config.train.epochs
        return corrupted(cell, train_flops=1e14 * epochs, train_core_seconds=30.0 * epochs)

    study = study_of("time_to_accuracy", records, rows=("erm", "augmix", "pde_plus"))
    outcome = outcome_of(study)
    (table,) = outcome.tables
    found = {(row[0], row[1]): row[2:] for row in table.rows}
    assert len(found) == 9
    assert found["PDE+ (ours)", "10"] == ("1", "5", "100.00", "80.00", "80.00", "1")
    assert found["ERM", "2"][:2] == ("0.2", "1")
    points = outcome.rows["time_to_accuracy"]
    ours = [point for point in points if "published" not in point]
    assert len(ours) == 18
    assert {"method": "AugMix", "score": "corrupted", "y": 70.0, "PFLOP": 0.4, "minutes": 2.0} in [
        point | {"y": round(point["y"], 6), "PFLOP": round(point["PFLOP"], 6)} for point in ours
    ]
    published = {point["method"]: point for point in points if "published" in point and point["score"] == "corrupted"}
    assert published["PDE+, authors' code"]["y"] == 89.11


def test_the_count_of_the_authors_recipe_is_the_published_points_cost():
    """What stands in the figure is what `training_flops` counts for 200 epochs of 50,000 images."""
    expects = Expects(classes=tuple("0123456789"), shape=(3, 32, 32))
    points = {name: pflop for name, pflop, *_ in PUBLISHED}
    for preset, name in (("erm", "ERM, ResNet-18"), ("authors", "PDE+, authors' code")):
        config = load_config(preset)
        counted = training_flops(config, build_method(config), expects, 200 * 50_000) / 1e15
        assert counted == pytest.approx(points[name], rel=0.01)


def test_rows_of_equal_compute_have_it():
    """Counted at the study's width: each row's epochs times its operations are those of PDE+, but for rounding."""
    experiment, expects = load_experiment("study_compute"), Expects(classes=tuple("0123456789"), shape=(3, 32, 32))
    cells = plan(experiment, replace(experiment.sizes["small"], seeds=1))
    spent = {
        cell.label: row.stretch * training_flops(cell.config, build_method(cell.config), expects, 1)
        for row in experiment.rows
        for cell in cells
        if cell.config.name == row.name
    }
    assert {"HybridAugment++", "TrivialAugment+noise+erasing", "PixMix", "Two views+JSD"} <= set(spent)
    assert all(one == pytest.approx(spent["PDE+"], rel=0.06) for one in spent.values()), spent
