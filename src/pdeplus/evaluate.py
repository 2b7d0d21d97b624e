"""Evaluate: a model × a suite of test sets → records, one for each test set."""

from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any, cast

import torch

from ._errors import UserError, check_choice
from ._given import as_source
from ._measure import FILE, Watch, measure, recorded
from ._subjects import Outputs, Subject, subject_of_model, subject_of_run
from ._threat import Threat, threat_of
from .attacks import Attack
from .corruptions.base import SEVERITIES
from .prediction import Average
from .records import CLEAN, Record, Selection, append_records, identity
from .run import Run, build_source
from .suites import TestSuite, Wanted, build_suite

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
    return test(subject_of_model(model, outputs=outputs, example=example, **chosen), folder=folder)


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
    return test(subject_of_run(run, selection=selection, weights=weights, epoch=epoch, **chosen), folder=folder)


def _tested(
    subject: Subject,
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
        subject = subject_of_run(run, selection="oracle", weights=weights, epoch=epoch, **chosen)
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
