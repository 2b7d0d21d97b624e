"""What a report is made from: records, and what run folders tell besides them."""

import base64
import binascii
import json
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast, final

from .._errors import UserError
from ..records import Record, identity, read_records
from ..run import Run
from ..trainer import Metrics

Item = Record | Run | str | Path
RECORDS = "records.jsonl"
PNG = b"\x89PNG\r\n\x1a\n"


@final
@dataclass(frozen=True, kw_only=True)
class Sample:
    """A test image, what it shows and what the network took it for."""

    corruption: str
    severity: int
    index: int
    label: str
    prediction: str
    confidence: float
    png: str
    """Base64."""


@final
@dataclass(frozen=True, kw_only=True)
class Folder:
    """What a run folder tells."""

    name: str
    label: str
    """What its records call the model."""
    seed: int
    metrics: tuple[Metrics, ...]
    sessions: tuple[dict[str, Any], ...]
    samples: tuple[Sample, ...]


@final
@dataclass(frozen=True)
class Material:
    """All that a report shows; each measurement once."""

    records: tuple[Record, ...]
    folders: tuple[Folder, ...]


def gather(given: Item | Iterable[Item]) -> Material:
    """Read what was given: records, runs, run folders, files of records, mixed freely.

    Of two records about the same thing the later counts. A run that was not evaluated yet is refused.
    """
    items = [given] if isinstance(given, Record | Run | str | Path) else list(given)
    wrong = next((item for item in items if not isinstance(item, Record | Run | str | Path)), None)  # type: ignore[reportUnnecessaryIsInstance]
    if wrong is not None:
        raise UserError(f"a {type(wrong).__name__} cannot be reported; give records, runs or their folders")
    records, folders = list[Record](), dict[Path, Folder]()
    for item in items:
        if isinstance(item, Record):
            records.append(item)
            continue
        path = item.path if isinstance(item, Run) else Path(item)
        found = _records_of(path)
        records += found
        if (path / "config.toml").is_file():
            folders[path.resolve()] = _read_folder(path, found)
    if not records:
        raise UserError("there is no record to report: pdeplus evaluate RUN writes them")
    return Material(tuple({identity(r): r for r in records}.values()), tuple(folders.values()))


def _records_of(path: Path) -> list[Record]:
    if path.is_file() and path.suffix != ".jsonl":
        raise UserError(f"{path} is no file of records, whose name ends with .jsonl; give one, or a run folder")
    if path.is_file():
        return read_records(path)
    if not path.is_dir():
        raise UserError(f"{path} does not exist; give a run folder or a file of records")
    if not (path / RECORDS).is_file():
        Run.load(path)
        raise UserError(f"{path} has no records yet: pdeplus evaluate {path}")
    found = read_records(path / RECORDS)
    if not found:
        raise UserError(f"{path} has no records yet: pdeplus evaluate {path}")
    return found


def _read_folder(path: Path, records: list[Record]) -> Folder:
    sessions = _read_json(path / "environment.json", list[dict[str, Any]]())
    if not isinstance(sessions, list) or not all(isinstance(one, dict) for one in cast(list[Any], sessions)):
        raise UserError(f"{path / 'environment.json'} holds no list of sessions; put it back from a copy or delete it")
    return Folder(
        name=path.resolve().name,
        label=records[0].model,
        seed=records[0].seed,
        metrics=tuple(Run(path).metrics),
        sessions=tuple(cast(list[dict[str, Any]], sessions)),
        samples=_read_samples(path / "samples.json"),
    )


def _read_samples(path: Path) -> tuple[Sample, ...]:
    content = _read_json(path, {"images": []})
    try:
        return tuple(_sample(one) for one in content["images"])
    except (KeyError, TypeError, ValueError, binascii.Error) as error:
        raise UserError(f"{path} is damaged ({error}); delete it, and the report comes without its images") from error


def _sample(values: Any) -> Sample:
    if not base64.b64decode(values["png"], validate=True).startswith(PNG):
        raise ValueError("an image is no PNG")
    return Sample(
        corruption=str(values["corruption"]),
        severity=int(values["severity"]),
        index=int(values["index"]),
        label=str(values["label"]),
        prediction=str(values["prediction"]),
        confidence=float(values["confidence"]),
        png=str(values["png"]),
    )


def _read_json(path: Path, default: Any) -> Any:
    if not path.is_file():
        return default
    try:
        return json.loads(path.read_bytes())
    except ValueError as error:
        raise UserError(f"{path} is damaged ({error}); put it back from a copy or delete it") from error
