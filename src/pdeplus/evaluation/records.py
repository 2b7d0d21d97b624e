"""Records: what a model did on one test set, one JSON line each.

A record says by itself what was measured, on what, with what and at what cost, so that tables need nothing else.
"""

import base64
import json
import os
import re
import warnings
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, BinaryIO, Literal, NamedTuple, cast, final, get_args, get_origin, get_type_hints

import numpy as np
from numpy.typing import NDArray

from .._lib.files import held, readable, sum_of, sync_folder
from ..errors import UserError

RECORDS = "records.jsonl"
"""The file that holds a model's records."""
FORMAT = 1
"""Version of a line's format; a change in the meaning of a field counts it up."""
LARGEST = 1e30
"""What no number in a record comes near; of whole numbers, 2^63 is the limit."""
SUM = "sum"
"""What the checksum is called in a line; lines of older versions have none."""
WHOLE = re.compile(rb'"sum": "\w+"}.')
"""In a last line without its end: it was not torn, its end was damaged."""
CLEAN = "clean"
"""What `Record.corruption` says of a data set's own test images."""
TestKey = tuple[str, int]
"""Corruption and severity."""
Suite = Literal["clean", "corruptions", "cbar", "domains", "adversarial"]
"""Families of test sets."""
Selection = Literal["last", "validation", "oracle", "given"]
"""How the weights were chosen: the last epoch's; those best on held-out training images; those best on the test
corruptions themselves, as the authors do; or the model was given as it is."""


class Bin(NamedTuple):
    """The predictions whose confidence falls into one of the equal bins."""

    n: int
    correct: int
    confidence: float
    """Summed, not averaged."""


@final
@dataclass(frozen=True, kw_only=True)
class Record:
    """One model on one test set."""

    model: str
    """The model's name in tables."""
    data: str
    """The data set."""
    suite: Suite
    corruption: str
    """Such as "fog", the name of a domain, an attack and its size such as "pgd linf 8/255", or "clean"."""
    severity: int
    """1 to 5; 0 where there is none."""
    origin: str
    """Where the images come from: the data set, its published corrupted files, or how they were corrupted."""
    seed: int
    """Seed of the run; records that differ in it alone are repetitions."""
    config: str
    """A hash of the run's config without its seed, or of the given model's weights."""
    weights: str
    """A hash of the weights."""
    selection: Selection
    epoch: int | None = None
    """The epoch of the weights, where it is known."""
    samples: int = 0
    """Noisy passes E; 0 is the network without noise."""
    average: str = "probabilities"
    """What those passes average."""
    batch: int = 0
    """Images per forward pass, which noise depends on; 0 where there is none."""
    n: int
    correct: int
    nll: float
    """Mean negative log-likelihood."""
    brier: float
    """Mean squared distance of the probabilities from the truth."""
    ece: float
    """Expected calibration error of the most likely class, equal bins."""
    temperature: float | None = None
    """Fitted on clean validation images; None where there are none."""
    scaled_nll: float | None = None
    scaled_brier: float | None = None
    scaled_ece: float | None = None
    bins: tuple[Bin, ...] = ()
    """For the reliability diagram, from confidence 0 to 1."""
    hits: str = ""
    """Which images were right: bits, base64."""
    classes: tuple[str, ...] = ()
    """Names of the labels, where they are few enough for a table of them."""
    confusion: tuple[tuple[int, ...], ...] = ()
    """Of those classes: the label, the prediction, and the number of images; pairs that never occurred are left out."""
    adapted: bool = False
    """Whether BatchNorm took its statistics from the test images."""
    overlaps: tuple[str, ...] = ()
    """Test corruptions that the training augmentations resemble."""
    seconds: float
    """Time spent on predicting, without reading, corrupting or attacking the images."""
    parameters: int | None = None
    """Parameters of the network as it predicts."""
    flops: float | None = None
    """Operations of predicting one image."""
    train_seconds: float | None = None
    train_core_seconds: float | None = None
    """Training time of all cores together, without what other processes took of them."""
    train_flops: float | None = None
    machine: str = ""
    commit: str | None = None
    command: str = ""
    format: int = FORMAT

    @property
    def accuracy(self) -> float:
        """Fraction of right predictions."""
        return self.correct / self.n

    @property
    def cell(self) -> TestKey:
        """Corruption and severity."""
        return self.corruption, self.severity

    @property
    def right(self) -> NDArray[np.bool_]:
        """Which images were right, in the order of the test set; empty where it was not recorded."""
        bits = np.frombuffer(base64.b64decode(self.hits), np.uint8)
        return np.unpackbits(bits, count=self.n if self.hits else 0).astype(np.bool_)


