"""Evaluation: a model × a suite of test sets → records, one for each test set, and some of the images to look at."""

import math
import time
import warnings
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, cast, final

import torch
from torch import Tensor

from .._lib.environment import environment
from .._lib.files import held_in_turn, make_folder
from .._lib.long_work import counting_bar, tell_finished
from .._lib.seeds import generator_for
from ..core.prediction import Average
from ..corruptions.base import SEVERITIES
from ..corruptions.suite import NAMES
from ..data.base import Source, index_batches
from ..errors import RunFailed, UserError, check_choice, check_least
from ..training.run_folder import Run, build_source
from .given_models import COLOURS, Given, folder_for, is_run, names_a_model, open_model
from .metrics import apply_temperature, confusion, fit_temperature, measures, score
from .records import CLEAN, RECORDS, Record, Selection, append_records, identity, read_records
from .samples import SAMPLES_FILE, add_samples, samples_of, shown_severities
from .test_sets import TestSet, TestSuite, UserImages, Wanted, as_source, build_suite, is_folder
from .tested_models import HowTested, ModelUnderTest, Outputs, tested_model, tested_run

if TYPE_CHECKING:  # neither is loaded but for the adversarial suite
    from ..attacks.gradient_attacks import Attack
    from .adversarial import Threat

LOCK_FILE = "evaluate.lock"
BIG = 128
"""Side in pixels above which images are big: testing a few of them is the rule."""
QUICK_IMAGES, QUICK_SEVERITIES = 300, (1, 3, 5)
"""What a quick evaluation tests."""
PROBED = 4
"""Images under each corruption that tell how long an evaluation will take."""
NAMED_CLASSES = 100
"""Most classes whose confusion a record holds."""
BATCH = 250
"""Images per forward pass."""
UNMEASURED: dict[str, Any] = {"n": 1, "correct": 0, "nll": 0.0, "brier": 0.0, "ece": 0.0, "seconds": 0.0}
Watch = Callable[[int, int], object]
"""Called with the number of images done since the last call, and how many there will be in all."""


@final
@dataclass(frozen=True, kw_only=True)
class Manner:
    """How many images go through a model at a time, and who is told of what."""

    batch_size: int
    watch: Watch | None
    say: Callable[[str], None] | None
    """Told how long it will take."""
    title: str
    """Begins the line on each finished test set where there is no terminal; empty for no such lines."""


