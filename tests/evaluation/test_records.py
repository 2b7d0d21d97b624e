"""Records survive files, crashes and other writers; damage is answered in one line."""

import json
import math
import threading

import numpy as np
import pytest
from support.forkserver import finish, start_script
from support.hand_records import record

from pdeplus._lib.files import held
from pdeplus.errors import UserError
from pdeplus.evaluation.records import Bin, Record, append_records, pack_hits, read_records, to_json

RIGHT = np.array([True, False, True, True, False, False, True, False, True, True])
FULL = record(
    n=10,
    correct=6,
    epoch=199,
    samples=10,
    average="logits",
    temperature=1.5,
    scaled_nll=0.25,
    scaled_brier=0.1,
    scaled_ece=0.0,
    bins=(Bin(4, 2, 1.75), Bin(6, 4, 5.125)),
    hits=pack_hits(RIGHT),
    overlaps=("gaussian_noise", "fog"),
    parameters=11_000_000,
    flops=5.5e8,
    train_seconds=1.0,
    train_flops=1e18,
    machine="2 cores",
    commit="028d99e",
    command="pdeplus evaluate",
)


def changed(**values: object) -> str:
    return json.dumps(json.loads(to_json(FULL)) | values)


def without(name: str) -> str:
    return json.dumps({key: value for key, value in json.loads(to_json(FULL)).items() if key != name})


def test_what_was_written_is_read(tmp_path):
    path = tmp_path / "records.jsonl"
    append_records(path, [FULL, record()])
    append_records(str(path), [record(severity=4)])
    assert read_records(path) == [FULL, record(), record(severity=4)]
    assert read_records(str(path))[0].right.tolist() == RIGHT.tolist()
    assert path.read_bytes().count(b"\n") == 3


def test_properties_of_a_record():
    assert FULL.accuracy == 0.6
    assert FULL.cell == ("fog", 3)
    assert record().right.tolist() == []


@pytest.mark.parametrize("n", [1, 7, 8, 9, 2000])
def test_hits_come_back_for_any_number_of_images(n):
    right = np.random.default_rng(n).random(n) < 0.6
    assert record(n=n, hits=pack_hits(right)).right.tolist() == right.tolist()


@pytest.mark.parametrize("name", ["モデル ü", "two\nlines", "a\u2028b\u2029c\x85d\x0be", "not utf-8: \udcff", '"\\'])
def test_any_name_survives(tmp_path, name):
    path = tmp_path / "records.jsonl"
    append_records(path, [record(model=name), record()])
    assert [r.model for r in read_records(path)] == [name, "PDE+"]


def test_readable_names_stay_readable_in_the_file(tmp_path):
    append_records(tmp_path / "records.jsonl", [record(model="Größe")])
    assert "Größe" in (tmp_path / "records.jsonl").read_text(encoding="utf-8")


@pytest.mark.parametrize("content", [b"", b"\n", b"  \r\n\n"])
def test_a_file_without_lines_has_no_records(tmp_path, content):
    (tmp_path / "records.jsonl").write_bytes(content)
    assert read_records(tmp_path / "records.jsonl") == []


def test_windows_line_ends_and_blank_lines_do_no_harm(tmp_path):
    (tmp_path / "records.jsonl").write_bytes((to_json(FULL) + "\r\n\r\n" + to_json(record()) + "\r\n").encode())
    assert read_records(tmp_path / "records.jsonl") == [FULL, record()]


