"""Evaluation: a model × a suite of test sets → records, one for each test set, and some of the images to look at."""

import base64
import io
import json
import math
import time
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import torch
from PIL import Image
from torch import Tensor

from .._lib.environment import environment
from .._lib.files import held_in_turn, make_folder, write_file
from .._lib.seeds import generator_for
from ..core.prediction import Average
from ..corruptions.base import SEVERITIES
from ..data.base import Source, index_batches
from ..errors import RunFailed, UserError, check_choice
from ..training.run_folder import Run, build_source
from .metrics import apply_temperature, fit_temperature, measures, score
from .records import CLEAN, Record, Selection, append_records, identity, read_records
from .test_sets import TestSet, TestSuite, Wanted, as_source, build_suite
from .tested_models import ModelUnderTest, Outputs, tested_model, tested_run

if TYPE_CHECKING:  # neither is loaded but for the adversarial suite
    from ..attacks.gradient_attacks import Attack
    from .adversarial import Threat

FILE = "records.jsonl"
SAMPLES_FILE = "samples.json"
LOCK_FILE = "evaluate.lock"
SHOWN_SEVERITIES = (0, 3)
"""Sample images are clean ones and those in the middle of the range."""
BATCH = 250
"""Images per forward pass."""
UNMEASURED: dict[str, Any] = {"n": 1, "correct": 0, "nll": 0.0, "brier": 0.0, "ece": 0.0, "seconds": 0.0}
Watch = Callable[[int, int], object]
"""Called with the number of images done since the last call, and how many there will be in all."""


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
    severities: Sequence[int] = SEVERITIES,
    limit: int = 0,
    seed: int = 0,
    attack: "Attack | str | None" = None,
    epsilons: Sequence[float] | None = None,
    eot: int | None = None,
    outputs: Outputs = "logits",
    compile: bool = False,
    batch_size: int = BATCH,
    trust_code: bool = False,
    watch: Watch | None = None,
) -> list[Record]:
    """Test a model and return a record for each test set; the clean one comes first.

    Each record is written as soon as it is measured; what the folder holds already is not measured again. All noise is
    seeded: an evaluation repeated with the same settings gives the same numbers.

    Args:
        model: a Run or its folder; or a torch module, an .onnx file or any function from float images B×C×H×W in [0, 1]
            to logits B×classes (or to an object with `.logits`).
        suite: "clean", "corruptions" (fifteen), "all_corruptions" (nineteen), "cbar" (C̄), "domains" or "adversarial".
        data: name of a data set, a Source or a pair (images, labels); a run has its own.
        samples: noisy passes E; 0 for none; None for what the run's method does.
        average: what these average: "probabilities" or "logits".
        selection: which of a run's weights: "last", "validation" or "oracle", which looks at the test sets.
        name: what tables call the model.
        out: folder for records.jsonl; of a run, by default, the run's own; else nothing is written.
        files: folder of corrupted images, such as CIFAR-10-C, to read instead of corrupting the test images.
        severities: of the corruptions.
        limit: at most so many images of each test set; 0 for all.
        seed: of the corruptions, or of the attack.
        attack: of the adversarial suite: "fgsm", "pgd" (the default), "apgd_ce" or "apgd_dlr" with their defaults, or
            one configured, such as attacks.PGD(norm="l2", steps=20, restarts=3). Its checks go into sanity.json.
        epsilons: its sizes; None for a configured attack's own, else 1/255, 2/255, 4/255 and 8/255.
        eot: noisy passes whose average the attack follows, where the model predicts with noise; None for 10, and 0
            for an attack on the network without its noise.
        outputs: whether a given model returns "logits" or "probabilities".
        compile: compile the network by torch.compile, which takes seconds once; a line says so where that fails.
        batch_size: images per forward pass.
        trust_code: whether code outside pdeplus that a run folder's config names may be imported.
        watch: told of progress.
    """
    if batch_size < 1:
        raise UserError(f"batch_size={batch_size} must be at least 1")
    threat = _threat(suite, attack, epsilons, eot, seed)
    run, source, label = _run_and_data(model, data, trust_code)
    tests = build_suite(source, label, suite, files=files, severities=severities, limit=limit, seed=seed)
    folder = Path(out) if out is not None else run.path if run else None
    how: dict[str, Any] = {"samples": samples, "average": average, "name": name, "compile": compile}
    oracle = run is not None and selection == "oracle"
    place = folder / "oracle" if folder and oracle else folder
    found = list[list[Record]]()
    for tested in _models(run or model, tests, selection, outputs, how):
        found.append(measure(tested, tests, threat, place, batch_size, watch))
    return _best(found, cast(Path, folder)) if oracle else found[0]


