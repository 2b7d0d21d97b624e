"""Several noisy passes at once: the same numbers as one by one, at less cost."""

import copy

import pytest
import torch
from conftest import STAGES
from support.noisy_passes import one_by_one
from support.one_step import seeded
from torch import nn

import pdeplus as pp
from pdeplus.core import prediction
from pdeplus.core.batch_norm import split_batch_norm
from pdeplus.core.prediction import sample_logits
from pdeplus.errors import UserError


def trained_blocks(net: nn.Module) -> nn.Module:
    """σ that depends on the input, as after training."""
    with torch.no_grad():
        for block in net.add_blocks:
            block.body[-1].weight.normal_(0.5, 0.2)
    return net.eval()


class Tokens(nn.Module):
    """B×N×C features between the embedding and the mean."""

    def __init__(self):
        super().__init__()
        self.embed, self.mix, self.head = nn.Linear(3, 8), nn.Linear(8, 8), nn.Linear(8, 5)

    def forward(self, x):
        return self.head(self.mix(self.embed(x).relu()).mean(1))


class Skip(nn.Module):
    """Joins what came before its ADD block with what comes behind it."""

    def __init__(self, join: str):
        super().__init__()
        self.join, self.first, self.second = join, nn.Linear(4, 4), nn.Linear(4, 4)
        self.head = nn.Linear(8 if join == "cat" else 4, 3)

    def forward(self, x):
        h = self.second(self.first(x).relu())
        return self.head(torch.cat([h, x], 1) if self.join == "cat" else h + x)


class Twice(nn.Module):
    """Calls the module before its ADD block twice, on images of two sizes."""

    def __init__(self, second: int):
        super().__init__()
        self.stem, self.shared, self.head = nn.Conv2d(3, 4, 3, padding=1), nn.Conv2d(4, 4, 1), nn.Linear(4, 3)
        self.pool = nn.AdaptiveAvgPool2d(second)

    def forward(self, x):
        return self.head(self.shared(self.pool(self.shared(self.stem(x)).relu())).mean((2, 3)))


@pytest.mark.parametrize("prior", ["gaussian", "laplace", "student_t"])
@pytest.mark.parametrize("samples", [1, 2, 7])
def test_equals_passes_one_by_one_with_the_same_generator(net, x, prior, samples):
    changed = trained_blocks(pp.add_diffusion(net, STAGES, x, prior=prior))
    at_once = sample_logits(changed, x, samples, generator=seeded(3))
    assert at_once.shape == (samples, len(x), 10)
    assert torch.allclose(at_once, one_by_one(changed, x, samples, seeded(3)), atol=1e-5)
    if samples > 1:
        assert (at_once[0] - at_once[1]).abs().max() > 1e-3


@pytest.mark.parametrize("shape", [(4, 5, 3), (1, 5, 3)])
def test_token_features(shape):
    x = torch.randn(shape)
    changed = trained_blocks(pp.add_diffusion(Tokens(), ["embed", "mix"], x, initial_scale=0.3))
    at_once = sample_logits(changed, x, 6, generator=seeded(3))
    assert torch.allclose(at_once, one_by_one(changed, x, 6, seeded(3)), atol=1e-6)


def test_split_batch_norm_uses_the_statistics_of_diffused_passes(net, x):
    changed = split_batch_norm(trained_blocks(pp.add_diffusion(net, ["layer2"], x)))
    changed.bn1.diffused_mean.add_(0.3)
    at_once = sample_logits(changed, x, 3, generator=seeded(3))
    assert torch.allclose(at_once, one_by_one(changed, x, 3, seeded(3)), atol=1e-5)
    plain = copy.deepcopy(changed)
    plain.bn1.diffused_mean.copy_(plain.bn1.running_mean)
    assert not torch.allclose(at_once, sample_logits(plain, x, 3, generator=seeded(3)), atol=1e-3)