def evaluate(
    model: object,
    suite: Wanted = "corruptions",
    *,
    data: object = None,
    samples: int | None = None,
    average: Average | None = None,
    selection: Selection = "validation",
    name: str | None = None,
    out: str | Path | None = None,
    files: str | Path | None = None,
    corruptions: Sequence[str] | None = None,
    severities: Sequence[int] = SEVERITIES,
    limit: int = 0,
    quick: bool | None = False,
    adapt: bool = False,
    seed: int = 0,
    attack: "Attack | str | None" = None,
    epsilons: Sequence[float] | None = None,
    eot: int | None = None,
    outputs: Outputs = "logits",
    compile: bool = False,
    batch_size: int = BATCH,
    trust_code: bool = False,
    progress: bool = False,
    watch: Watch | None = None,
    say: Callable[[str], None] = lambda line: None,
) -> list[Record]:
    """Test a model and return a record for each test set; the clean one comes first.

    Each record is written as soon as it is measured; what the folder holds already is not measured again. All noise is
    seeded. docs/evaluation.md says more about each argument.

    Args:
        model: a Run or its folder; a URI such as "timm:resnet18"; an .onnx or .pt2 file; a torch module or any function
            from float images B×C×H×W in [0, 1] to logits B×classes (or to an object with `.logits`).
        suite: "clean", "corruptions" (fifteen), "all_corruptions" (nineteen), "cbar" (C̄), "domains" or "adversarial".
        data: a data set's name, a folder of class folders, a Source, (images, labels), a Dataset; a run has its own.
        samples, average: noisy passes E (None: the method's own), and what they average, "probabilities" or "logits".
        selection: which of a run's weights to test: "last", "validation", or "oracle" (best on the test sets).
        name, out: the model's name in tables; the folder for records.jsonl, by default a run's own.
        files: folder of corrupted images, such as CIFAR-10-C, to read instead of corrupting the test images.
        corruptions: names of some corruptions, also your own by dotted name; None for all of the suite.
        severities, limit: some of 1 to 5; number of images of each test set, 0 for all.
        quick: test 300 images at severities 1, 3 and 5 unless these are set; None: only if images exceed 128 pixels.
        adapt: take BatchNorm's statistics from each test batch, which uses test images.
        attack, epsilons, eot: the adversarial suite's attack (name or object), its sizes, noisy passes it averages.
        outputs: whether a model that is not a run returns "logits" or "probabilities".
        progress, watch: show a bar on a terminal, elsewhere a line per test set; a function called with the progress.
        say: called with messages: the model's input format and, for large images, the expected time.
    """
    check_least("batch_size", batch_size, 1)
    threat = _threat(suite, attack, epsilons, eot, seed)
    known = str(model.path if isinstance(model, Run) else model) if isinstance(model, Run | str | Path) else ""
    title = " ".join(filter(None, [known or name or "testing", f"E={samples}" if samples is not None else ""]))
    model, source, label = open_model_and_data(model, data, trust_code)
    severities, limit, big = _extent(source, suite, files, quick, severities, limit)
    chosen: dict[str, Any] = {"corruptions": corruptions, "severities": severities, "limit": limit, "seed": seed}
    tests = build_suite(source, label, suite, files=files, **chosen)
    how = HowTested(samples=samples, average=average, name=name, compile=compile, adapt=adapt)
    if isinstance(model, Given):
        say(model.about)
    place = Path(out) if out is not None else None
    with counting_bar(title, None, " images") if progress else nullcontext(watch) as watch:
        manner = Manner(batch_size=batch_size, watch=watch, say=say if big else None, title=title if progress else "")
        return _tested(model, tests, threat, place, selection, outputs, how, manner)


def _tested(
    model: object,
    tests: TestSuite,
    threat: "Threat | None",
    out: Path | None,
    selection: Selection,
    outputs: Outputs,
    how: HowTested,
    manner: Manner,
) -> list[Record]:
    """The records of the model, or of the best of a run's epochs for the oracle."""
    folder = model.path if out is None and isinstance(model, Run) else out
    oracle = isinstance(model, Run) and selection == "oracle"
    place = folder / "oracle" if folder and oracle else folder
    models = _models(model, tests, selection, outputs, how)
    found = [measure(tested, tests, threat, place, manner) for tested in models]
    return _best(found, cast(Path, folder)) if oracle else found[0]


def _extent(
    source: Source, suite: str, files: object, quick: bool | None, severities: Sequence[int], limit: int
) -> tuple[Sequence[int], int, bool]:
    """The severities, the number of images, and whether these are big; a quick evaluation sets what is not set."""
    first = next(iter(source.test().values()))
    big = (first.stored.shape[-1] if isinstance(first.stored, Tensor) else first.stored.size) > BIG
    if (quick or (quick is None and big)) and suite in NAMES and files is None:
        severities = QUICK_SEVERITIES if severities == SEVERITIES else severities
        limit = limit or (QUICK_IMAGES if len(first) > QUICK_IMAGES else 0)
    return severities, limit, big


def measure(
    tested: ModelUnderTest, tests: TestSuite, threat: "Threat | None", folder: Path | None, manner: Manner
) -> list[Record]:
    """The records of all test sets; those that the folder holds are not measured again, the others are added to it.

    Of two processes that measure into the same folder the second waits, and then finds what the first has measured.
    """
    if threat is not None:
        tests = threat.against(tested, tests)
    if tested.classes is not None and len(tested.classes) < len(tests.classes):
        raise UserError(f"the model has {len(tested.classes)} classes, {tests.data} has {len(tests.classes)}")
    turn = nullcontext()
    if folder is not None:
        make_folder(folder)
        turn = held_in_turn(folder / LOCK_FILE, f"{folder} is being evaluated by another process")
    with turn:
        records = _measure_missing(tested, tests, folder, manner)
        if threat is not None:
            threat.check(tested, tests, folder)
        return records


