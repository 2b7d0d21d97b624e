"""Where data sets lie, and how they get there: downloads that resume and are checked, archives unpacked with care."""

import gzip
import hashlib
import http.client
import importlib
import os
import shutil
import struct
import subprocess
import tarfile
import tempfile
import urllib.error
import urllib.request
import zipfile
import zlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import IO, cast, final

from tqdm import tqdm

from .._lib import registry
from .._lib.files import held_in_turn, make_folder, sync_all, sync_folder
from .._lib.long_work import tell
from ..errors import UserError

ATTEMPTS = 5
"""Breaks of the connection in a row, without a byte in between, that are put up with."""
TIMEOUT = 30.0
"""Seconds without a byte after which a connection counts as broken."""
COMMAND_SECONDS = 1800
BLOCK = 1 << 20
"""Bytes that are read at a time."""
GROWTH = 20
"""An archive may grow to so many times its size …"""
ALLOWANCE = 100_000_000
"""… and so many bytes more."""
HEADER = 1 << 24
"""Bytes that the header of an entry may have."""
_BROKEN = (
    tarfile.TarError, zipfile.BadZipFile, gzip.BadGzipFile, zlib.error, struct.error,
    EOFError, RuntimeError, ValueError, LookupError, OverflowError,
)  # fmt: skip
"""What the readers of archives raise where one is damaged."""
Entry = tuple[str, int, IO[bytes]]
"""Name, announced size and contents."""


@final
@dataclass(frozen=True, kw_only=True)
class SecondSource:
    """Another place that holds the same images, reached by a command of the system."""

    about: str
    command: str
    """The command, which must be on the machine."""
    make: Callable[[Path], None]
    """Writes the data set's folder, in the original layout, into an empty folder."""


@final
@dataclass(frozen=True, kw_only=True)
class Origin:
    """A data set's folder, and how to get it."""

    name: str
    folder: str
    """The folder's name, as the official archive has it."""
    marks: tuple[str, ...]
    """What the folder must hold to be taken for the data set (patterns)."""
    size: str
    """Size of the download, for people."""
    downloads: Mapping[str, str] = field(default_factory=dict[str, str])
    """URL and MD5 of each official file."""
    second: SecondSource | None = None
    by_hand: str = ""
    """What to do where there is no official download."""
    aliases: tuple[str, ...] = ()
    """Other names that the folder goes by."""


def get(name: str, root: str = "") -> str:
    """Download and unpack a data set into the data folder, and say where it is.

    The folder appears only when it is complete. Where the official place cannot be reached, a second one is tried if
    there is any; else one line says what to download and where to put it.
    """
    origin = origin_of(name)
    if origin is None:
        return f"{name} needs no download"
    here = find_folder(origin, root)
    if here is not None:
        return f"{name} is already in {here}"
    base, target = data_root(root), data_root(root) / origin.folder
    if not origin.downloads:
        raise UserError(f"{origin.by_hand}; put its folders {', '.join(origin.marks)} into {target}")
    make_folder(base)
    lock = base / f".{origin.folder}.lock"
    with held_in_turn(lock, f"another process is downloading {name}"):
        try:
            here = find_folder(origin, root)
            return f"{name} is already in {here}" if here is not None else _get(origin, base, target)
        finally:
            lock.unlink(missing_ok=True)  # whoever waits for it finds the set


def _get(origin: Origin, base: Path, target: Path) -> str:
    """Download and unpack a data set; what a process left that was killed at this is removed first."""
    if target.exists():
        raise UserError(f"{target} has no {lacking(origin, target)}; move it away and try again")
    for left in base.glob(f".{origin.folder}-*"):
        shutil.rmtree(left, ignore_errors=True)
    new = [file for file in (base / file_name(url) for url in origin.downloads) if not file.exists()]
    with tempfile.TemporaryDirectory(prefix=f".{origin.folder}-", dir=base) as scratch:
        source = _fill(origin, base, Path(scratch))
        filled = Path(scratch) / origin.folder
        if lacking(origin, filled):
            raise UserError(f"{source} has no {origin.folder}/{lacking(origin, filled)}")
        sync_all()
        filled.rename(target)
        sync_folder(base)
    for file in new:
        file.unlink(missing_ok=True)
    return f"{origin.name} is in {target} (from {source})"


def _fill(origin: Origin, base: Path, scratch: Path) -> str:
    """Fill the data set's folder in `scratch`; returns where it came from."""
    folder = scratch / origin.folder
    try:
        files = [fetch(url, md5, base) for url, md5 in origin.downloads.items()]
    except Unreachable as error:
        way_out = f"download {' and '.join(origin.downloads)} elsewhere, put it into {base} and repeat the command"
        second = origin.second
        if second is None or shutil.which(second.command) is None:
            raise UserError(f"{error}; {way_out}") from error
        tell(f"{error}; trying {second.about}")
        folder.mkdir()
        try:
            second.make(folder)
        except UserError as failure:
            raise UserError(f"{failure}; {way_out}") from failure
        return second.about
    if len(files) == 1:
        unpack(files[0], scratch / "unpacked")
        if (scratch / "unpacked" / origin.folder).is_dir():
            (scratch / "unpacked" / origin.folder).rename(folder)
    else:  # the files themselves are the data set
        folder.mkdir()
        for file in files:
            shutil.copyfile(file, folder / file.name)
    return next(iter(origin.downloads))