def test_what_lies_before_the_first_block_runs_once(net, x):
    changed = pp.add_diffusion(net, ["layer2"], x)
    rows: dict[str, list[int]] = {"layer1": [], "layer2": [], "layer3": []}
    for name, seen in rows.items():
        changed.get_submodule(name).register_forward_pre_hook(lambda m, args, seen=seen: seen.append(len(args[0])))
    scales = []
    changed.add_blocks[0].body.register_forward_pre_hook(lambda m, args: scales.append(len(args[0])))
    sample_logits(changed, x, 10, generator=seeded(3))
    probe = 1  # one image's plain pass tells the shapes of the noise
    assert rows == {"layer1": [probe, 6], "layer2": [probe, 6], "layer3": [probe, 60]}
    assert scales == [6]  # σ is computed once, too


def test_more_rows_than_fit_at_once_are_cut_and_come_out_the_same(net, x, monkeypatch):
    changed = trained_blocks(pp.add_diffusion(net, STAGES, x))
    sizes = []
    changed.linear.register_forward_pre_hook(lambda module, args: sizes.append(len(args[0])))
    monkeypatch.setattr(prediction, "ROWS_AT_ONCE", 8)
    cut = sample_logits(changed, x, 4, generator=seeded(3))
    assert max(sizes) == 8
    generator = seeded(3)
    by_hand = torch.cat([one_by_one(changed, x[i : i + 2], 4, generator) for i in (0, 2, 4)], 1)
    assert torch.allclose(cut, by_hand, atol=1e-5)
    monkeypatch.setattr(prediction, "ROWS_AT_ONCE", 2)  # fewer than the samples of one image
    assert sample_logits(changed, x, 4, generator=seeded(3)).shape == (4, 6, 10)


@pytest.mark.parametrize("join", ["cat", "add"])
@pytest.mark.parametrize("images", [1, 5])
def test_a_skip_around_the_first_block_gives_the_same_passes(join, images):
    x = torch.randn(images, 4)
    changed = trained_blocks(pp.add_diffusion(Skip(join), ["first", "second"], x, initial_scale=0.3))
    at_once = sample_logits(changed, x, 6, generator=seeded(3))
    assert torch.allclose(at_once, one_by_one(changed, x, 6, seeded(3)), atol=1e-6)
    assert torch.allclose(
        pp.predict(changed, x, 6, generator=seeded(3), average="logits"),
        one_by_one(changed, x, 6, seeded(3)).mean(0).softmax(-1),
        atol=1e-6,
    )


def test_the_mean_over_many_passes_is_the_closed_form():
    """A linear head on h + σ·ε: logits have mean W·h and variance σ²·|W|² by rows."""
    model = nn.Sequential(nn.Identity(), nn.Linear(4, 3, bias=False))
    x = torch.randn(2, 4)
    changed = pp.add_diffusion(model, ["0"], x, initial_scale=0.5)
    logits = sample_logits(changed, x, 20_000, generator=seeded(3))
    norms = model[1].weight.detach().norm(dim=1)
    assert torch.allclose(logits.mean(0), model(x), atol=4 * 0.5 * float(norms.max()) / 20_000**0.5)
    assert torch.allclose(logits.std(0), (0.5 * norms).expand(2, 3), rtol=0.03)


@pytest.mark.parametrize("second", [4, 1])
def test_a_block_that_is_passed_twice_draws_noise_of_each_shape(second):
    x = torch.rand(3, 3, 8, 8)
    changed = trained_blocks(pp.add_diffusion(Twice(second), ["shared"], x, initial_scale=0.3))
    at_once = sample_logits(changed, x, 4, generator=seeded(3))
    assert torch.allclose(at_once, one_by_one(changed, x, 4, seeded(3)), atol=1e-6)


def test_averages_of_probabilities_and_of_logits(net, x):
    changed = trained_blocks(pp.add_diffusion(net, STAGES, x, initial_scale=0.5))
    logits = one_by_one(changed, x, 5, seeded(3))
    by_hand = {"probabilities": logits.softmax(-1).mean(0), "logits": logits.mean(0).softmax(-1)}
    for average, expected in by_hand.items():
        found = pp.predict(changed, x, 5, generator=seeded(3), average=average)
        assert torch.allclose(found, expected, atol=1e-5)
    assert (by_hand["probabilities"] - by_hand["logits"]).abs().max() > 1e-4


def test_without_blocks_there_is_nothing_to_sample(net, x):
    with pytest.raises(UserError, match="no ADD blocks"):
        sample_logits(net, x, 2)