def measure(
    tested: ModelUnderTest,
    tests: TestSuite,
    threat: "Threat | None",
    folder: Path | None,
    batch_size: int,
    watch: Watch | None,
) -> list[Record]:
    """The records of all test sets; those that the folder holds are not measured again, the others are added to it.

    Of two processes that measure into the same folder the second waits, and then finds what the first has measured.
    """
    if threat is not None:
        tests = threat.against(tested, tests)
    if tested.classes is not None:
        _check_classes(len(tested.classes), tests, tested.classes)
    turn = nullcontext()
    if folder is not None:
        make_folder(folder)
        turn = held_in_turn(folder / LOCK_FILE, f"{folder} is being evaluated by another process")
    with turn:
        return _measure_missing(tested, tests, threat, folder, batch_size, watch)


def _measure_missing(
    tested: ModelUnderTest,
    tests: TestSuite,
    threat: "Threat | None",
    folder: Path | None,
    batch_size: int,
    watch: Watch | None,
) -> list[Record]:
    known = _recorded(folder / FILE) if folder is not None else {}
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
    records = list[Record]()
    for test, draft in drafts:
        if test not in missing:
            records.append(known[identity(draft)])
            continue
        record, samples = _measure_one(tested, tests, test, replace(draft, **cost), temperature, batch_size, tell)
        if folder is not None:
            if samples:  # before their record, which says that this test set is done
                _add_samples(folder / SAMPLES_FILE, about, samples)
            append_records(folder / FILE, [record])
        records.append(record)
        _warn_of_chance(record, len(tests.classes))
    if threat is not None:
        threat.check(tested, tests, folder)
    return records


def _models(
    model: object, tests: TestSuite, selection: Selection, outputs: Outputs, how: Mapping[str, Any]
) -> Iterator[ModelUnderTest]:
    """The given model, or the run with the selected weights; for the oracle, with those of each kept epoch in turn."""
    if not isinstance(model, Run):
        images = tests.sets[0].read()
        example = images.take(torch.arange(min(len(images), 8))).floats()
        yield tested_model(model, outputs=outputs, example=example, **how)
        return
    check_choice("selection", selection, Selection)
    if selection == "given":
        raise UserError("selection='given' is for models that are no runs; choose last, validation or oracle")
    wanted, channels = model.expects.shape[0], tests.sets[0].shape[0]
    if wanted != channels:
        raise UserError(f"{model.path} takes images of {wanted} channels, those of {tests.data} have {channels}")
    if selection == "oracle" and tests.name == "cbar":
        raise UserError("selection='oracle' would choose on C̄, which is for testing alone; choose last or validation")
    if selection == "oracle" and not model.kept:
        way_out = "train with train.keep_every=1 for selection=oracle, or select on validation"
        raise UserError(f"{model.path} kept no epochs' weights; {way_out}")
    chosen = model.kept.items() if selection == "oracle" else [model.weights(selection)]
    for epoch, weights in chosen:
        yield tested_run(model, selection=selection, weights=weights, epoch=epoch, **how)


def _best(found: Sequence[list[Record]], folder: Path) -> list[Record]:
    """The records of the oracle's epoch, added to the folder: the authors' way of selecting, which leaks.

    The best has the highest sum of accuracies on all test sets but the clean one, if there are others.
    """
    best = max(
        found, key=lambda records: sum(r.accuracy for r in records if r.corruption != CLEAN or len(records) == 1)
    )
    known = _recorded(folder / FILE)
    append_records(folder / FILE, [record for record in best if identity(record) not in known])
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
        batch=batch_size if tested.about["samples"] else 0,
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
) -> tuple[Record, list[dict[str, Any]]]:
    """The record of one test set, and samples of its images."""
    every, labels, samples, seconds = list[Tensor](), list[Tensor](), list[dict[str, Any]](), 0.0
    for i, (x, truth) in enumerate(test.batches(batch_size)):
        started = time.perf_counter()
        stream = generator_for(0, "evaluate", test.corruption, test.severity, i, device=tested.device)
        with torch.inference_mode():
            p = tested.predict(x.to(tested.device), stream).float().cpu()
        _check_classes(p.shape[1], tests)
        if not bool(p.isfinite().all()):
            raise RunFailed(f"the model's output is not finite on {test.corruption} {test.severity or ''}".rstrip())
        seconds += time.perf_counter() - started
        every.append(p.clone())
        labels.append(truth)
        if i == 0:
            samples = _samples(test, x, truth, p, tests.classes)
        tell(len(x))
    p, y = torch.cat(every), torch.cat(labels)
    record = replace(draft, seconds=seconds, **score(p, y))
    if temperature is not None:
        scaled = measures(apply_temperature(p, temperature), y)
        record = replace(record, temperature=temperature, **{f"scaled_{name}": value for name, value in scaled.items()})
    return record, samples


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


