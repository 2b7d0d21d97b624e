"""Evaluate: a model × a suite of test sets → records, one for each test set."""

import base64
import io
import json
import math
import time
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, cast, final

import torch
from PIL import Image
from torch import Tensor

from .._lib.environment import environment
from .._lib.files import make_folder, write_file
from .._lib.seeds import generator_for
from ..attacks.gradient_attacks import Attack
from ..core.prediction import Average
from ..corruptions.base import SEVERITIES
from ..data.base import Images, index_batches
from ..errors import RunFailed, UserError, check_choice
from ..training.run_folder import Run, build_source
from .adversarial import Threat, threat_of
from .metrics import apply_temperature, fit_temperature, score
from .records import CLEAN, Record, Selection, append_records, identity, pack_hits, read_records
from .test_sets import TestSet, TestSuite, Wanted, as_source, build_suite
from .tested_models import ModelUnderTest, Outputs, tested_model, tested_run

SAMPLES_FILE = "samples.json"
SHOWN_SEVERITIES = (0, 3)
"""Shown are clean images and those in the middle of the range."""


@final
class SampleGrid:
    """Collects the first image of each test set and the first that was taken for something else.

    Written into a folder beside the records as they come; without a folder it does nothing, nor with
    images that are neither grey nor in colour.
    """

    def __init__(self, folder: Path | None, classes: tuple[str, ...] = (), about: str = "") -> None:
        self._path = folder / SAMPLES_FILE if folder is not None else None
        self._classes, self._about = classes, about
        self._images = list[dict[str, Any]]()

    def add(self, corruption: str, severity: int, batch: Images, probabilities: Tensor) -> None:
        """Look at the first batch of a test set."""
        if self._path is None or severity not in SHOWN_SEVERITIES or batch.images.shape[1] not in (1, 3):
            return
        confidence, predicted = probabilities.max(-1)
        wrong = [int(i) for i in (predicted != batch.labels).nonzero()[:1]]
        for i in dict.fromkeys([0, *wrong]):
            self._images.append(
                {
                    "corruption": corruption,
                    "severity": severity,
                    "index": i,
                    "label": self._name(int(batch.labels[i])),
                    "prediction": self._name(int(predicted[i])),
                    "confidence": round(float(confidence[i]), 4),
                    "png": _png(batch.images[i]),
                }
            )

    def write(self) -> None:
        """Add what was collected to what this evaluation left earlier; what others left makes room."""
        if self._path is None or not self._images:
            return
        cells = {(image["corruption"], image["severity"]) for image in self._images}
        earlier = read_samples(self._path, self._about)
        kept = [image for image in earlier if (image["corruption"], image["severity"]) not in cells]
        write_file(self._path, json.dumps({"about": self._about, "images": [*kept, *self._images]}).encode())
        self._images.clear()

    def _name(self, label: int) -> str:
        return self._classes[label] if label < len(self._classes) else str(label)


def read_samples(path: Path, about: str) -> list[dict[str, Any]]:
    """What a file holds of samples of that evaluation; a missing or damaged one holds nothing."""
    try:
        content = json.loads(path.read_bytes())
        return list(content["images"]) if content["about"] == about else []
    except (OSError, ValueError, LookupError, TypeError):
        return []


def _png(pixels: Tensor) -> str:
    """uint8 C×H×W as PNG, base64."""
    array = pixels.permute(1, 2, 0).contiguous().numpy()
    buffer = io.BytesIO()
    Image.fromarray(array[..., 0] if array.shape[-1] == 1 else array).save(buffer, "PNG")
    return base64.b64encode(buffer.getvalue()).decode()


FILE = "records.jsonl"
Watch = Callable[[int, int], object]
"""Called with the number of images done since the last call, and how many there will be in all."""


def measure(
    subject: ModelUnderTest, tests: TestSuite, folder: Path | None, batch_size: int, watch: Watch | None
) -> list[Record]:
    """The records of all test sets; those that the folder holds are not measured again, the others are added to it."""
    if subject.classes is not None:
        _check_names(subject.classes, tests)
    path = folder / FILE if folder is not None else None
    if folder is not None:
        make_folder(folder)
    known = recorded(path) if path is not None else {}
    now = environment()
    drafts = [(test, _draft(subject, tests, test, batch_size, now)) for test in tests.sets]
    missing = [test for test, draft in drafts if identity(draft) not in known]
    cost = subject.cost() if missing else dict[str, Any]()
    total = _count(tests, missing)
    about = f"{tests.origin}, {subject.about['selection']}, E={subject.about['samples']}"
    grid = SampleGrid(folder, tests.classes, about)
    temperature = _temperature(subject, batch_size) if missing else None
    records = list[Record]()
    for test, draft in drafts:
        if test not in missing:
            records.append(known[identity(draft)])
            continue

        def tell(n: int) -> None:
            if watch:
                watch(n, total)

        record = _measure_one(subject, tests, test, replace(draft, **cost), temperature, batch_size, tell, grid)
        grid.write()  # before its record, which says that this test set is done
        if path is not None:
            append_records(path, [record])
        records.append(record)
        _warn_of_chance(record, len(tests.classes))
    return records


