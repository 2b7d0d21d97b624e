"""Checkpoint files: whole or not at all, damage recognised, nothing unpickled."""

import os
import pickle
import subprocess
import sys

import pytest
import torch

from pdeplus._lib.files import read_weights
from pdeplus.errors import UserError
from pdeplus.training.checkpoint import load_checkpoint, save_checkpoint
from pdeplus.training.session import Checkpoint


def make(value: float) -> Checkpoint:
    return Checkpoint({"w": torch.full((1000,), value)}, {"epoch": int(value), "momentum": [torch.tensor([value])]})


def damage(path, offset=-3):
    data = bytearray(path.read_bytes())
    data[offset] ^= 0xFF
    path.write_bytes(data)


def test_round_trip_keeps_the_newest_two(tmp_path):
    for step in (1, 2, 30):
        save_checkpoint(tmp_path, step, make(step))
    assert sorted(p.name for p in tmp_path.iterdir()) == ["000000002", "000000030"]
    loaded = load_checkpoint(tmp_path)
    assert torch.equal(loaded.weights["w"], torch.full((1000,), 30.0))
    assert loaded.state == {"epoch": 30, "momentum": [torch.tensor([30.0])]}


@pytest.mark.parametrize("name", ["weights.safetensors", "state.pt", "manifest.json"])
@pytest.mark.parametrize("how", [damage, lambda p: p.unlink(), lambda p: p.write_bytes(p.read_bytes()[:20])])
def test_damage_is_recognised_and_the_one_before_used(tmp_path, name, how):
    save_checkpoint(tmp_path, 1, make(1))
    save_checkpoint(tmp_path, 2, make(2))
    how(tmp_path / "000000002" / name)
    with pytest.warns(UserWarning, match="000000002 is damaged.*trying the one before"):
        assert load_checkpoint(tmp_path).state["epoch"] == 1


@pytest.mark.filterwarnings("ignore:checkpoint .* is damaged")
def test_a_new_checkpoint_outlives_damaged_later_ones(tmp_path):
    for step in (10, 20):
        save_checkpoint(tmp_path, step, make(step))
        damage(tmp_path / f"{step:09d}" / "state.pt")
    (tmp_path / "000000015.tmp").mkdir()
    (tmp_path / "notes.txt").write_text("the user's own")
    with pytest.warns(UserWarning, match="no checkpoint in .* is intact: starting over"):
        assert load_checkpoint(tmp_path) is None
    save_checkpoint(tmp_path, 5, make(5))
    assert sorted(p.name for p in tmp_path.iterdir()) == ["000000005", "notes.txt"]
    assert load_checkpoint(tmp_path).state["epoch"] == 5


def test_no_checkpoint_at_all(tmp_path):
    assert load_checkpoint(tmp_path) is None
    assert load_checkpoint(tmp_path / "missing") is None


def test_a_half_written_checkpoint_is_never_read(tmp_path):
    save_checkpoint(tmp_path, 1, make(1))
    (tmp_path / "000000002.tmp").mkdir()
    (tmp_path / "000000002.tmp" / "weights.safetensors").write_bytes(b"half")
    assert load_checkpoint(tmp_path).state["epoch"] == 1
    save_checkpoint(tmp_path, 2, make(2))
    assert load_checkpoint(tmp_path).state["epoch"] == 2


def test_a_hostile_state_file_is_not_unpickled(tmp_path):
    import hashlib
    import json

    class Hostile:
        def __reduce__(self):
            return (os.system, (f"touch {tmp_path}/owned",))

    save_checkpoint(tmp_path, 1, make(1))
    save_checkpoint(tmp_path, 2, make(2))
    folder = tmp_path / "000000002"
    (folder / "state.pt").write_bytes(pickle.dumps(Hostile(), protocol=2))
    hashes = {n: hashlib.sha256((folder / n).read_bytes()).hexdigest() for n in ("weights.safetensors", "state.pt")}
    (folder / "manifest.json").write_text(json.dumps(hashes))
    with pytest.warns(UserWarning, match="damaged"):
        assert load_checkpoint(tmp_path).state["epoch"] == 1
    assert not (tmp_path / "owned").exists()


FULL_DISK = """
import resource, sys
from pathlib import Path
import torch
from pdeplus._lib.files import write_file
from pdeplus.training.checkpoint import save_checkpoint
from pdeplus.training.session import Checkpoint
from pdeplus.errors import UserError

folder = Path(sys.argv[1])
save_checkpoint(folder, 1, Checkpoint({"w": torch.ones(1000)}, {"epoch": 1}))
(folder / "metrics.jsonl").write_text("old")
resource.setrlimit(resource.RLIMIT_FSIZE, (2000, 2000))  # as on a full disk, more bytes to a file fail with an OSError
for write in (
    lambda: save_checkpoint(folder, 2, Checkpoint({"w": torch.ones(1000)}, {"epoch": 2})),
    lambda: write_file(folder / "metrics.jsonl", b"x" * 5000),
):
    try:
        write()
    except UserError as error:
        print(error)
"""


def test_a_full_disk_leaves_what_was_there(tmp_path):
    """In a process of its own: the limit would hold for this one's output too, were that a file."""
    done = subprocess.run([sys.executable, "-c", FULL_DISK, tmp_path], capture_output=True, text=True, check=True)
    checkpoint, file = done.stdout.splitlines()
    assert "the one before it is intact" in checkpoint
    assert "cannot be written" in file
    assert sorted(p.name for p in tmp_path.iterdir()) == ["000000001", "metrics.jsonl"]
    assert load_checkpoint(tmp_path).state["epoch"] == 1
    assert (tmp_path / "metrics.jsonl").read_text() == "old"


def test_unreadable_weights_are_named(tmp_path):
    (tmp_path / "w.safetensors").write_bytes(b"not weights")
    with pytest.raises(UserError, match="w.safetensors cannot be read as weights"):
        read_weights(tmp_path / "w.safetensors")
