"""Optimisers: one place makes them, their steps are the published ones, resume is exact."""

import shutil
from dataclasses import replace

import pytest
import torch
from torch import nn

import pdeplus as pp
from pdeplus.errors import UserError
from pdeplus.training.config import Train, config_hash
from pdeplus.training.optimizers import Muon, build_optimizer, head_of, orthogonalised, parameter_groups

HASHES = {
    "authors": "996e50ac9886", "demo": "f31438eb712f", "erm": "e7b9ae73ee85", "paper": "0f9a6e74cb48",
    "pde_plus": "5b8e153c32fc",
}  # fmt: skip
"""Of the presets, as records on disk have them; PDE+ was `pde_plus_stages` then."""
THEN = {preset: ["method.name=pde_plus_stages"] if preset in ("demo", "pde_plus") else [] for preset in HASHES}


def parameter(*shape: int, seed: int = 0) -> nn.Parameter:
    return nn.Parameter(torch.randn(*shape, generator=torch.Generator().manual_seed(seed)))


def stepped(optimizer_of, p: nn.Parameter, steps: int = 3) -> torch.Tensor:
    """The parameter after some steps with gradients that change."""
    p = nn.Parameter(p.detach().clone())
    optimizer = optimizer_of([p])
    for step in range(steps):
        p.grad = torch.randn(p.shape, generator=torch.Generator().manual_seed(10 + step))
        optimizer.step()
    return p.detach()


@pytest.mark.parametrize("preset", HASHES)
def test_options_that_older_configs_lack_do_not_change_their_hash(preset):
    assert config_hash(pp.load_config(preset, THEN[preset])) == HASHES[preset]
    assert config_hash(pp.load_config(preset, [*THEN[preset], "train.optimizer=adamw"])) != HASHES[preset]


def test_new_options_of_nested_parts_do_not_change_a_hash_at_their_defaults():
    """431f31684441 is the hash that `authors` had before AugMix had variants."""
    variant = "method.augmentor.variant=published"
    assert config_hash(pp.load_config("authors", [variant])) == "431f31684441"
    assert config_hash(pp.load_config("pde_plus", [*THEN["pde_plus"], variant])) == HASHES["pde_plus"]
    other = [*THEN["pde_plus"], "method.augmentor.variant=torchvision"]
    assert config_hash(pp.load_config("pde_plus", other)) != HASHES["pde_plus"]


@pytest.mark.parametrize(
    ("settings", "peer"),
    [
        (
            Train(lr=0.1, nesterov=True, weight_decay=0.01),
            lambda p: torch.optim.SGD(p, 0.1, 0.9, weight_decay=0.01, nesterov=True),
        ),
        (
            Train(optimizer="adamw", lr=0.1, weight_decay=0.01),
            lambda p: torch.optim.AdamW(p, 0.1, (0.9, 0.999), weight_decay=0.01),
        ),
    ],
    ids=["sgd", "adamw"],
)
def test_sgd_and_adamw_are_torchs_own(settings, peer):
    p = parameter(4, 3)
    assert torch.equal(stepped(lambda ps: build_optimizer(ps, settings), p), stepped(peer, p))


def test_orthogonalising_keeps_a_rotation_and_evens_out_singular_values():
    rotation = torch.linalg.qr(torch.randn(6, 6, generator=torch.Generator().manual_seed(0)))[0]
    found = orthogonalised(7 * rotation)
    assert torch.allclose(found / found.norm(), rotation / rotation.norm(), atol=1e-5)
    for shape in ((8, 20), (20, 8)):
        matrix = parameter(*shape, seed=1).detach()
        u, _, v = torch.linalg.svd(matrix, full_matrices=False)
        found = orthogonalised(matrix)
        values = torch.linalg.svdvals(found)
        assert 0.6 < float(values.min()) < float(values.max()) < 1.3
        assert float((found * (u @ v)).sum() / (found.norm() * (u @ v).norm())) > 0.97
    assert torch.equal(orthogonalised(torch.zeros(3, 4)), torch.zeros(3, 4))


def test_muon_on_matrices_is_torchs_own_to_its_half_precision():
    p = parameter(12, 30)
    ours = stepped(lambda ps: Muon([{"params": ps}], lr=0.1, momentum=0.9, weight_decay=0.1), p)
    peer = stepped(lambda ps: torch.optim.Muon(ps, lr=0.1, momentum=0.9, weight_decay=0.1, nesterov=True), p)
    assert (ours - peer).norm() < 0.02 * (ours - p.detach()).norm()


def test_muon_takes_a_filter_bank_as_a_matrix_of_its_filters():
    filters = parameter(8, 4, 3, 3)

    def step(shape):
        p = nn.Parameter(filters.detach().reshape(shape).clone())
        p.grad = torch.ones(8, 36).cumsum(0).cos().reshape(shape)
        Muon([{"params": [p]}], lr=0.1).step()
        return p.detach().reshape(8, 36)

    assert torch.allclose(step((8, 4, 3, 3)), step((8, 36)), atol=1e-6)


def test_muon_steps_on_vectors_by_sgd():
    p = parameter(5)
    matrix = parameter(2, 2)
    ours = stepped(lambda ps: Muon([{"params": [*ps, matrix]}], lr=0.1, momentum=0.9), p)
    assert torch.allclose(ours, stepped(lambda ps: torch.optim.SGD(ps, 0.1, 0.9, nesterov=True), p), atol=1e-6)