def _measure_missing(tested: ModelUnderTest, tests: TestSuite, folder: Path | None, manner: Manner) -> list[Record]:
    known, batch_size, watch = _recorded(folder / RECORDS) if folder else {}, manner.batch_size, manner.watch
    now = environment()
    drafts = [(test, _draft(tested, tests, test, batch_size, now)) for test in tests.sets]
    missing = [test for test, draft in drafts if identity(draft) not in known]
    cost = tested.cost() if missing else dict[str, Any]()
    temperature = _temperature(tested, batch_size) if missing else None
    about = f"{tests.origin}, {tested.about['selection']}, E={tested.about['samples']}"
    if tests.name == "domains":
        total = sum(len(test.read()) for test in missing)
    else:  # all are as long as the clean one
        total = len(tests.sets[0].read()) * len(missing)
    tell: Callable[[int], object] = (lambda n: watch(n, total)) if watch else (lambda n: None)
    if manner.say is not None and len(missing) > 1:
        manner.say(_expected(tested, tests, missing))
    records, pictured = list[Record](), () if folder is None or tested.adapted else shown_severities(tests.sets)
    for test, draft in drafts:
        if test not in missing:
            records.append(known[identity(draft)])
            continue
        done = _measure_one(tested, tests, test, replace(draft, **cost), temperature, batch_size, tell)
        record = done.record
        if folder is not None:
            if test.severity in pictured:  # before their record, which says that this test set is done
                clean = (tests.sets[0], records[0]) if records and tests.name in ("corruptions", "cbar") else None
                samples = samples_of(test, done.x, done.p, done.labels, tested.classes or tests.classes, clean)
                add_samples(folder / SAMPLES_FILE, about, samples)
            append_records(folder / RECORDS, [record])
        records.append(record)
        if manner.title:
            what, place = f"{test.corruption} {test.severity or ''}".strip(), missing.index(test) + 1
            tell_finished(f"{manner.title}: {what}: accuracy {100 * record.accuracy:.1f} % ({place} of {len(missing)})")
        _warn_of_chance(record, len(tests.classes))
    return records


def _models(
    model: object, tests: TestSuite, selection: Selection, outputs: Outputs, how: HowTested
) -> Iterator[ModelUnderTest]:
    """The given model, or the run with the selected weights; for the oracle, with those of each kept epoch in turn."""
    if not isinstance(model, Run):
        images = tests.sets[0].read()
        example = images.take(torch.arange(min(len(images), 8))).floats()
        if how.adapt and len(images) < 2:
            raise UserError("BatchNorm cannot be adapted to one image; give more, or leave out --adapt (Python: adapt)")
        yield tested_model(model, how, outputs=outputs, example=example, wanted=tests)
        return
    check_choice("selection", selection, Selection)
    if selection == "given":
        raise UserError("selection='given' is for models that are not runs; choose last, validation or oracle")
    wanted, channels = model.expects.shape[0], tests.sets[0].shape[0]
    if wanted != channels:
        raise UserError(f"{model.path} takes images of {wanted} channels, those of {tests.data} have {channels}")
    if selection == "oracle" and tests.name == "cbar":
        raise UserError("selection='oracle' would select on C̄, which is only for testing; choose last or validation")
    if selection == "oracle" and not model.kept:
        way_out = "train with train.keep_every=1 for selection=oracle, or select on validation"
        raise UserError(f"{model.path} kept no epochs' weights; {way_out}")
    chosen = model.kept.items() if selection == "oracle" else [model.weights(selection)]
    for epoch, weights in chosen:
        yield tested_run(model, how, selection=selection, weights=weights, epoch=epoch, wanted=tests)


