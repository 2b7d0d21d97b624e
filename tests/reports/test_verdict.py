"""The verdict and the tables of classes, by hand."""

import numpy as np
from support.hand_records import one_seed

from pdeplus.evaluation.records import Bin, Record, pack_hits
from pdeplus.reports.inputs import groups_of
from pdeplus.reports.verdict import class_tables, verdict

RIGHT = {"clean": [1, 1, 1, 1, 1, 0, 1, 1, 1, 1], "fog": [0, 0, 0, 1, 1, 1, 1, 1, 1, 1]}
"""Which of ten images, five cats and five dogs, are right: clean, and under any corruption."""


def records(confidence: float = 9.0) -> list[Record]:
    made = list[Record]()
    for r in one_seed(lambda name, severity: 0.1, model="m"):
        right = RIGHT["clean" if r.corruption == "clean" else "fog"]
        cats, dogs = sum(right[:5]), sum(right[5:])
        counts = [(0, 0, cats), (0, 1, 5 - cats), (1, 0, 5 - dogs), (1, 1, dogs)]
        values = vars(r) | {
            "n": 10,
            "correct": cats + dogs,
            "hits": pack_hits(np.array(right, bool)),
            "bins": (Bin(10, cats + dogs, confidence),),
            "classes": ("cat", "dog"),
            "confusion": tuple(row for row in counts if row[2]),
        }
        made.append(Record(**values))
    return made


def test_the_verdict_says_what_was_lost_where():
    (group,) = groups_of(records(), "ERM")
    said = verdict(group.lines[0], group.main_score)
    assert said == (
        "m classifies 90.00 % of the clean images correctly, and 70.00 % of the corrupted ones (15 × 5). "
        "It loses most under gaussian noise (−20.0 points), shot noise (−20.0 points) "
        "and impulse noise (−20.0 points). "
        "The class that loses most: cat (100 → 40 %). Corruption turns 33 % of its correct predictions wrong. Its mean "
        "confidence under corruption is 20 points too high."
    )


def test_one_point_is_singular():
    (group,) = groups_of(records(confidence=7.1), "ERM")
    assert verdict(group.lines[0], group.main_score).endswith("under corruption is 1 point too high.")


def test_classes_come_with_what_they_are_taken_for_the_worst_first():
    (group,) = groups_of(records(), "ERM")
    tables = class_tables(group)
    assert tables["classes-1"].rows == (
        ("cat", "5", "100.0", "40.0", "60.0", "dog (60 %)"),
        ("dog", "5", "80.0", "100.0", "−20.0", "—"),
    )
    assert tables["confusion-1"].rows == (("cat", "40", "60"), ("dog", "0", "100"))


def test_an_incomplete_test_has_no_verdict():
    (group,) = groups_of(records()[:-1], "ERM")
    assert "some of its test sets are missing" in verdict(group.lines[0], group.main_score)
