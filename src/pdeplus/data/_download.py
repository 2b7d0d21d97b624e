"""One file over HTTP: resumed where it stopped, checked when it is complete."""

import hashlib
import http.client
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

from tqdm import tqdm

from .._errors import UserError
from ._places import Download

ATTEMPTS = 5
"""Breaks of the connection in a row, without a byte in between, that are put up with."""
BLOCK = 1 << 20
TIMEOUT = 30.0


class Unreachable(Exception):
    """The file could not be had now; what is here already stays for the next time."""


def fetch(download: Download, folder: Path) -> Path:
    """The complete, checked file in `folder`.

    A file that is there already is only checked. What has come so far is in NAME.part, and the next call goes on from
    it. A file with the wrong checksum is refused, and removed if it was downloaded here.
    """
    whole, part = folder / download.file, folder / f"{download.file}.part"
    if whole.is_file():
        if file_md5(whole) != download.md5:
            raise UserError(f"{whole} is damaged or another file: its MD5 is not {download.md5}; move it away")
        return whole
    folder.mkdir(parents=True, exist_ok=True)
    failures, reached = 0, _size(part)
    while not _more(download.url, part):
        failures, reached = failures + 1 if _size(part) <= reached else 0, _size(part)
        if failures >= ATTEMPTS:
            raise Unreachable(f"the connection to {download.url} breaks off again and again")
    if file_md5(part) != download.md5:
        part.unlink()
        raise UserError(f"{download.url} gave a file whose MD5 is not {download.md5}; it is removed: try again")
    return part.replace(whole)


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
            return _receive(answer, part, begun)
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


def _receive(answer: Any, part: Path, begun: int) -> bool:
    """Write an answer's body behind what is there, or anew if the server sends the file from its start."""
    resumed = answer.status == 206 and answer.headers.get("Content-Range", "").startswith(f"bytes {begun}-")
    done = begun if resumed else 0
    length = answer.headers.get("Content-Length")
    total = done + int(length) if length else None
    with (
        part.open("ab" if resumed else "wb") as out,
        tqdm(desc=part.stem, initial=done, total=total, unit="B", unit_scale=True, disable=None) as bar,
    ):
        while block := answer.read(BLOCK):
            out.write(block)
            done += len(block)
            bar.update(len(block))
    return total is None or done >= total