def _run_and_data(model: object, data: object, trust_code: bool) -> tuple[Run | None, Source, str]:
    """The run, where the model is one or its folder, and what to test on: the data set and its name."""
    run = model if isinstance(model, Run) else None
    if isinstance(model, str | Path) and Path(model).suffix != ".onnx":
        run = Run.load(model, trust_code=trust_code)
    if run is None and data is None:
        given = "the name of a data set, or a Source, or a pair (images, labels)"
        raise UserError(f"say what to test on: data= (--data) {given}")
    return run, *as_source(build_source(run.config) if run and data is None else data)


def _check_classes(n: int, tests: TestSuite, names: tuple[str, ...] = ()) -> None:
    """Refuse another number of classes, or names in another order where both sides name theirs.

    Labels of a user's images tell only how many classes there are at least.
    """
    wanted = len(tests.classes)
    if n < wanted or (n > wanted and not tests.open_classes):
        raise UserError(f"the model tells {n} classes apart, {tests.data} has {wanted}")
    if names and names != tests.classes and not tests.open_classes:
        a, b = next((a, b) for a, b in zip(names, tests.classes, strict=True) if a != b)
        raise UserError(f"the model calls a class {a!r} that {tests.data} calls {b!r}: they must have the same names")


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
    if record.corruption == CLEAN and record.selection == "given" and record.accuracy <= bound < 1:
        found = f"{record.model} is right on {100 * record.accuracy:.1f} % of the clean images, no better than chance"
        way_out = "put any normalisation, resizing or order of classes into the model"
        warnings.warn(f"{found}; it gets floats in [0, 1], B×C×H×W: {way_out}", stacklevel=5)


def _samples(
    test: TestSet, x: Tensor, labels: Tensor, probabilities: Tensor, classes: Sequence[str]
) -> list[dict[str, Any]]:
    """The first image of a batch and the first that was taken for something else, with what was said of them.

    None of severities that are not shown, nor of images that are neither grey nor in colour.
    """
    if test.severity not in SHOWN_SEVERITIES or x.shape[1] not in (1, 3):
        return []

    def name(label: Tensor) -> str:
        return classes[int(label)] if label < len(classes) else str(int(label))

    confidence, predicted = probabilities.max(-1)
    wrong = [int(i) for i in (predicted != labels).nonzero()[:1]]
    return [
        {
            "corruption": test.corruption,
            "severity": test.severity,
            "index": i,
            "label": name(labels[i]),
            "prediction": name(predicted[i]),
            "confidence": round(float(confidence[i]), 4),
            "png": _png(x[i]),
        }
        for i in dict.fromkeys([0, *wrong])
    ]


def _png(image: Tensor) -> str:
    """Floats C×H×W in [0, 1] as PNG, base64."""
    array = image.mul(255).round().to(torch.uint8).permute(1, 2, 0).contiguous().numpy()
    buffer = io.BytesIO()
    Image.fromarray(array[..., 0] if array.shape[-1] == 1 else array).save(buffer, "PNG")
    return base64.b64encode(buffer.getvalue()).decode()


def _add_samples(path: Path, about: str, samples: list[dict[str, Any]]) -> None:
    """Add to the samples that this evaluation left in the file; those of another, or damaged ones, are replaced."""
    try:
        content = json.loads(path.read_bytes())
        earlier = list[dict[str, Any]](content["images"]) if content["about"] == about else []
    except (OSError, ValueError, LookupError, TypeError, RecursionError):
        earlier = []
    new = {(image["corruption"], image["severity"]) for image in samples}
    kept = [image for image in earlier if (image["corruption"], image["severity"]) not in new]
    write_file(path, json.dumps({"about": about, "images": [*kept, *samples]}).encode())
