"""What a report shows: records, what run folders tell besides them, and the groups of series to compare."""

import base64
import binascii
import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any, final

from .._lib.environment import FILE as ENVIRONMENT
from .._lib.environment import read_sessions
from .._lib.files import readable
from ..errors import UserError
from ..evaluation.metrics import Difference, Estimate
from ..evaluation.records import RECORDS, Record, identity, in_words, read_records, readable_record
from ..evaluation.summary import (
    Series,
    accuracies_by_test,
    attack_size,
    compare,
    find_baseline,
    on_measured_tests,
    scores,
    series_of,
)
from ..training.run_folder import Run
from ..training.session import Metrics

Item = Record | Run | str | Path
ORACLE = "oracle"
"""How weights are selected that were chosen on the test corruptions."""
PNG = b"\x89PNG\r\n\x1a\n"


@final
@dataclass(frozen=True, kw_only=True)
class Sample:
    """A test image (PNG in Base64), what it shows and what the network took it for."""

    corruption: str
    severity: int
    index: int
    label: str
    prediction: str
    confidence: float
    png: str
    before: str = ""
    """The clean image, where it was right and the corruption made it wrong."""


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

    @property
    def title(self) -> str:
        """The folder as the page calls it."""
        return f"{self.label} seed {self.seed} ({self.name})" if self.metrics else self.label


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
        if (path / "config.toml").is_file() or (path / "samples.json").is_file():
            folders[path.resolve()] = _read_folder(path, found)
    if not records:
        raise UserError("there are no records to report; write some with: pdeplus evaluate RUN")
    latest = {identity(r): readable_record(r) for r in records}
    return Material(tuple(latest.values()), tuple(folders.values()))


def _records_of(path: Path) -> list[Record]:
    if path.is_file() and path.suffix != ".jsonl":
        raise UserError(f"{path} is not a records file, whose name ends with .jsonl; give one, or a run folder")
    if path.is_file():
        return read_records(path)
    if not path.is_dir():
        raise UserError(f"{path} does not exist; give a run folder or a file of records")
    if not (path / RECORDS).is_file():
        Run.load(path)  # which tells what is not a run folder
    found = read_records(path / RECORDS) if (path / RECORDS).is_file() else []
    if not found:
        raise UserError(f"{path} has no records yet; write them with: pdeplus evaluate {path}")
    return found


def _read_folder(path: Path, records: list[Record]) -> Folder:
    return Folder(
        name=readable(path.resolve().name),
        label=readable(records[0].model),
        seed=records[0].seed,
        metrics=tuple(Run(path).metrics),
        sessions=tuple(read_sessions(path / ENVIRONMENT)),
        samples=_read_samples(path / "samples.json"),
    )


def _read_samples(path: Path) -> tuple[Sample, ...]:
    content = _read_json(path, {"images": []})
    try:
        pngs = [png for one in content["images"] for png in (one["png"], one.get("before")) if png]
        if not all(base64.b64decode(png, validate=True).startswith(PNG) for png in pngs):
            raise ValueError("an image is no PNG")
        images = [{"before": "", **one} for one in content["images"]]
        kinds = Sample.__annotations__.items()
        return tuple(Sample(**{name: _kept(kind(one[name])) for name, kind in kinds}) for one in images)
    except (KeyError, TypeError, ValueError, OverflowError, binascii.Error) as error:
        raise UserError(f"{path} is damaged ({error}); delete it to make the report without its images") from error


def _kept(value: Any) -> Any:
    """The value as a page can show it."""
    return readable(value) if isinstance(value, str) else value


def _read_json(path: Path, default: Any) -> Any:
    if not path.is_file():
        return default
    try:
        return json.loads(path.read_bytes())
    except (ValueError, RecursionError) as error:
        raise UserError(f"{path} is damaged ({error}); restore it from a backup or delete it") from error


@final
@dataclass(frozen=True)
class Line:
    """A series, what the report calls it, and its scores."""

    name: str
    """No other line of its group has it."""
    series: Series
    baseline: Series | None
    scores: Mapping[str, Estimate]

    @cached_property
    def cells(self) -> Mapping[tuple[str, int], Estimate]:
        """Accuracy in each cell."""
        return accuracies_by_test(self.series)

    @cached_property
    def difference(self) -> Difference | None:
        """Against the baseline; None where it is the baseline or images cannot be paired."""
        if self.baseline is None or self.baseline is self.series:
            return None
        return compare(self.series, self.baseline)


