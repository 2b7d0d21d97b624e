"""Small runs for tests of evaluation, and what their records must say, worked out by hand."""

import warnings
from dataclasses import replace
from pathlib import Path

import torch
from torch import Tensor
from torch.nn import functional as F

import pdeplus as pp
from pdeplus.data.base import Images
from pdeplus.data.digits import Digits
from pdeplus.evaluation.records import Record
from pdeplus.training.run_folder import Run
from pdeplus.training.sums import read_sums, write_sums

QUICK = ["model.name=plain_cnn", "model.width=4", "data.size=8", "train.epochs=2", "train.batch_size=32"]


def trained(folder: Path, *overrides: str) -> Run:
    """A run of the demo, made small."""
    return pp.train(pp.load_config("demo", [*QUICK, *overrides]), folder)


def digits(n: int | None = None, channels: int = 3) -> Images:
    """The digits that such a run is tested on, or the first of them."""
    images = Digits(size=8, channels=channels).test()["clean"]
    return images.take(torch.arange(len(images) if n is None else n))


def pair(images: Images) -> tuple[Tensor, Tensor]:
    """As a user hands images over."""
    return images.images, images.labels


def spoilt(images: Images, name: str, severity: int, **options: int) -> Tensor:
    """`pp.corrupt` on C×H×W images, as floats in [0, 1]."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of synthetic frost
        done = pp.corrupt(images.images.permute(0, 2, 3, 1), name, severity, **options)
    return done.permute(0, 3, 1, 2).float() / 255


def by_hand(logits: Tensor, labels: Tensor) -> dict[str, float]:
    """Scores from their definitions, image by image."""
    p = logits.detach().double().softmax(-1)
    truth = F.one_hot(labels, p.shape[1])
    gaps, bins = 0.0, 15
    confidence, predicted = p.max(-1)
    for k in range(bins):
        inside = (confidence > k / bins) & (confidence <= (k + 1) / bins)
        gaps += abs(float((confidence - (predicted == labels).double())[inside].sum()))
    return {
        "correct": int((predicted == labels).sum()),
        "nll": float(F.cross_entropy(logits.detach().double(), labels)),
        "brier": float(((p - truth) ** 2).sum(-1).mean()),
        "ece": gaps / len(labels),
    }


def numbers(records: list[Record]) -> list[Record]:
    """Records without the time they took, by which two evaluations may differ."""
    return [replace(record, seconds=0.0) for record in records]


def sum_again(run: Run) -> None:
    """Give the files of a run, as they are now, their checksums, as if it had been trained so."""
    write_sums(run.path, *(name for name in read_sums(run.path) if name != "config"))


def damage(run: Run, file: str = "best.safetensors") -> None:
    """Other weights in the same folder, as after training anew."""
    from pdeplus._lib.files import encode_weights, read_weights

    weights = {name: w * 1.5 if name.startswith("linear") else w for name, w in read_weights(run.path / file).items()}
    (run.path / file).write_bytes(encode_weights(weights))