def recorded(path: Path) -> dict[tuple[Any, ...], Record]:
    """What a file holds, by identity; nothing where there is no file."""
    return {identity(r): r for r in read_records(path)} if path.exists() else {}


def _count(tests: TestSuite, missing: Sequence[TestSet]) -> int:
    """How many images there are to test; all sets of corruptions are as long as the clean one."""
    if tests.name == "domains":
        return sum(len(test.read()) for test in missing)
    return len(tests.sets[0].read()) * len(missing) if missing else 0


def _draft(subject: ModelUnderTest, tests: TestSuite, test: TestSet, batch_size: int, now: Mapping[str, Any]) -> Record:
    """The record before anything is measured."""
    machine = f"{now['system']}, {now['cores']} cores, {now['threads']} threads, {subject.device}, torch {now['torch']}"
    return Record(
        **subject.about,
        data=tests.data,
        suite=tests.name,
        corruption=test.corruption,
        severity=test.severity,
        origin=tests.origin,
        batch=batch_size if subject.about["samples"] else 0,
        n=1,
        correct=0,
        nll=0.0,
        brier=0.0,
        ece=0.0,
        seconds=0.0,
        machine=machine,
        commit=now["commit"],
        command=now["command"],
    )


def _measure_one(
    subject: ModelUnderTest,
    tests: TestSuite,
    test: TestSet,
    draft: Record,
    temperature: float | None,
    batch_size: int,
    tell: Callable[[int], object],
    grid: SampleGrid,
) -> Record:
    every, labels, seconds = list[Tensor](), list[Tensor](), 0.0
    for i, (x, truth) in enumerate(test.batches(batch_size)):
        started = time.perf_counter()
        stream = generator_for(0, "evaluate", test.corruption, test.severity, i, device=subject.device)
        probabilities = _checked(subject, x, stream, tests, test)
        seconds += time.perf_counter() - started
        every.append(probabilities)
        labels.append(truth)
        if i == 0:
            shown = Images(x.mul(255).round().to(torch.uint8), truth)
            grid.add(test.corruption, test.severity, shown, probabilities)
        tell(len(x))
    p, y = torch.cat(every), torch.cat(labels)
    result = score(p, y)
    record = replace(
        draft,
        n=result.n,
        correct=result.correct,
        nll=result.nll,
        brier=result.brier,
        ece=result.ece,
        bins=result.bins,
        hits=pack_hits(result.right),
        seconds=seconds,
    )
    if temperature is None:
        return record
    cooled = score(apply_temperature(p, temperature), y)
    scaled = {"scaled_nll": cooled.nll, "scaled_brier": cooled.brier, "scaled_ece": cooled.ece}
    return replace(record, temperature=temperature, **scaled)


def _checked(subject: ModelUnderTest, x: Tensor, stream: torch.Generator, tests: TestSuite, test: TestSet) -> Tensor:
    """Probabilities on the CPU, or one line that says what is wrong with them."""
    with torch.inference_mode():
        p = subject.predict(x.to(subject.device), stream).float().cpu()
    _check_classes(p.shape[1], tests)
    if not bool(p.isfinite().all()):
        raise RunFailed(f"the model's output is not finite on {test.corruption} {test.severity or ''}".rstrip())
    return p.clone()


def _check_names(known: tuple[str, ...], tests: TestSuite) -> None:
    """The same classes in the same order, where both sides name theirs."""
    _check_classes(len(known), tests)
    if known != tests.classes and not tests.open_classes:
        a, b = next((a, b) for a, b in zip(known, tests.classes, strict=True) if a != b)
        raise UserError(f"the model calls a class {a!r} that {tests.data} calls {b!r}: they must have the same names")


def _check_classes(known: int, tests: TestSuite) -> None:
    """Of given images the labels tell only how many classes there are at least."""
    wanted = len(tests.classes)
    if known < wanted or (known > wanted and not tests.open_classes):
        raise UserError(f"the model tells {known} classes apart, {tests.data} has {wanted}")


def _temperature(subject: ModelUnderTest, batch_size: int) -> float | None:
    """Fitted on clean held-out training images; None where there are none."""
    if subject.validation is None:
        return None
    try:
        images = subject.validation()
    except UserError:  # what the run learnt from is not here
        return None
    every = list[Tensor]()
    for i, batch in enumerate(images.batches(index_batches(torch.arange(len(images)), batch_size))):
        stream = generator_for(0, "temperature", i, device=subject.device)
        with torch.inference_mode():
            every.append(subject.predict(batch.floats().to(subject.device), stream).float().cpu())
    return fit_temperature(torch.cat(every).log(), images.labels)


