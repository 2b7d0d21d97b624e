"""The suite against recorded statistics of the reference generator on real images, where those are at hand.

Chance moves a slice's statistics from seed to seed, the reference's too; ours are the mean over several seeds.
"""

import json
import pickle
from pathlib import Path

import numpy as np
import pytest
import torch

from pdeplus.corruptions.base import SEVERITIES
from pdeplus.corruptions.suite import SUITE, corrupt

SHARED = Path(__file__).parents[3] / "shared"
GOLDEN, FROST = SHARED / "golden", SHARED / "data" / "frost"
CIFAR = SHARED / "data" / "cifar-10-batches-py" / "test_batch"

SEEDS = {("cifar", "elastic_transform"): 10, ("tiny", "spatter"): 10}
"""Where three of ours are too few, because the recorded seed is an unlikely one.

The reference's three seeds of elastic_transform 4 lie 3 % apart in MAE, the recorded one at the upper end. The three of
spatter 5 lie 0.2 % apart; thirty seeds of the formula in plain numpy scatter by 0.9 % about our mean, 1.2 % below.
"""

pytestmark = pytest.mark.skipif(not (GOLDEN.is_dir() and CIFAR.exists()), reason="no golden files beside the project")


@pytest.fixture(scope="module", params=["cifar", "tiny"])
def slice_and_golden(request):
    golden = json.loads((GOLDEN / f"{request.param}_c_sliceA.json").read_text())
    if request.param == "tiny":
        return "tiny", np.load(GOLDEN / "tiny_clean_sliceA.npz")["images"], golden
    rows = pickle.loads(CIFAR.read_bytes(), encoding="bytes")[b"data"][:500]
    return "cifar", np.ascontiguousarray(rows.reshape(-1, 3, 32, 32).transpose(0, 2, 3, 1)), golden


@pytest.fixture(autouse=True)
def pictures_of_ice(monkeypatch):
    monkeypatch.setenv("PDEPLUS_FROST", str(FROST))
    threads = torch.get_num_threads()
    torch.set_num_threads(1)  # on a busy machine threads wait for each other at every small operation
    yield
    torch.set_num_threads(threads)


@pytest.mark.parametrize("name", SUITE)
def test_statistics_are_the_references(slice_and_golden, name):
    constants, clean, golden = slice_and_golden
    for severity in SEVERITIES:
        known = golden[name][str(severity)]
        maes, mses = [], []
        for seed in range(SEEDS.get((constants, name), 3) if SUITE[name].seeded else 1):
            error = torch.from_numpy(corrupt(clean, name, severity, constants, seed)).float() - torch.from_numpy(clean)
            maes.append(float(error.abs().mean(dtype=torch.float64)))
            mses.append(float(error.square().mean(dtype=torch.float64)))
        tolerance = max(4 * known.get("mae_rel_std", 0), 0.015)
        assert np.mean(maes) == pytest.approx(known["mae"], rel=tolerance), f"{name} {severity}"
        psnr = 10 * np.log10(255**2 / np.mean(mses))
        assert psnr == pytest.approx(known["psnr"], abs=0.3), f"{name} {severity}"


@pytest.mark.parametrize("name", [name for name in SUITE if not SUITE[name].seeded])
def test_deterministic_arrays_are_the_references(slice_and_golden, name):
    constants, clean, _ = slice_and_golden
    if constants == "cifar":
        arrays = np.load(GOLDEN / "cifar_c_first16.npz")
        for severity in SEVERITIES:
            difference = np.abs(corrupt(clean[:16], name, severity).astype(int) - arrays[f"{name}_{severity}"])
            assert difference.mean() < 0.1, f"{name} {severity}"  # grey levels; a whole one is allowed
