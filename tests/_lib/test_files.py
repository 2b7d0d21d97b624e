"""Files that several processes write at once, and what killed ones leave."""

import os
import sys
import threading

import pytest

from pdeplus._lib.files import TEMPORARY, aside, held_in_turn, write_file
from pdeplus.errors import UserError

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="flock is POSIX")


def test_writers_of_the_same_file_do_not_disturb_each_other(tmp_path):
    path, failed = tmp_path / "file", list[Exception]()

    def write(letter: bytes) -> None:
        try:
            for _ in range(30):
                write_file(path, letter * 5000)
        except Exception as error:
            failed.append(error)

    threads = [threading.Thread(target=write, args=(letter,)) for letter in (b"a", b"b", b"c", b"d")]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failed == []
    assert path.read_bytes() in [letter * 5000 for letter in (b"a", b"b", b"c", b"d")]
    assert os.listdir(tmp_path) == ["file"]


def test_what_a_killed_writer_left_goes_with_the_next_write_and_a_living_ones_stays(tmp_path):
    (tmp_path / f"{TEMPORARY}left").write_bytes(b"half")  # with its writer its lock is gone
    with aside(tmp_path / "file") as living:
        living.write_bytes(b"whole")
        write_file(tmp_path / "other", b"x")
        assert sorted(os.listdir(tmp_path)) == [living.name, "other"]
    assert sorted(os.listdir(tmp_path)) == ["file", "other"]
    assert (tmp_path / "file").read_bytes() == b"whole"


def test_a_failure_leaves_nothing_and_keeps_what_was_there(tmp_path):
    path = tmp_path / "file"
    write_file(path, b"old")

    def fail() -> None:
        with aside(path) as temporary:
            temporary.write_bytes(b"half")
            raise KeyError

    with pytest.raises(KeyError):
        fail()
    with pytest.raises(UserError, match="file cannot be written: No space"), aside(path):
        raise OSError(28, "No space left on device")
    assert (os.listdir(tmp_path), path.read_bytes()) == (["file"], b"old")
    write_file(tmp_path / ("n" * 255), b"a name as long as they come")
    with pytest.raises(UserError, match="cannot be written: No such file"):
        write_file(tmp_path / "nowhere" / "file", b"x")


def test_the_second_waits_for_its_turn_and_says_so(tmp_path, monkeypatch):
    monkeypatch.setattr("pdeplus._lib.files.PATIENCE_SECONDS", 0.05)
    entered = threading.Event()

    def second() -> None:
        with held_in_turn(tmp_path / "lock", "taken"):
            entered.set()

    def first() -> None:
        waiting = threading.Thread(target=second)
        with held_in_turn(tmp_path / "lock", "taken"):
            waiting.start()
            assert not entered.wait(0.5)
        waiting.join()

    with pytest.warns(UserWarning, match="taken; waiting for its end"):
        first()
    assert entered.is_set()