def _best(found: Sequence[list[Record]], folder: Path) -> list[Record]:
    """The records of the oracle's epoch, added to the folder: the authors' way of selecting, which leaks.

    The best has the highest sum of accuracies on all test sets but the clean one, if there are others.
    """
    best = max(
        found, key=lambda records: sum(r.accuracy for r in records if r.corruption != CLEAN or len(records) == 1)
    )
    known = _recorded(folder / RECORDS)
    append_records(folder / RECORDS, [record for record in best if identity(record) not in known])
    return best


def _draft(tested: ModelUnderTest, tests: TestSuite, test: TestSet, batch_size: int, now: Mapping[str, Any]) -> Record:
    """The record before anything is measured."""
    machine = f"{now['system']}, {now['cores']} cores, {now['threads']} threads, {tested.device}, torch {now['torch']}"
    return Record(
        **tested.about,
        data=tests.data,
        suite=tests.name,
        corruption=test.corruption,
        severity=test.severity,
        origin=tests.origin,
        batch=batch_size if tested.about["samples"] or tested.adapted else 0,
        **UNMEASURED,
        machine=machine,
        commit=now["commit"],
        command=now["command"],
    )


def _measure_one(
    tested: ModelUnderTest,
    tests: TestSuite,
    test: TestSet,
    draft: Record,
    temperature: float | None,
    batch_size: int,
    tell: Callable[[int], object],
) -> "Measured":
    """What one test set gave. An adapted model gets the images in a drawn order: a batch shows all classes then."""
    every, labels, first, seconds, order = list[Tensor](), list[Tensor](), None, 0.0, None
    if tested.adapted:
        n = len(test.read())
        order = torch.randperm(n, generator=generator_for(0, "adapt", n))
        batch_size = -(-n // -(-n // batch_size))  # as many batches of nearly the same size
    for i, (x, truth) in enumerate(test.batches(batch_size, order)):
        started = time.perf_counter()
        stream = generator_for(0, "evaluate", test.corruption, test.severity, i, device=tested.device)
        with torch.inference_mode():
            p = tested.predict(x.to(tested.device), stream).float().cpu()
        if tested.classes is None or p.shape[1] != len(tested.classes):
            _check_classes(p.shape[1], tests)
        if not bool(p.isfinite().all()):
            raise RunFailed(f"the model's output is not finite on {test.corruption} {test.severity or ''}".rstrip())
        seconds += time.perf_counter() - started
        every.append(p.clone())
        labels.append(truth)
        first = x if first is None else first
        tell(len(x))
    assert first is not None
    p, y = torch.cat(every), torch.cat(labels)
    if order is not None:
        p, y = p[order.argsort()], y[order.argsort()]
    record = replace(draft, seconds=seconds, **score(p, y))
    names = tested.classes or tests.classes
    if p.shape[1] == len(names) <= NAMED_CLASSES and not tests.open_classes:
        record = replace(record, classes=tuple(names), confusion=confusion(p, y))
    if temperature is not None:
        scaled = measures(apply_temperature(p, temperature), y)
        record = replace(record, temperature=temperature, **{f"scaled_{name}": value for name, value in scaled.items()})
    return Measured(record, first, p, y)


class Measured(NamedTuple):
    """What one test set gave: the record, its first batch of images, all probabilities and labels in their order."""

    record: Record
    x: Tensor
    p: Tensor
    labels: Tensor


def _expected(tested: ModelUnderTest, tests: TestSuite, missing: Sequence[TestSet]) -> str:
    """How long it will take, from some images under each corruption."""
    seconds, n = 0.0, len(tests.sets[0].read())
    each = Counter(test.corruption for test in missing)
    for test in {test.corruption: test for test in missing}.values():
        started = time.perf_counter()
        x, _ = next(test.batches(min(PROBED, n)))
        with torch.inference_mode():
            tested.predict(x.to(tested.device), generator_for(0, "expected", device=tested.device))
        seconds += (time.perf_counter() - started) * n / len(x) * each[test.corruption]
    levels = len({test.severity for test in missing if test.severity})
    kinds = len(each) - (CLEAN in each)
    words = f" × {kinds} corruption{'s' * (kinds > 1)} × {levels} severit{'ies' if levels > 1 else 'y'}"
    shifted = words if levels else ""
    duration = f"{seconds / 60:.0f} minutes" if seconds > 90 else f"{seconds:.0f} seconds"
    return f"{tested.about['model']}: {n} images of {tests.data}{shifted}: about {duration}"


def _threat(
    suite: str, attack: "Attack | str | None", epsilons: Sequence[float] | None, eot: int | None, seed: int
) -> "Threat | None":
    """What the adversarial suite threatens with; other suites refuse its options."""
    if suite == "adversarial":
        from .adversarial import build_threat

        return build_threat(attack, epsilons, eot, seed)
    for name, value in (("attack", attack), ("epsilons", epsilons), ("eot", eot)):
        if value is not None:
            raise UserError(f"{name}={value!r} is for suite='adversarial'; the suite is {suite!r}")
    return None


def open_model_and_data(model: object, data: object, trust_code: bool) -> tuple[object, Source, str]:
    """The run, where the model is one or its folder, or the classifier that its name stands for; the data, their name.

    A folder of pictures is read as the model takes them.
    """
    if isinstance(model, str | Path) and (is_run(model) or not names_a_model(str(model))):
        model = Run.load(model, trust_code=trust_code)
    if isinstance(model, Run) and data is None:
        return model, *as_source(build_source(model.config))
    if data is None:
        given = "a folder of class folders, the name of a data set, a Source, or a pair (images, labels)"
        raise UserError(f"say what to test on: data= (--data) {given}")
    source, label = as_source(folder_for(str(data), [model], trust_code) if is_folder(data) else data)
    if isinstance(model, str | Path):
        first = next(iter(source.test().values()))
        channels = first.stored.shape[1] if isinstance(first.stored, Tensor) else COLOURS
        known = not isinstance(source, UserImages) or source.named is not None
        model = open_model(model, source.classes if known else None, channels)
    return model, source, label


def _check_classes(n: int, tests: TestSuite) -> None:
    """Refuse another number of classes; labels of a user's images tell only how many there are at least."""
    wanted = len(tests.classes)
    if n < wanted or (n > wanted and not tests.open_classes):
        raise UserError(f"the model has {n} classes, {tests.data} has {wanted}")


def _recorded(path: Path) -> dict[tuple[Any, ...], Record]:
    """What a file holds, by identity; nothing where there is no file."""
    return {identity(r): r for r in read_records(path)} if path.exists() else {}


def _temperature(tested: ModelUnderTest, batch_size: int) -> float | None:
    """Fitted on clean held-out training images; None where there are none."""
    if tested.validation is None:
        return None
    try:
        images = tested.validation()
    except UserError:  # what the run learnt from is not here
        return None
    every = list[Tensor]()
    for i, batch in enumerate(images.batches(index_batches(torch.arange(len(images)), batch_size))):
        stream = generator_for(0, "temperature", i, device=tested.device)
        with torch.inference_mode():
            every.append(tested.predict(batch.floats().to(tested.device), stream).float().cpu())
    return fit_temperature(torch.cat(every).log(), images.labels)


def _warn_of_chance(record: Record, classes: int) -> None:
    """A model that only guesses on clean images was probably not given what it expects."""
    chance = 1 / classes
    bound = chance + 3 * math.sqrt(chance * (1 - chance) / record.n)  # of fewer images it may be all of them
    if record.adapted or record.corruption != CLEAN or record.selection != "given":
        return
    if record.accuracy <= bound < 1:
        found = f"{record.model} is right on {100 * record.accuracy:.1f} % of the clean images, no better than chance"
        way_out = "put any normalisation, resizing or order of classes into the model"
        warnings.warn(f"{found}; it receives floats in [0, 1], B×C×H×W: {way_out}", stacklevel=7)
