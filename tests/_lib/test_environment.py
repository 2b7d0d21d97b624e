"""What a session says of itself: its command names no folder of the machine."""

import json
import sys
from pathlib import Path

import pytest

from pdeplus._lib.environment import environment

RESULTS = Path(__file__).parents[2] / "results"


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["--out", "/home/me/runs/a"], "--out a"),
        (["data.root=/home/me/pictures/"], "data.root=pictures/"),
        (["runs/a", "data.root=../pictures", "train.lr=0.1"], "runs/a data.root=../pictures train.lr=0.1"),
    ],
)
def test_whole_paths_are_told_by_their_last_name(monkeypatch, words, told):
    monkeypatch.setattr(sys, "argv", ["/home/me/bin/pdeplus", "train", *words])
    assert environment()["command"] == f"pdeplus train {told}"


def test_the_published_records_name_no_folder_of_a_machine():
    lines = [line for file in RESULTS.rglob("records.jsonl") for line in file.read_text("utf-8").splitlines()]
    commands = {json.loads(line)["command"] for line in lines}
    assert commands
    assert not [
        command for command in commands if any(word.startswith("/") or "=/" in word for word in command.split())
    ]