DAMAGES = {
    "broken JSON": (to_json(FULL)[:-9], "damaged"),
    "text": ("hello", "damaged"),
    "deep nesting": ("[" * 200_000, "damaged"),
    "a list": ("[1, 2]", r"not a record: .*\[1, 2\]"),
    "a number": ("3", "not a record"),
    "null": ("null", "not a record"),
    "no format": (without("format"), "no format, this version reads 1"),
    "another format": (changed(format=2), "format 2, this version reads 1"),
    "a missing field": (without("brier"), "incomplete: missing .*'brier'"),
    "an unknown field": (changed(colour="red"), "'colour'"),
    "a number as text": (changed(n="10"), "n='10'"),
    "text as a number": (changed(model=3), "model='3'"),
    "a truth value as a number": (changed(correct=True), "correct='True'"),
    "no number": (changed(nll=math.nan), "NaN is not a number"),
    "infinity": (changed(seconds=math.inf), "Infinity is not a number"),
    "a sixth severity": (changed(severity=6), "severity 6"),
    "half a severity": (changed(severity=1.5), "severity='1.5'"),
    "null where there must be one": (changed(nll=None), "nll='None'"),
    "text for an optional number": (changed(temperature="warm"), "temperature='warm'"),
    "an unknown selection": (changed(selection="best"), "selection='best'"),
    "an unknown suite": (changed(suite="attacks"), "suite='attacks'"),
    "bins that are numbers": (changed(bins=[1, 2]), "bins="),
    "bins that are short": (changed(bins=[[1, 2]]), "bins="),
    "bins of text": (changed(bins=[["1", 2, 3.0]]), "bins="),
    "overlaps that are no names": (changed(overlaps=[1]), "overlaps="),
    "no images": (changed(n=0, correct=0, hits=""), "0 right of 0"),
    "more right than there are": (changed(n=5, hits=""), "6 right of 5"),
    "fewer right than none": (changed(correct=-1, hits=""), "-1 right of 10"),
    "hits that are no base64": (changed(hits="!!!!"), "hits"),
    "hits of other images": (changed(n=100), "hits"),
    "hits that count otherwise": (changed(correct=7), "hits"),
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_damage_is_answered_in_one_line_with_file_and_line(tmp_path, damage):
    line, reason = DAMAGES[damage]
    path = tmp_path / "records.jsonl"
    path.write_text(f"{to_json(FULL)}\n{line}\n{to_json(record())}\n")
    with pytest.raises(UserError, match=f"records.jsonl line 2 .*{reason}") as caught:
        read_records(path)
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < len(str(path)) + 250


def test_no_flipped_bit_changes_what_is_read(tmp_path):
    """In every fifth byte: of names, numbers, hits, keys, the checksum itself, and the ends of lines."""
    path, records = tmp_path / "records.jsonl", [FULL, record(model="Größe")]
    append_records(path, records)
    whole, noticed = path.read_bytes(), 0
    for place in [*range(0, len(whole), 5), len(whole) - 1]:
        path.write_bytes(whole[:place] + bytes([whole[place] ^ 1 << place % 8]) + whole[place + 1 :])
        try:
            assert read_records(path) == records
        except UserError:
            noticed += 1
    assert noticed > 0.99 * len(whole) / 5


def test_lines_of_older_versions_have_no_checksum(tmp_path):
    path = tmp_path / "records.jsonl"
    path.write_text(without("sum") + "\n" + to_json(record()) + "\n")
    assert read_records(path) == [FULL, record()]
    path.write_text(changed(nll=0.75) + "\n")
    with pytest.raises(UserError, match="line 1 has changed since it was written: it does not match its checksum; del"):
        read_records(path)


@pytest.mark.parametrize("garbage", [b"\x00\x01\xfe\xff\x80", b"\x89PNG\r\x1a", b"\xff\xfe{\x00}\x00"])
def test_binary_garbage_is_named_by_its_line(tmp_path, garbage):
    path = tmp_path / "records.jsonl"
    path.write_bytes(to_json(FULL).encode() + b"\n" + garbage + b"\n")
    with pytest.raises(UserError, match="records.jsonl line 2 "):
        read_records(path)


def test_a_name_with_damaged_bytes_is_no_other_name(tmp_path):
    path = tmp_path / "records.jsonl"
    path.write_bytes(to_json(record(model="Größe")).encode("latin-1") + b"\n")
    with pytest.raises(UserError, match="records.jsonl line 1 is damaged"):
        read_records(path)


def test_unreadable_and_unwritable_files_are_named(tmp_path):
    with pytest.raises(UserError, match="absent.jsonl cannot be read: No such file"):
        read_records(tmp_path / "absent.jsonl")
    with pytest.raises(UserError, match="cannot be read: Is a directory"):
        read_records(tmp_path)
    with pytest.raises(UserError, match="absent.*records.jsonl cannot be written: No such file"):
        append_records(tmp_path / "absent" / "records.jsonl", [FULL])


@pytest.mark.parametrize("whole", [0, 1, 2])
@pytest.mark.parametrize("kept", [1, -5, None])
def test_a_torn_last_line_is_left_out_and_cut_off_before_the_next(tmp_path, whole, kept):
    """Torn after one byte, five bytes early, or just before the end of the line."""
    path = tmp_path / "records.jsonl"
    first = [record(corruption=str(i)) for i in range(whole)]
    append_records(path, first)
    path.write_bytes(path.read_bytes() + to_json(FULL).encode()[:kept])
    with pytest.warns(UserWarning, match="records.jsonl: its last line is incomplete and left out; evaluating again"):
        assert read_records(path) == first
    append_records(path, [record(seed=7)])
    assert read_records(path) == [*first, record(seed=7)]
    assert path.read_text() == "".join(to_json(r) + "\n" for r in [*first, record(seed=7)])


def test_of_two_lines_about_the_same_the_later_counts(tmp_path):
    path = tmp_path / "records.jsonl"
    append_records(path, [record(correct=1, seconds=9.0), record(severity=4), record(correct=2, commit="later")])
    assert read_records(path) == [record(severity=4), record(correct=2, commit="later")]


DIFFERENT = {
    "model": "ERM",
    "data": "cifar100",
    "suite": "clean",
    "corruption": "snow",
    "severity": 4,
    "origin": "made",
    "seed": 1,
    "config": "9",
    "weights": "f",
    "selection": "oracle",
    "samples": 10,
}


@pytest.mark.parametrize("name", DIFFERENT)
def test_measurements_that_differ_in_what_was_measured_are_all_kept(tmp_path, name):
    append_records(tmp_path / "records.jsonl", [record(), record(**{name: DIFFERENT[name]})])
    assert len(read_records(tmp_path / "records.jsonl")) == 2


@pytest.mark.parametrize(("samples", "kept"), [(0, 1), (3, 2)])
@pytest.mark.parametrize("change", [{"average": "logits"}, {"batch": 7}])
def test_how_noise_was_drawn_and_averaged_counts_where_there_is_noise(tmp_path, samples, kept, change):
    append_records(tmp_path / "records.jsonl", [record(samples=samples), record(samples=samples, **change)])
    assert len(read_records(tmp_path / "records.jsonl")) == kept


WRITER = """
import dataclasses, sys
from pdeplus.evaluation.records import append_records, parse
for i in range(100):
    one = dataclasses.replace(parse(sys.argv[2], "here"), corruption=str(i), command="x" * 10_000)
    append_records(sys.argv[1], [one] * 2)
"""


def test_two_processes_lose_nothing(tmp_path):
    (tmp_path / "writer.py").write_text(WRITER)
    for seed in (1, 2):
        (tmp_path / str(seed)).mkdir()
    writers = [
        start_script(tmp_path / "writer.py", "../records.jsonl", to_json(record(seed=seed)), cwd=tmp_path / str(seed))
        for seed in (1, 2)
    ]
    for seed, writer in enumerate(writers, 1):
        finish(writer, tmp_path / str(seed))
    path = tmp_path / "records.jsonl"
    assert path.read_bytes().count(b"\n") == 400
    wanted = {(seed, str(i)) for seed in (1, 2) for i in range(100)}
    assert {(r.seed, r.corruption) for r in read_records(path)} == wanted


def test_the_half_written_line_of_another_writer_is_not_cut(tmp_path):
    path, line = tmp_path / "records.jsonl", (to_json(FULL) + "\n").encode()
    with held(tmp_path / "records.jsonl.lock", "held"), path.open("ab", buffering=0) as other:
        other.write(line[:100])
        ours = threading.Thread(target=append_records, args=(path, [record()]))
        ours.start()
        ours.join(0.2)
        assert ours.is_alive()
        assert path.read_bytes() == line[:100]
        other.write(line[100:])
    ours.join(200)
    assert read_records(path) == [FULL, record()]


def test_a_large_study_is_read_whole(tmp_path):
    """Ten seeds of 76 cells, 2,000 images each."""
    right = np.random.default_rng(0).random(2000) < 0.5
    one = {"n": 2000, "correct": int(right.sum()), "hits": pack_hits(right), "bins": (Bin(1, 1, 0.5),) * 15}
    records: list[Record] = [record(seed=i // 76, corruption=str(i % 76), **one) for i in range(760)]
    append_records(tmp_path / "records.jsonl", records)
    assert read_records(tmp_path / "records.jsonl") == records