@final
@dataclass(frozen=True)
class Group:
    """What was measured on the same images; the best line first."""

    data: str
    suite: str
    origin: str
    lines: tuple[Line, ...]
    baseline: str
    """The label that was asked for."""

    @property
    def title(self) -> str:
        """What all lines were tested on, to the last detail."""
        count = f", {self.lines[0].series.any.n} images" if self.suite != "domains" else ""
        return f"{self.name}{count} ({self.origin})"

    @property
    def name(self) -> str:
        """What all lines were tested on, in short."""
        return f"{self.data}, {self.suite}"

    @property
    def corruptions(self) -> tuple[str, ...]:
        """The corruptions that means are over."""
        return self.lines[0].series.corruptions

    @property
    def all_corruptions(self) -> str:
        """These, in words."""
        if self.part:
            return ", ".join(self.corruptions) if len(self.corruptions) < 4 else f"{len(self.corruptions)} corruptions"
        return "the ten corruptions of C̄" if self.suite == "cbar" else "the fifteen corruptions"

    @property
    def part(self) -> str:
        """What a partial test's means are over; empty for a whole one."""
        return self.lines[0].series.extent if self.lines[0].series.part is not None else ""

    @property
    def severities(self) -> tuple[int, ...]:
        """The severities that means are over."""
        return self.lines[0].series.severities

    @property
    def honest(self) -> list[Line]:
        """The lines that used no test images, to choose weights or for BatchNorm; all where there is no other."""
        used = {line.name for line in self.lines if line.series.selection == ORACLE or line.series.any.adapted}
        return [line for line in self.lines if line.name not in used] or list(self.lines)

    @property
    def domains(self) -> list[str]:
        """Every foreign domain that some line was tested on."""
        return list(dict.fromkeys(name for line in self.lines for name in line.series.domains))

    @property
    def attacks(self) -> list[str]:
        """Every attack that some line was tested with, the smallest first."""
        names = dict.fromkeys(name for line in self.lines for name in line.series.attacks)
        return sorted(names, key=attack_size)

    @property
    def several_passes(self) -> list[Line]:
        """The lines whose label and selection come with several E, by these and E."""
        keys = {line.name: (line.series.label, line.series.selection, line.series.samples) for line in self.lines}
        counts = Counter(key[:2] for key in set(keys.values()))
        lines = [line for line in self.lines if counts[keys[line.name][:2]] > 1]
        return sorted(lines, key=lambda line: keys[line.name])

    @property
    def main_score(self) -> str:
        """What lines are ordered by."""
        if self.part:
            return "part"
        return "corrupted" if self.suite == "corruptions" else self.suite


def groups_of(records: Iterable[Record], baseline: str) -> list[Group]:
    """All records, by data set, suite, origin and number of the images; no two of these are ever mixed."""
    apart = dict[tuple[object, ...], list[Record]]()
    for r in records:  # domains differ in size by nature
        apart.setdefault((r.data, r.suite, r.origin, None if r.suite == "domains" else r.n), []).append(r)
    groups = [_group(series_of(same), baseline) for same in apart.values()]
    second = {_tested(line): line.scores for group in groups if group.suite == "cbar" for line in group.lines}
    return [_with_second_test(group, second) if group.suite == "corruptions" else group for group in groups]


def _tested(line: Line) -> tuple[object, ...]:
    """The model as it was tested, and the clean images, which the end of their origin tells from others."""
    s = line.series
    return s.any.model, s.data, s.config, s.selection, s.samples, s.average, s.any.n, s.origin.rpartition("#")[2]


def _with_second_test(group: Group, second: Mapping[tuple[object, ...], Mapping[str, Estimate]]) -> Group:
    """The group with the mean accuracy on C̄ of those lines that were tested on it, too."""
    found = [second.get(_tested(line), {}) for line in group.lines]
    added = [{"cbar": scores["cbar"]} if "cbar" in scores else {} for scores in found]
    lines = [replace(line, scores={**line.scores, **more}) for line, more in zip(group.lines, added, strict=True)]
    return replace(group, lines=tuple(lines))


def _group(series: Sequence[Series], baseline: str) -> Group:
    series = on_measured_tests(series)
    first = series[0]
    everywhere = {name for one in series for name in (*one.domains, *one.attacks)}
    lines = list[Line]()
    for one, name in zip(series, _names(series), strict=True):
        reference = find_baseline(one, series, baseline)
        found = scores(one, reference)
        if {*one.domains, *one.attacks} != everywhere:  # a mean over fewer than the others' is another score
            found = {score: value for score, value in found.items() if score.startswith(("clean", "ms"))}
        lines.append(Line(name, one, reference, found))
    group = Group(in_words(first.data), first.suite, in_words(first.origin), tuple(lines), baseline)
    best_first = sorted(lines, key=lambda line: -line.scores[m].mean if (m := group.main_score) in line.scores else 1)
    return replace(group, lines=tuple(best_first))


def _names(series: Sequence[Series]) -> list[str]:
    """Label, E behind it, and whatever else is needed to tell lines apart; an oracle is always marked."""
    names = [s.label + f" E={s.samples}" * bool(s.samples) + " (oracle)" * (s.selection == ORACLE) for s in series]
    for more in ([s.selection for s in series], [s.average for s in series], [s.config[:6] for s in series]):
        counts = Counter(names)
        names = [f"{name}, {word}" if counts[name] > 1 else name for name, word in zip(names, more, strict=True)]
    return names
