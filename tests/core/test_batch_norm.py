"""BatchNorm policies."""

import copy

import pytest
import torch
from conftest import STAGES
from torch import nn

import pdeplus as pp
from pdeplus.core.batch_norm import SplitBatchNorm, check_batch_size, recalibrate, split_batch_norm
from pdeplus.errors import UserError
from pdeplus.training.run_folder import Expects, build_method, build_network


def test_split_keeps_statistics_of_plain_and_diffused_passes_apart(net, x):
    changed = split_batch_norm(pp.add_diffusion(net, STAGES, x, initial_scale=0.5)).train()
    deep = changed.layer2[0].bn1
    assert isinstance(deep, SplitBatchNorm)
    assert not any(isinstance(m, SplitBatchNorm) for m in changed.add_blocks.modules())
    plain, diffused = deep.running_var.clone(), deep.diffused_var.clone()
    with pp.diffusion(changed):
        changed(x)
    assert torch.equal(deep.running_var, plain)
    assert not torch.equal(deep.diffused_var, diffused)
    diffused = deep.diffused_var.clone()
    changed(x)
    with pp.diffusion(changed, active=False):
        changed(x)
    assert not torch.equal(deep.running_var, plain)
    assert torch.equal(deep.diffused_var, diffused)


def test_split_network_computes_what_the_original_does(net, x):
    split = split_batch_norm(copy.deepcopy(net))
    assert torch.equal(split(x), net(x))
    assert split.train()(x).allclose(net.train()(x))


def test_split_keeps_an_add_block_behind_a_batch_norm(net, x):
    changed = split_batch_norm(pp.add_diffusion(net, ["layer1.0.bn2"], x))
    with pp.diffusion(changed) as trace:
        changed(x)
    assert trace.names == ["layer1.0.bn2"]


def test_recalibrated_statistics_are_the_average_over_the_batches():
    norm = nn.BatchNorm1d(3)
    net = nn.Sequential(norm).train()
    batches = [torch.randn(50, 3) * 2 + 1 for _ in range(4)]
    norm(torch.randn(10, 3) * 100)
    recalibrate(net, batches)
    assert torch.allclose(norm.running_mean, torch.stack([b.mean(0) for b in batches]).mean(0), atol=1e-6)
    assert torch.allclose(norm.running_var, torch.stack([b.var(0) for b in batches]).mean(0), atol=1e-5)
    assert norm.momentum == 0.1
    assert norm.training


def test_recalibration_leaves_add_blocks_alone(net, x):
    changed = pp.add_diffusion(net, STAGES, x)
    blocks = copy.deepcopy(changed.add_blocks.state_dict())
    recalibrate(changed, [x])
    assert all(torch.equal(blocks[k], v) for k, v in changed.add_blocks.state_dict().items())


@pytest.mark.parametrize(
    "settings",
    [
        ["name=pde_plus"],
        ["name=pde_plus_stages", "twins=diffused"],
        ["name=fixed_diffusion"],
        ["name=rse"],
        ["name=en_resnet"],
    ],
)
def test_split_is_refused_where_no_pass_is_plain(settings):
    split = ["train.batch_norm=split", "train.limit=20", "model.width=4"]
    config = pp.load_config("demo", [*(f"method.{one}" for one in settings), *split])
    with pytest.raises(UserError, match=r"train.batch_norm=split: .* never measured; use shared or recalibrate"):
        build_network(config, build_method(config), Expects(classes=("a", "b"), shape=(3, 32, 32)))


def test_a_batch_of_one_is_refused_only_where_it_matters(net):
    with pytest.raises(UserError, match="train.batch_size=1"):
        check_batch_size(net, 1)
    with pytest.raises(UserError, match="train.batch_size=1"):
        check_batch_size(split_batch_norm(copy.deepcopy(net)), 1)
    check_batch_size(net, 2)
    check_batch_size(nn.Linear(2, 2), 1)