def describe_data(root: str = "") -> str:
    """A line for each data set: name, size of the download, where it is."""
    lines = list[str]()
    for name in registry.names("data"):
        origin, place = origin_of(name), "your own" if name == "image_folder" else "needs no download"
        if origin is not None:
            way = f"pdeplus data get {name}" if origin.downloads else origin.by_hand
            place = find_folder(origin, root) or f"not here; {way}"
        lines.append(f"{name:<16}{origin.size if origin else '':>12}  {place}")
    return "\n".join([*lines, f"data folder: {data_root(root)}"])


def origin_of(name: str) -> Origin | None:
    """Where a data set comes from; None for one that needs no download."""
    known = registry.names("data")
    if name not in known:
        raise registry.unknown(f"data: {name!r}", name, known)
    return getattr(importlib.import_module(f"pdeplus.data.{name}"), "ORIGIN", None)


def data_root(root: str = "") -> Path:
    """The folder that data sets lie in: `root`, else $PDEPLUS_DATA, else ~/.cache/pdeplus."""
    return Path(root or os.environ.get("PDEPLUS_DATA") or "~/.cache/pdeplus").expanduser()


def find_folder(origin: Origin, root: str = "") -> Path | None:
    """The data set's folder: in `root` under its own name, or `root` itself; None where it is not complete."""
    base = data_root(root)
    candidates = [*(base / name for name in (origin.folder, *origin.aliases)), base]
    return next((folder for folder in candidates if not lacking(origin, folder)), None)


def require_folder(origin: Origin, root: str = "") -> Path:
    """The data set's folder; where it is missing, one line says how to get it."""
    folder, base = find_folder(origin, root), data_root(root)
    if folder is not None:
        return folder
    begun = base / origin.folder
    what = f"{begun} has no {lacking(origin, begun)}" if begun.is_dir() else f"{base} has no {origin.folder}"
    where = f" --root {base}" if root else ""
    raise UserError(
        f"data set {origin.name}: {what}; get it: pdeplus data get {origin.name}{where}, "
        f"or set data.root to the folder that holds it"
    )


def lacking(origin: Origin, folder: Path) -> str:
    """The first thing the folder lacks to be this data set; empty if nothing."""
    return next((mark for mark in origin.marks if not any(folder.glob(mark))), "")


class Unreachable(Exception):
    """The file could not be had now; what is here already stays for the next time."""


def fetch(url: str, md5: str, folder: Path) -> Path:
    """The complete, checked file in `folder`.

    A file that is there already is only checked. What has come so far is in NAME.part, and the next call goes on from
    it. A file with the wrong checksum is refused, and removed if it was downloaded here.
    """
    whole = folder / file_name(url)
    part = whole.with_name(f"{whole.name}.part")
    if whole.is_file():
        if file_md5(whole) != md5:
            raise UserError(f"{whole} is damaged or another file: its MD5 is not {md5}; move it away")
        return whole
    folder.mkdir(parents=True, exist_ok=True)
    failures, reached = 0, _size(part)
    while not _more(url, part):
        failures, reached = failures + 1 if _size(part) <= reached else 0, _size(part)
        if failures >= ATTEMPTS:
            raise Unreachable(f"the connection to {url} keeps breaking")
    if file_md5(part) != md5:
        part.unlink()
        raise UserError(f"{url} gave a file whose MD5 is not {md5}; it is removed: try again")
    return part.replace(whole)


def file_name(url: str) -> str:
    """The name of the file behind a URL."""
    return url.rpartition("/")[2].partition("?")[0]


def file_md5(path: Path) -> str:
    """The MD5 sum of a file, as data sets publish it."""
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, lambda: hashlib.md5(usedforsecurity=False)).hexdigest()


def _more(url: str, part: Path) -> bool:
    """Add to `part` what the server still has to give; whether it is all there now."""
    begun = _size(part)
    request = urllib.request.Request(url, headers={"Range": f"bytes={begun}-"} if begun else {})
    try:
        with urllib.request.urlopen(request, timeout=TIMEOUT) as answer:
            resumed = answer.status == 206 and answer.headers.get("Content-Range", "").startswith(f"bytes {begun}-")
            done, length = begun if resumed else 0, answer.headers.get("Content-Length")
            total = done + int(length) if length else None
            with (
                part.open("ab" if resumed else "wb") as out,  # anew if the server sends the file from its start
                tqdm(desc=part.stem, initial=done, total=total, unit="B", unit_scale=True, disable=None) as bar,
            ):
                while block := answer.read(BLOCK):
                    done += out.write(block)
                    bar.update(len(block))
            return total is None or done >= total
    except urllib.error.HTTPError as error:
        error.close()
        if error.code == 416 and begun:  # nothing is left to give: the checksum decides
            return True
        raise Unreachable(f"{url} answers {error.code} {error.reason}") from error
    except urllib.error.URLError as error:
        raise Unreachable(f"{url} cannot be reached ({error.reason})") from error
    except (http.client.HTTPException, TimeoutError, ConnectionError):
        return False


