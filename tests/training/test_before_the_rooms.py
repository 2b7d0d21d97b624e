"""What was written before the package moved into rooms (commit 0edc6dd) still loads; training still does the same."""

import json
import math
import shutil
import warnings
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

import pdeplus as pp
from pdeplus.evaluation.records import identity, read_records

BEFORE = Path(__file__).parents[1] / "support" / "before_the_rooms"
RUN = BEFORE / "run"
SMALL = ["train.epochs=2", "train.limit=160", "model.width=4", "train.batch_size=32", "seed=3"]


def digest(weights: dict[str, torch.Tensor]) -> dict[str, list[float]]:
    """Three numbers that tell a tensor from nearly all others: its sum, its norm, and a weighted sum."""
    found = {}
    for name, tensor in weights.items():
        flat = tensor.double().flatten()
        cosines = torch.cos(torch.arange(len(flat), dtype=torch.float64))
        found[name] = [float(flat.sum()), float(flat.norm()), float(flat @ cosines)]
    return found


@pytest.mark.parametrize("method", ["erm", "pde_plus"])
def test_two_epochs_give_the_weights_of_before(method, tmp_path):
    """The bits themselves depend on the CPU: where they were recorded they are equal, elsewhere nearly so."""
    today = {"pde_plus": "pde_plus_stages"}.get(method, method)
    run = pp.train(pp.load_config("demo", [f"method.name={today}", *SMALL]), tmp_path / "run")
    found = digest(load_file(run.path / "model.safetensors"))
    expected = json.loads((BEFORE / "weights.json").read_text())[method]
    assert found.keys() == expected.keys()
    for name, numbers in expected.items():
        tolerance = 1e-4 * max(1.0, math.sqrt(len(numbers))) * max(1.0, abs(numbers[1]))
        assert found[name] == pytest.approx(numbers, abs=tolerance), name


def test_an_old_run_folder_loads():
    run = pp.Run.load(RUN)
    assert run.finished
    assert run.config.method.name == "pde_plus"
    assert run.config.method.options["share"] == 1
    assert [record["epoch"] for record in run.metrics] == [1, 2]
    with pytest.warns(UserWarning, match="has no sums.json, as is usual in older versions"):
        network = run.model
    probabilities = pp.predict(network, torch.rand(2, 3, 8, 8, generator=torch.Generator().manual_seed(0)))
    torch.testing.assert_close(probabilities.sum(1), torch.ones(2))
    with pytest.warns(UserWarning, match="has no sums.json"):
        model = pp.load_model(RUN)
    assert model(torch.zeros(1, 3, 8, 8)).shape == (1, 10)


def test_an_old_run_goes_on_from_its_checkpoint(tmp_path):
    shutil.copytree(RUN, tmp_path / "run")
    (tmp_path / "run" / "model.safetensors").unlink()
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "this session has", UserWarning)  # another number of threads, another torch
        run = pp.resume(tmp_path / "run")
    for name, tensor in load_file(RUN / "model.safetensors").items():
        torch.testing.assert_close(load_file(run.path / "model.safetensors")[name], tensor, rtol=1e-3, atol=1e-4)


@pytest.mark.filterwarnings("ignore:.* has no sums.json")
def test_old_records_load_and_are_not_measured_again(tmp_path):
    shutil.copytree(RUN, tmp_path / "run")
    old = read_records(RUN / "records.jsonl")
    assert {record.suite for record in old} == {"corruptions", "adversarial"}
    again = pp.evaluate(tmp_path / "run", limit=10, severities=[3])
    assert [identity(record) for record in again] == [identity(record) for record in old[: len(again)]]
    assert (tmp_path / "run" / "records.jsonl").read_bytes() == (RUN / "records.jsonl").read_bytes()


def test_old_records_make_a_report(tmp_path):
    assert "PDE+" in Path(pp.report([RUN], tmp_path / "report.html")).read_text("utf-8")
