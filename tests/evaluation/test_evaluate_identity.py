"""What is measured once is not taken for something else: other pictures, other code, other classes, other samples."""

import json
import shutil

import pytest
import torch
from support.data_files import write_class_folders
from support.runs import digits, pair, trained
from torch import nn

import pdeplus as pp
from pdeplus.data.image_folder import ImageFolder
from pdeplus.errors import UserError
from pdeplus.evaluation.records import read_records


@pytest.fixture(scope="module")
def of_pictures(tmp_path_factory):
    root = tmp_path_factory.mktemp("data") / "pics"
    write_class_folders(root, ("no", "yes"), 8, seed=0)
    options = ["data.name=image_folder", f"data.root={root}", "method.name=erm", "train.batch_size=4"]
    return trained(tmp_path_factory.mktemp("runs") / "run", *options), root


def test_other_pictures_in_the_same_place_are_measured(of_pictures, tmp_path):
    run, root = of_pictures
    first = pp.evaluate(run, "clean", out=tmp_path)
    assert pp.evaluate(run, "clean", out=tmp_path) == first
    shutil.rmtree(root)
    write_class_folders(root, ("no", "yes"), 8, seed=7)
    again = pp.evaluate(run, "clean", out=tmp_path)
    assert again[0].origin != first[0].origin
    assert len(read_records(tmp_path / "records.jsonl")) == 2


def test_classes_of_other_names_are_refused(of_pictures, tmp_path):
    run, _ = of_pictures
    write_class_folders(tmp_path / "others", ("cat", "dog"), 8, seed=0)
    source = ImageFolder(root=str(tmp_path / "others"), size=8)
    both = "they must have the same names; the model's: no, yes; of others: cat, dog"
    with pytest.raises(UserError, match=both):
        pp.evaluate(run, "clean", data=source, out=tmp_path)


class Shifted(nn.Module):
    """Differs from another by a number that no state_dict holds."""

    def __init__(self, by: float) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.by, self.linear = by, nn.Linear(192, 10)

    def forward(self, x):
        return self.linear((x - self.by).flatten(1).tanh() * 3)


@pytest.mark.filterwarnings("ignore:.*no better than chance")
def test_modules_that_differ_in_code_alone_are_told_apart(tmp_path):
    data = pair(digits(40))
    first, second = (pp.evaluate(Shifted(by), "clean", data=data, out=tmp_path) for by in (0.0, 0.5))
    assert first[0].nll != second[0].nll
    assert len(read_records(tmp_path / "records.jsonl")) == 2


def test_sample_images_are_of_one_evaluation(erm, tmp_path):
    pp.evaluate(erm, "corruptions", severities=(3,), limit=20, out=tmp_path)
    before = json.loads((tmp_path / "samples.json").read_text())
    assert {image["corruption"] for image in before["images"]} == {"clean", *pp.CORRUPTIONS}
    pp.evaluate(erm, "clean", limit=20, out=tmp_path)
    after = json.loads((tmp_path / "samples.json").read_text())
    assert {image["corruption"] for image in after["images"]} == {"clean"}
    assert after["about"] != before["about"]


def test_a_run_without_its_metrics_is_refused_in_one_line(erm, tmp_path):
    shutil.copytree(erm.path, tmp_path / "run")
    (tmp_path / "run" / "metrics.jsonl").unlink()
    with pytest.raises(UserError, match=r"run has no metrics.jsonl, which says what was trained"):
        pp.evaluate(tmp_path / "run", "clean", limit=5)