def test_what_may_not_decay_is_a_group_of_its_own():
    net = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.Flatten(), nn.Linear(4, 2))
    decaying, others = parameter_groups(net.parameters(), Train(decay="matrices"))
    assert [tuple(p.shape) for p in decaying["params"]] == [(4, 3, 3, 3), (2, 4)]
    assert [p.ndim for p in others["params"]] == [1, 1, 1, 1]
    before = [p.detach().clone() for p in net.parameters()]
    optimizer = build_optimizer(net.parameters(), Train(decay="matrices", optimizer="adamw", weight_decay=0.5, lr=0.1))
    for p in net.parameters():
        p.grad = torch.zeros_like(p)
    optimizer.step()
    for p, old in zip(net.parameters(), before, strict=True):
        assert torch.allclose(p, old * (0.95 if p.ndim > 1 else 1.0))


def test_vectors_and_the_head_may_have_rates_of_their_own_and_all_shrink_alike():
    net = nn.Sequential(nn.Conv2d(3, 4, 3), nn.Flatten(), nn.Linear(4, 6), nn.Linear(6, 2))
    assert head_of(net) is net[3].weight
    settings = Train(lr=0.1, bias_lr=2.0, head_lr=0.5, weight_decay=0.3)
    matrices, vectors, head = parameter_groups(net.parameters(), settings, head_of(net))
    assert [tuple(p.shape) for p in matrices["params"]] == [(4, 3, 3, 3), (6, 4)]
    assert [p.ndim for p in vectors["params"]] == [1, 1, 1]
    assert head["params"] == [net[3].weight]
    assert (vectors["lr"], head["lr"]) == (2.0, 0.5)
    for name in ("sgd", "muon"):
        before = [p.detach().clone() for p in net.parameters()]
        optimizer = build_optimizer(net.parameters(), replace(settings, optimizer=name, momentum=0), head_of(net))
        for p in net.parameters():
            p.grad = torch.zeros_like(p)
        optimizer.step()
        for p, old in zip(net.parameters(), before, strict=True):
            assert torch.allclose(p, old * (1 - 0.1 * 0.3), atol=1e-7)


def test_add_blocks_hold_no_head():
    net = nn.Sequential(nn.Linear(4, 6), nn.Linear(6, 2))
    diffused = pp.add_diffusion(net, ["0"], torch.rand(2, 4))
    assert head_of(diffused) is diffused[1].weight
    assert head_of(nn.Conv2d(3, 2, 1)) is None


def test_muon_steps_on_the_head_by_sgd():
    net = nn.Sequential(nn.Linear(4, 6, bias=False), nn.Linear(6, 2, bias=False))
    settings = Train(optimizer="muon", lr=0.1, head_lr=0.5, momentum=0.9, nesterov=True, weight_decay=0)
    before = net[1].weight.detach().clone()
    optimizer = build_optimizer(net.parameters(), settings, head_of(net))
    for p in net.parameters():
        p.grad = torch.ones_like(p)
    optimizer.step()
    assert torch.allclose(net[1].weight, before - 0.5 * 1.9)


def test_filter_norm_sets_the_norm_to_the_root_of_the_rows_before_the_step():
    p = nn.Parameter(7 * parameter(8, 4, 3, 3).detach())
    p.grad = torch.zeros_like(p)
    direction = p.detach() / p.detach().norm()
    Muon([{"params": [p]}], lr=0.1, filter_norm=True, weight_decay=0.5).step()
    assert torch.allclose(p, direction * 8**0.5, atol=1e-6)


@pytest.mark.parametrize("optimizer", ["adamw", "muon"])
@pytest.mark.parametrize("method", ["erm", "pde_plus"])
def test_a_run_learns_with_it_and_resumes_to_the_same_bits(optimizer, method, tmp_path):
    settings = [
        f"method.name={method}", "model.name=plain_cnn", "model.width=8", "data.size=8", "train.limit=200",
        "train.batch_size=20", "train.epochs=2", f"train.optimizer={optimizer}", "train.decay=matrices",
        f"train.lr={0.003 if optimizer == 'adamw' else 0.02}", "train.warmup=0",
    ]  # fmt: skip
    run = pp.train(pp.load_config("demo", settings), tmp_path / "whole")
    assert run.metrics[-1]["loss/task"] < run.metrics[0]["loss/task"]
    shutil.copytree(run.path, tmp_path / "cut")
    (tmp_path / "cut" / "model.safetensors").unlink()
    newest = max((tmp_path / "cut" / "checkpoints").iterdir())
    shutil.rmtree(newest)
    pp.resume(tmp_path / "cut")
    assert (tmp_path / "cut" / "model.safetensors").read_bytes() == (run.path / "model.safetensors").read_bytes()


def test_wrong_settings_are_answered_in_one_line():
    with pytest.raises(UserError, match="train.optimizer=muon needs a network with matrices"):
        build_optimizer([parameter(3)], Train(optimizer="muon"))
    with pytest.raises(UserError, match="train.optimizer='lion' must be one of 'sgd', 'adamw', 'muon'"):
        pp.load_config("demo", ["train.optimizer=lion"])
    with pytest.raises(UserError, match="train.momentum=1.0 must be below 1"):
        pp.load_config("demo", ["train.optimizer=adamw", "train.momentum=1.0"])