def _warn_of_chance(record: Record, classes: int) -> None:
    """A model that only guesses on clean images was probably not given what it expects."""
    chance = 1 / classes
    bound = chance + 3 * math.sqrt(chance * (1 - chance) / record.n)  # of fewer images it may be all of them
    if record.corruption == CLEAN and record.selection == "given" and record.accuracy <= bound < 1:
        text = (
            f"{record.model} is right on {100 * record.accuracy:.1f} % of the clean images, no better than chance; "
            "it gets floats in [0, 1], B×C×H×W: put any normalisation, resizing or order of classes into the model"
        )
        warnings.warn(text, stacklevel=5)


BATCH = 250
"""Images per forward pass."""


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
    attack: Attack | str | None = None,
    epsilons: Sequence[float] | None = None,
    eot: int | None = None,
    outputs: Outputs = "logits",
    compile: bool = False,
    batch_size: int = BATCH,
    watch: Watch | None = None,
) -> list[Record]:
    """Test a model and return a record for each test set; the clean one comes first.

    Each record is written as soon as it is measured; what the folder holds already is not measured again. All noise is
    seeded: an evaluation repeated with the same settings gives the same numbers.

    Args:
        model: a Run or its folder; or a torch module, an .onnx file or any function from float images B×C×H×W in [0, 1]
            to logits B×classes (or to an object with `.logits`).
        suite: "clean", "corruptions" (the fifteen), "all_corruptions" (nineteen), "domains" or "adversarial".
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
        watch: told of progress.
    """
    if batch_size < 1:
        raise UserError(f"batch_size={batch_size} must be at least 1")
    threat = threat_of(suite, attack, epsilons, eot, seed)
    run = _as_run(model)
    source, label = _data_of(run, data)
    tests = build_suite(source, label, suite, files=files, severities=severities, limit=limit, seed=seed)
    test = partial(_tested, tests=tests, threat=threat, batch_size=batch_size, watch=watch)
    folder = Path(out) if out is not None else run.path if run else None
    chosen: dict[str, Any] = {"samples": samples, "average": average, "name": name, "compile": compile}
    if run is not None:
        return _test_run(run, selection, tests, cast(Path, folder), test, chosen)
    images = tests.sets[0].read()
    example = images.take(torch.arange(min(len(images), 8))).floats()
    return test(tested_model(model, outputs=outputs, example=example, **chosen), folder=folder)


def _test_run(
    run: Run,
    selection: Selection,
    tests: TestSuite,
    folder: Path,
    test: Callable[..., list[Record]],
    chosen: dict[str, Any],
) -> list[Record]:
    check_choice("selection", selection, Selection)
    if selection == "given":
        raise UserError("selection='given' is for models that are no runs; choose last, validation or oracle")
    _check_channels(run, tests)
    if selection == "oracle":
        return _oracle(run, folder, test, chosen)
    epoch, weights = run.weights(selection)
    return test(tested_run(run, selection=selection, weights=weights, epoch=epoch, **chosen), folder=folder)


def _tested(
    subject: ModelUnderTest,
    *,
    folder: Path | None,
    tests: TestSuite,
    threat: Threat | None,
    batch_size: int,
    watch: Watch | None,
) -> list[Record]:
    if threat is None:
        return measure(subject, tests, folder, batch_size, watch)
    attacked = threat.against(subject, tests)
    records = measure(subject, attacked, folder, batch_size, watch)
    threat.check(subject, attacked, folder)
    return records


def _oracle(run: Run, folder: Path, test: Callable[..., list[Record]], chosen: dict[str, Any]) -> list[Record]:
    """Test every kept epoch and return the records of the best: the authors' way, which leaks."""
    if not run.kept:
        way_out = "train with train.keep_every=1 for selection=oracle, or select on validation"
        raise UserError(f"{run.path} kept no epochs' weights; {way_out}")
    found = list[list[Record]]()
    for epoch, weights in run.kept.items():
        subject = tested_run(run, selection="oracle", weights=weights, epoch=epoch, **chosen)
        found.append(test(subject, folder=folder / "oracle"))
    best = max(found, key=_oracle_score)
    known = recorded(folder / FILE)
    append_records(folder / FILE, [record for record in best if identity(record) not in known])
    return best


def _oracle_score(records: Sequence[Record]) -> float:
    """What the authors select by: the sum of accuracies on all test sets but the clean one, if there are others."""
    return sum(r.accuracy for r in records if r.corruption != CLEAN or len(records) == 1)


def _check_channels(run: Run, tests: TestSuite) -> None:
    wanted, found = run.expects.shape[0], tests.sets[0].read().take(torch.arange(1)).images.shape[1]
    if wanted != found:
        raise UserError(f"{run.path} takes images of {wanted} channels, those of {tests.data} have {found}")


def _as_run(model: object) -> Run | None:
    if isinstance(model, Run):
        return model
    folder = isinstance(model, str | Path) and Path(model).suffix != ".onnx"
    return Run.load(cast(str, model)) if folder else None


def _data_of(run: Run | None, data: object) -> tuple[Any, str]:
    if data is not None:
        return as_source(data)
    if run is None:
        raise UserError(
            "say what to test on: data= (--data) the name of a data set, or a Source, or a pair (images, labels)"
        )
    return as_source(build_source(run.config))
