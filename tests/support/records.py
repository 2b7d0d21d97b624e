"""Made records: plausible accuracies under every corruption, seeded, without any network."""

import base64
import io
import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image

from pdeplus.corruptions.base import SEVERITIES
from pdeplus.corruptions.suite import CORRUPTIONS
from pdeplus.evaluation.metrics import reliability
from pdeplus.evaluation.records import CLEAN, Record, append_records, pack_hits

CLASSES = 10
HOSTILE = ["<script>alert(1)</script>", "</script>", '"><img src=x onerror=alert(1)>', "a|b & c_d % $x$ `y` *z*"]
"""Names that must do no harm and be shown literally."""


def made_record(model: str, cell: tuple[str, int], accuracy: float, *, n: int = 200, **more: Any) -> Record:
    """One record whose accuracy and calibration come out of drawn confidences."""
    seed = more.get("seed", 0)
    random = np.random.default_rng([seed, sum(map(ord, model)), sum(map(ord, cell[0])), cell[1]])
    right = random.random(n) < accuracy
    confidence = torch.from_numpy(np.clip(random.normal(accuracy + 0.08, 0.15, n), 0.11, 1))
    bins = reliability(confidence, torch.from_numpy(right))
    gap = abs(float(right.mean()) - float(confidence.mean()))
    values: dict[str, Any] = {
        "model": model,
        "data": "digits",
        "suite": "corruptions",
        "corruption": cell[0],
        "severity": cell[1],
        "origin": "regenerated at scale cifar, seed 0",
        "seed": 0,
        "config": f"{model}-config",
        "weights": f"{model}-{seed}",
        "selection": "last",
        "n": n,
        "correct": int(right.sum()),
        "nll": 2 - 1.8 * accuracy,
        "brier": 1 - accuracy,
        "ece": gap,
        "temperature": 1.3,
        "scaled_nll": 1.8 - 1.6 * accuracy,
        "scaled_brier": 0.9 - 0.9 * accuracy,
        "scaled_ece": gap / 2,
        "bins": bins,
        "hits": pack_hits(right),
        "seconds": 0.4,
        "parameters": 700_000 + 1000 * len(model),
        "flops": 3.5e7,
        "train_seconds": 100.0 + 10 * len(model),
        "train_flops": 1e12 * (1 + len(model)),
        "machine": "made machine, 2 cores",
        "commit": "0123456789ab",
        "command": f"pdeplus evaluate runs/{model}-seed{seed}",
    }
    return Record(**values | more)


def made_cells(model: str, strength: float = 0.5, **more: Any) -> list[Record]:
    """Clean and 15 × 5 cells; the strength says how little is lost to corruption."""
    cells = [(name, severity) for name in CORRUPTIONS for severity in SEVERITIES]
    hard = {name: 0.3 + 0.7 * ((7 * i) % 15) / 15 for i, name in enumerate(CORRUPTIONS)}
    made = [made_record(model, (CLEAN, 0), 0.94, **more)]
    for name, severity in cells:
        accuracy = 0.94 - (1 - strength) * hard[name] * severity / 5
        made.append(made_record(model, (name, severity), max(accuracy, 0.1), **more))
    return made


def made_records(methods: Iterable[str] = ("ERM", "AugMix", "PDE+"), seeds: int = 3, **more: Any) -> list[Record]:
    """Several methods with several seeds, each better than the one before."""
    names = list(methods)
    strengths = [0.15 + 0.6 * i / max(len(names) - 1, 1) for i in range(len(names))]
    return [
        record
        for name, strength in zip(names, strengths, strict=True)
        for seed in range(seeds)
        for record in made_cells(name, strength, seed=seed, **more)
    ]


def made_domains(methods: Sequence[str] = ("ERM", "PDE+"), seeds: int = 2, **more: Any) -> list[Record]:
    """A source and three foreign domains of different sizes."""
    sizes = {CLEAN: 200, "art_painting": 150, "cartoon": 120, "sketch": 90}
    common = {"suite": "domains", "data": "pacs", "origin": "PACS"} | more
    return [
        made_record(name, (domain, 0), 0.9 if domain == CLEAN else 0.3 + 0.1 * i, **common | {"n": n, "seed": seed})
        for i, name in enumerate(methods)
        for seed in range(seeds)
        for domain, n in sizes.items()
    ]


def made_run(folder: Path, records: Sequence[Record], *, epochs: int = 12, sigmas: bool = True) -> Path:
    """A run folder as far as a report reads it: records, metrics, environment and sample images."""
    folder.mkdir(parents=True)
    (folder / "config.toml").write_text("")
    append_records(folder / "records.jsonl", records)
    (folder / "metrics.jsonl").write_text(
        "".join(json.dumps(_epoch(e, sigmas, len(folder.name))) + "\n" for e in range(1, epochs + 1))
    )
    session = {"pdeplus": "0.1.0", "commit": None, "torch": "2.5.0", "threads": 1, "command": "pdeplus train <demo>"}
    (folder / "environment.json").write_text(json.dumps([session, session | {"threads": 2}]))
    (folder / "samples.json").write_text(json.dumps({"images": [_sample(i) for i in range(12)]}))
    return folder


def _epoch(epoch: int, sigmas: bool, pace: int) -> dict[str, float]:
    done = 1 - np.exp(-epoch * pace / 50)
    record = {
        "epoch": epoch,
        "loss/task": 2.3 * (1 - done) + 0.1,
        "validation/accuracy": 0.1 + 0.85 * done,
        "seconds": 1.0,
    }
    blocks = {f"sigma/layer{i}": 0.1 * i + 0.3 * done for i in range(1, 5)} if sigmas else {}
    return record | blocks | ({"loss/coverage": 1.5 - done} if sigmas else {})


def _sample(i: int) -> dict[str, Any]:
    pixels = np.random.default_rng(i).integers(0, 256, (8, 8, 3), dtype=np.uint8)
    file = io.BytesIO()
    Image.fromarray(pixels).save(file, "PNG")
    prediction = i % CLASSES if i % 3 else (i + 1) % CLASSES
    what = {"corruption": CORRUPTIONS[i % 15], "severity": i % 5 + 1, "index": i, "label": str(i % CLASSES)}
    return what | {"prediction": str(prediction), "confidence": 0.83, "png": base64.b64encode(file.getvalue()).decode()}