def _size(path: Path) -> int:
    return path.stat().st_size if path.exists() else 0


def unpack(archive: Path, folder: Path) -> None:
    """Unpack a .zip, .tar or .tar.gz into a new folder.

    Links, devices and names that lead out are refused, as is an archive that grows beyond reason or beyond the disk;
    what has been unpacked until then stays in `folder`.
    """
    try:
        if zipfile.is_zipfile(archive):
            with zipfile.ZipFile(archive) as packed:
                announced = sum(info.file_size for info in packed.infolist())
                _write_all(_zip_entries(packed, archive), archive, folder, announced)
        else:
            with Unpacked(archive) as stream, tarfile.open(fileobj=cast(IO[bytes], stream), mode="r:") as packed:
                announced = sum(member.size for member in packed if member.isfile())
                _write_all(_tar_entries(packed, archive), archive, folder, announced)
    except UserError:
        raise
    except _BROKEN as error:
        raise UserError(f"{archive} is damaged or no archive: {error}") from error


@final
class Unpacked:
    """The tar file in an archive, which may be packed by gzip; refuses to grow beyond reason, in all or in a header."""

    def __init__(self, archive: Path) -> None:
        self.archive, self.most = archive, most_of(archive)
        with archive.open("rb") as file:
            packed = file.read(2) == b"\x1f\x8b"
        self.stream = cast(IO[bytes], gzip.GzipFile(archive)) if packed else archive.open("rb")

    def __enter__(self) -> "Unpacked":
        return self

    def __exit__(self, *about: object) -> None:
        self.stream.close()

    def read(self, size: int = -1) -> bytes:
        """The next bytes; contents are read in blocks, so that what asks for more than a header can have is none."""
        if not 0 <= size <= HEADER:
            raise UserError(f"{self.archive} would grow by {size / 1e9:.1f} GB in a header, far too much")
        return self.stream.read(size)

    def seek(self, place: int, whence: int = 0) -> int:
        """Go to a place from the start."""
        if place > self.most:
            raise UserError(f"{self.archive} would grow to {place / 1e9:.1f} GB, far too much")
        return self.stream.seek(place, whence)

    def tell(self) -> int:
        """The place from the start."""
        return self.stream.tell()


def most_of(archive: Path) -> int:
    """The bytes that an archive may grow to."""
    return GROWTH * archive.stat().st_size + ALLOWANCE


def _write_all(entries: Iterator[Entry], archive: Path, folder: Path, announced: int) -> None:
    folder.mkdir(parents=True)
    if announced > most_of(archive):
        raise UserError(f"{archive} would grow to {announced / 1e9:.1f} GB, far too much")
    if announced > shutil.disk_usage(folder).free:
        raise UserError(f"{archive} needs {announced / 1e9:.1f} GB, more than is free in {folder.parent}")
    with tqdm(desc=f"unpacking {archive.name}", total=announced, unit="B", unit_scale=True, disable=None) as bar:
        for name, size, stream in entries:
            path = PurePosixPath(name)
            if path.is_absolute() or not path.parts or ".." in path.parts or any(sign in name for sign in "\\:\0"):
                raise UserError(f"{archive}: {name!r} points outside the folder")
            target = folder.joinpath(*path.parts)
            target.parent.mkdir(parents=True, exist_ok=True)
            with target.open("wb") as out:
                while size and (block := stream.read(min(BLOCK, size))):
                    out.write(block)
                    size -= len(block)
                    bar.update(len(block))
            if size or stream.read(1):
                raise UserError(f"{archive}: {name} is not as long as announced")


def _zip_entries(packed: zipfile.ZipFile, archive: Path) -> Iterator[Entry]:
    for info in packed.infolist():
        if not info.filename:
            raise UserError(f"{archive}: an entry has no name")
        if info.external_attr >> 28 == 0o12:
            raise UserError(f"{archive}: {info.filename} is a link")
        if not info.is_dir():
            with packed.open(info) as stream:
                yield info.filename, info.file_size, stream


def _tar_entries(packed: tarfile.TarFile, archive: Path) -> Iterator[Entry]:
    for member in packed:
        if not (member.isfile() or member.isdir()):
            raise UserError(f"{archive}: {member.name} is a link or a device")
        stream = packed.extractfile(member) if member.isfile() else None
        if stream is not None:
            with stream:
                yield member.name, member.size, stream


def left_by(command: list[str], folder: Path, pattern: str) -> Path:
    """The file that a command leaves in the folder it runs in; its failure is told in its own last line."""
    called = " ".join(command)
    try:
        done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=COMMAND_SECONDS)
    except (OSError, subprocess.SubprocessError) as error:
        raise UserError(f"{called} failed: {error}") from error
    if done.returncode:
        lines = [line for line in done.stderr.splitlines() if line.strip()] or ["no reason given"]
        raise UserError(f"{called} failed: {lines[-1].strip()}")
    found = next(folder.glob(pattern), None)
    if found is None:
        raise UserError(f"{called} left no package")
    return found