def pack_hits(right: NDArray[np.bool_]) -> str:
    """What `Record.hits` holds."""
    return base64.b64encode(np.packbits(right).tobytes()).decode()


def read_records(path: str | Path) -> list[Record]:
    """All records of a file, each measurement once: of two lines about the same thing the later counts.

    A line that is not a record is refused with its number. An incomplete last line, left by a process that was killed
    while writing, is skipped with a warning.
    """
    try:
        content = Path(path).read_bytes()
    except OSError as error:
        raise UserError(f"{path} cannot be read: {error.strerror}") from error
    *lines, rest = content.split(b"\n")  # splitlines would split at line ends that names may contain
    if WHOLE.search(rest):
        lines.append(rest)
    elif rest:
        warnings.warn(f"{path}: its last line is incomplete and left out; evaluating again fills the gap", stacklevel=2)
    records = [parse(line, f"{path} line {i}") for i, line in enumerate(lines, 1) if line.strip()]
    latest = dict[tuple[Any, ...], Record]()
    for record in records:
        latest.pop(identity(record), None)  # a measurement takes the place of its last line
        latest[identity(record)] = record
    return list(latest.values())


def append_records(path: str | Path, records: Iterable[Record]) -> None:
    """Add lines to a file, safe on disk when this returns; a torn last line is cut off first.

    Several processes may add to the same file: each waits for the other's lines to be whole.
    """
    lines = "".join(to_json(record) + "\n" for record in records)
    try:
        new = not Path(path).exists()
        with Path(path).open("ab+") as file, held(Path(f"{path}.lock"), f"{path} is being written"):
            _cut_torn_line(file)
            file.write(lines.encode(errors="backslashreplace"))  # file names may hold what UTF-8 cannot; JSON can
            file.flush()
            os.fsync(file.fileno())
            if new:
                sync_folder(Path(path).parent)
    except OSError as error:
        raise UserError(f"{path} cannot be written: {error.strerror}") from error


def _cut_torn_line(file: BinaryIO) -> None:
    if file.seek(0, os.SEEK_END):  # its end now: another process may have written while this one waited
        file.seek(-1, os.SEEK_END)
        if file.read(1) != b"\n":
            file.seek(0)
            file.truncate(file.read().rfind(b"\n") + 1)


def to_json(record: Record) -> str:
    """One line, which ends in its checksum."""
    return json.dumps({**vars(record), SUM: _sum_of_values(vars(record))}, ensure_ascii=False)


def _sum_of_values(values: Mapping[str, Any]) -> str:
    """A checksum of what a line says, however it is laid out."""
    return sum_of(json.dumps(values, sort_keys=True).encode())[:16]


def readable_record(record: Record) -> Record:
    """The record with texts that any page or terminal can show."""
    texts = {name: readable(value) for name, value in vars(record).items() if isinstance(value, str)}
    words = {name: tuple(map(readable, getattr(record, name))) for name in ("overlaps", "classes")}
    return replace(record, **texts, **words)  # type: ignore[reportArgumentType]


def in_words(text: str) -> str:
    """A record's origin or data as people read it; records keep the words by which older ones know them."""
    for kept, shown in (("made ice", "synthetic frost"), ("'s ice", "'s frost"), ("given images", "your images")):
        text = text.replace(kept, shown)
    return text


def identity(record: Record) -> tuple[Any, ...]:
    """What was measured: two records that agree in this are the same measurement."""
    r = record
    what = (r.model, r.data, r.suite, r.corruption, r.severity, r.origin)
    noise = (r.samples, r.average, r.batch) if r.samples else ()
    return (*what, r.seed, r.config, r.weights, r.selection, noise)


