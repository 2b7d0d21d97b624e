"""Archives are unpacked to the byte, or refused without harm."""

import gzip
import io
import tarfile
import zipfile

import pytest
from support.data_files import pixels, tar_of, zip_of

from pdeplus.data._download import unpack
from pdeplus.errors import UserError

BODY = pixels(0, 300_000).tobytes()


@pytest.mark.parametrize("pack", [tar_of, lambda e: tar_of(e, "w"), zip_of])
def test_archives_are_unpacked_to_the_byte(tmp_path, pack):
    entries = {"set/a.bin": BODY, "set/sub é/b c.txt": b"text", "set/empty": b""}
    (tmp_path / "x").write_bytes(pack(entries))
    unpack(tmp_path / "x", tmp_path / "out")
    found = {str(p.relative_to(tmp_path / "out")): p.read_bytes() for p in (tmp_path / "out").rglob("*") if p.is_file()}
    assert found == entries


def _tar_link(kind: bytes, target: str) -> bytes:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as archive:
        info = tarfile.TarInfo("set/link")
        info.type, info.linkname = kind, target
        archive.addfile(info)
    return out.getvalue()


def _zip_link() -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as archive:
        info = zipfile.ZipInfo("set/link")
        info.external_attr = 0o120777 << 16
        archive.writestr(info, "/etc/passwd")
    return out.getvalue()


@pytest.mark.parametrize(
    ("raw", "word"),
    [
        (tar_of({"../escaped": b"x"}), "points outside"),
        (tar_of({"/escaped": b"x"}), "points outside"),
        (tar_of({"set/../../escaped": b"x"}), "points outside"),
        (zip_of({"../escaped": b"x"}), "points outside"),
        (zip_of({"C:\\escaped": b"x"}), "points outside"),
        (_tar_link(tarfile.SYMTYPE, "/etc"), "link"),
        (_tar_link(tarfile.LNKTYPE, "../../escaped"), "link"),
        (_tar_link(tarfile.FIFOTYPE, ""), "device"),
        (_zip_link(), "link"),
        (zip_of({"set/bomb": bytes(200_000_000)}), "would grow"),
        (tar_of({"set/a": BODY})[:-1000], "damaged"),
        (zip_of({"set/a": BODY})[:1000], "damaged"),
        (b"no archive at all", "damaged"),
    ],
    ids=range(13),  # not the bytes, which hold the time
)
def test_hostile_and_damaged_archives_are_refused(tmp_path, raw, word):
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "x").write_bytes(raw)
    with pytest.raises(UserError, match=word):
        unpack(tmp_path / "in" / "x", tmp_path / "in" / "out")
    assert [path.name for path in tmp_path.iterdir()] == ["in"]
    written = [path for path in (tmp_path / "in").rglob("*") if path.name in ("escaped", "link", "bomb")]
    assert written == []


def _tar_header(size: int) -> bytes:
    """A tar.gz whose only header announces an extended header of so many bytes, all zeros."""
    info = tarfile.TarInfo("set/a")
    info.type, info.size = tarfile.XHDTYPE, size
    out = io.BytesIO()
    with gzip.open(out, "wb", compresslevel=1) as packed:
        packed.write(info.tobuf())
        packed.write(bytes(30_000_000))
    return out.getvalue()


@pytest.mark.parametrize(
    ("raw", "word"),
    [
        (_tar_header(30_000_000), "in a header"),
        (_tar_header(8**11 - 1), "in a header"),
        (_tar_header(1 << 70), "damaged|header"),
    ],
    ids=range(3),
)
def test_a_header_that_expands_without_end_is_refused_at_its_announcement(tmp_path, raw, word):
    (tmp_path / "x").write_bytes(raw)
    with pytest.raises(UserError, match=word):
        unpack(tmp_path / "x", tmp_path / "out")


def test_an_entry_without_a_name_is_refused(tmp_path):
    with zipfile.ZipFile(tmp_path / "x", "w") as archive:
        archive.writestr("name", b"x")
        archive.infolist()[0].filename = ""
        archive.infolist()[0].orig_filename = ""
    with pytest.raises(UserError, match="no name|damaged"):
        unpack(tmp_path / "x", tmp_path / "out")
