"""Archives unpacked by hand: plain files and folders only, nothing outside the target, no more than was announced."""

import gzip
import shutil
import tarfile
import zipfile
import zlib
from collections.abc import Iterator
from pathlib import Path, PurePosixPath
from typing import IO

from tqdm import tqdm

from .._errors import UserError

GROWTH = 20
"""An archive may grow to so many times its size …"""
ALLOWANCE = 100_000_000
"""… and so many bytes more."""
BLOCK = 1 << 20

_BROKEN = (tarfile.TarError, zipfile.BadZipFile, gzip.BadGzipFile, zlib.error, EOFError, RuntimeError)
Entry = tuple[str, int, IO[bytes]]
"""Name, announced size and contents."""


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
            with tarfile.open(archive) as packed:
                announced = sum(member.size for member in packed if member.isfile())
                _write_all(_tar_entries(packed, archive), archive, folder, announced)
    except _BROKEN as error:
        raise UserError(f"{archive} is damaged or no archive: {error}") from error


def _write_all(entries: Iterator[Entry], archive: Path, folder: Path, announced: int) -> None:
    folder.mkdir(parents=True)
    if announced > GROWTH * archive.stat().st_size + ALLOWANCE:
        raise UserError(f"{archive} would grow to {announced / 1e9:.1f} GB, which no such archive does")
    if announced > shutil.disk_usage(folder).free:
        raise UserError(f"{archive} needs {announced / 1e9:.1f} GB, more than is free in {folder.parent}")
    with tqdm(desc=f"unpacking {archive.name}", total=announced, unit="B", unit_scale=True, disable=None) as bar:
        for name, size, stream in entries:
            target = folder.joinpath(*_safe_parts(name, archive))
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


def _safe_parts(name: str, archive: Path) -> tuple[str, ...]:
    """The parts of an entry's name, none of which leads out of the target."""
    path = PurePosixPath(name)
    if path.is_absolute() or ".." in path.parts or "\\" in name or ":" in name or "\0" in name or not path.parts:
        raise UserError(f"{archive}: {name!r} leads out of the folder")
    return path.parts