def _refuse(constant: str) -> float:
    raise ValueError(f"{constant} is not a number")


def parse(line: str | bytes, where: str) -> Record:
    """A record from its line, or one line that says what is wrong with it."""
    way_out = "delete the line; evaluating again fills the gap"
    try:
        values: Any = json.loads(line, parse_constant=_refuse)
    except (ValueError, RecursionError) as error:
        raise UserError(f"{where} is damaged ({getattr(error, 'msg', error)}); {way_out}") from error
    if not isinstance(values, dict):
        raise UserError(f"{where} is not a record: {line[:40]!r}; {way_out}")
    table = cast(dict[str, Any], values)
    wanted, found = table.pop(SUM, None), _sum_of_values(table)
    if table.get("format") != FORMAT:
        version = f"format {table['format']!r}" if "format" in table else "no format"
        raise UserError(f"{where} has {version}, this version reads {FORMAT}; evaluate again into another file")
    unknown = [name for name in table if name not in _HINTS]
    if unknown:
        raise UserError(f"{where} has {unknown[0]!r}, which no record has; {way_out}")
    for name, value in table.items():
        if not _fits(value, _HINTS[name]):
            raise UserError(f"{where} has {name}={str(value)[:40]!r}; {way_out}")
    table["bins"] = tuple(Bin(*row) for row in table.get("bins", ()))
    table |= {name: tuple(table.get(name, ())) for name in ("overlaps", "classes")}
    table["confusion"] = tuple(tuple(row) for row in table.get("confusion", ()))
    try:
        record = Record(**table)
    except TypeError as error:
        raise UserError(f"{where} is incomplete: {str(error).rpartition('()')[2].strip()}; {way_out}") from error
    if not 0 <= record.correct <= record.n or not record.n:
        raise UserError(f"{where} has {record.correct} right of {record.n}; {way_out}")
    if not 0 <= record.severity <= 5:
        raise UserError(f"{where} has severity {record.severity}; {way_out}")
    if not _confusion_agrees(record):
        raise UserError(f"{where} has a confusion that is not of {record.n} images and its classes; {way_out}")
    if record.hits and not _hits_agree(record):
        raise UserError(f"{where} has hits that are not {record.correct} right of {record.n}; {way_out}")
    if wanted not in (None, found):
        raise UserError(f"{where} has changed since it was written: it does not match its checksum; {way_out}")
    return record


def _confusion_agrees(record: Record) -> bool:
    rows, classes = record.confusion, len(record.classes)
    if not rows:
        return True
    fine = all(len(row) == 3 and 0 <= row[0] < classes and 0 <= row[1] < classes and row[2] > 0 for row in rows)
    return fine and sum(row[2] for row in rows) == record.n


def _hits_agree(record: Record) -> bool:
    try:
        bits = base64.b64decode(record.hits, validate=True)
    except ValueError:
        return False
    return len(bits) == -(-record.n // 8) and int.from_bytes(bits).bit_count() == record.correct


_HINTS: dict[str, Any] = get_type_hints(Record)
_BINS = ([int, int, float], [int, int, int])
"""What JSON may have in a `Bin`."""


def _fits(value: Any, hint: Any) -> bool:
    """Whether a JSON value can be the field's."""
    if hint is Bin:
        row = cast(list[Any], value) if isinstance(value, list) else []
        return [type(one) for one in row] in _BINS and all(_fits(one, float) for one in row)
    most = 2**63 if hint is int else LARGEST
    if isinstance(value, int | float) and not abs(value) < most:  # nor infinity, which JSON writes as 1e999
        return False
    if hint is float:
        return isinstance(value, int | float) and not isinstance(value, bool)
    if isinstance(hint, type):
        return isinstance(value, hint) and not (hint is int and isinstance(value, bool))
    origin, arguments = get_origin(hint), get_args(hint)
    if origin is Literal:
        return value in arguments
    if origin is tuple:
        return isinstance(value, list) and all(_fits(one, arguments[0]) for one in cast(list[Any], value))
    return any(_fits(value, one) for one in arguments)  # a union; None's type is a type
