"""Progress where there is no terminal: long work is told of in lines, short work not at all."""

import os
import sys

import pytest

from pdeplus._lib import long_work


@pytest.mark.parametrize(
    ("seconds", "lines"), [(60.0, []), (0.0, ["testing: 3 of 10 images", "testing: 7 of 10 images"])]
)
def test_long_work_in_a_log_file_is_a_line_now_and_then(monkeypatch, capsys, seconds, lines):
    monkeypatch.setattr(long_work, "LINE_SECONDS", seconds)
    with long_work.counting_bar("testing", None, " images") as count:
        count(3, 10)
        count(4)
    assert capsys.readouterr().err.splitlines() == lines


def test_parts_of_the_work_add_up(monkeypatch, capsys):
    monkeypatch.setattr(long_work, "LINE_SECONDS", 0)
    with long_work.counting_bar("testing", None, " images") as count:
        for n, total in [(4, 10), (6, 10), (3, 5), (2, 5), (5, 5)]:
            count(n, total)
    told = [line.partition(": ")[2] for line in capsys.readouterr().err.splitlines()]
    assert told == [f"{line} images" for line in ("4 of 10", "10 of 10", "13 of 15", "15 of 15", "20 of 20")]


def test_work_goes_on_where_nobody_reads_its_lines_any_more(monkeypatch):
    read, write = os.pipe()
    os.close(read)
    with os.fdopen(write, "w") as stream:
        monkeypatch.setattr(sys, "stderr", stream)
        long_work.tell("first")
        long_work.tell("second")
