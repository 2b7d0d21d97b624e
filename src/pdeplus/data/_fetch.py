"""`pdeplus data`: which data sets are here, and how the others are got."""

import importlib
import shutil
import sys
import tempfile
from pathlib import Path

from .. import _registry
from .._errors import UserError
from ._download import Unreachable, fetch
from ._places import Origin, data_root, find, lacking
from ._unpack import unpack


def origin_of(name: str) -> Origin | None:
    """Where a data set comes from; None for one that needs no download."""
    if name not in _registry.names("data"):
        raise _registry.unknown(f"data: {name!r}", name, _registry.names("data"))
    return getattr(importlib.import_module(f"pdeplus.data.{name}"), "ORIGIN", None)


def describe_data(root: str = "") -> str:
    """A line for each data set: name, size of the download, where it is."""
    lines = list[str]()
    for name in _registry.names("data"):
        origin = origin_of(name)
        if origin is None:
            lines.append(f"{name:<16}{'':>12}  {'your own' if name == 'image_folder' else 'comes with the install'}")
        else:
            here = find(origin, root)
            way = f"pdeplus data get {name}" if origin.downloads else origin.by_hand
            lines.append(f"{name:<16}{origin.size:>12}  {here or f'not here; {way}'}")
    return "\n".join([*lines, f"data folder: {data_root(root)}"])


def get(name: str, root: str = "") -> str:
    """Download and unpack a data set into the data folder, and say where it is.

    The folder appears only when it is complete. Where the official place cannot be reached, a second one is tried if
    there is any; else one line says what to download and where to put it.
    """
    origin = origin_of(name)
    if origin is None:
        return f"{name} needs no download"
    here = find(origin, root)
    if here is not None:
        return f"{name} is already in {here}"
    base, target = data_root(root), data_root(root) / origin.folder
    if not origin.downloads:
        raise UserError(f"{origin.by_hand}; put its folders {', '.join(origin.marks)} into {target}")
    if target.exists():
        raise UserError(f"{target} has no {lacking(origin, target)}; move it away and try again")
    base.mkdir(parents=True, exist_ok=True)
    new = [file for file in (base / download.file for download in origin.downloads) if not file.exists()]
    with tempfile.TemporaryDirectory(prefix=f".{origin.folder}-", dir=base) as scratch:
        source = _fill(origin, base, Path(scratch))
        made = Path(scratch) / origin.folder
        if lacking(origin, made):
            raise UserError(f"{source} has no {origin.folder}/{lacking(origin, made)}")
        made.rename(target)
    for file in new:
        file.unlink(missing_ok=True)
    return f"{name} is in {target} (from {source})"


def _fill(origin: Origin, base: Path, scratch: Path) -> str:
    """Make the data set's folder in `scratch`; returns where it came from."""
    made = scratch / origin.folder
    try:
        files = [fetch(download, base) for download in origin.downloads]
    except Unreachable as error:
        urls = " and ".join(download.url for download in origin.downloads)
        way_out = f"download {urls} elsewhere, put it into {base} and call this again"
        second = origin.second
        if second is None or shutil.which(second.command) is None:
            raise UserError(f"{error}; {way_out}") from error
        print(f"{error}; trying {second.about}", file=sys.stderr)
        made.mkdir()
        try:
            second.make(made)
        except UserError as failure:
            raise UserError(f"{failure}; {way_out}") from failure
        return second.about
    if len(files) == 1:
        unpack(files[0], scratch / "unpacked")
        if (scratch / "unpacked" / origin.folder).is_dir():
            (scratch / "unpacked" / origin.folder).rename(made)
    else:  # the files themselves are the data set
        made.mkdir()
        for file in files:
            shutil.copyfile(file, made / file.name)
    return origin.downloads[0].url
