"""One whole step of `paper` and of `authors` against plain PyTorch, in double precision and with the same noise.

The plain steps are written from the paper's Algorithm 1 and from what docs/fidelity.md says of the authors' code; only
the residual network is shared. Compared are losses, gradients, weights and BatchNorm's statistics after both updates.
"""

import copy
from dataclasses import replace

import pytest
import torch
from support.one_step import batch_of, seeded
from torch import Tensor, nn
from torch.nn import functional as F

import pdeplus as pp
from pdeplus.augment.base import Augmentor
from pdeplus.methods.pde_plus import PDEPlus
from pdeplus.models.resnet18 import build
from pdeplus.training.distributed import Engine
from pdeplus.training.loop import train_step
from pdeplus.training.optimizers import build_optimizers

EXACT = {"rtol": 1e-9, "atol": 1e-12}


class Powers(Augmentor):
    """The images squared, at the next call cubed, and so on."""

    overlaps = ()

    def __init__(self) -> None:
        self.power = 1

    def __call__(self, x: Tensor, generator: torch.Generator | None = None) -> Tensor:
        self.power += 1
        return x**self.power


class Plain(nn.Module):
    """f_1, g_1, f_2, g_2, …, with g = conv, BatchNorm, ReLU, conv, BatchNorm and a head."""

    def __init__(self, net: nn.Module, blocks: list[nn.Module], channels: list[int], head) -> None:
        super().__init__()
        self.net, self.head, self.f = net, head, tuple(blocks)
        self.g = nn.ModuleList(
            nn.Sequential(
                nn.Conv2d(c, 2 * c, 3, padding=1), nn.BatchNorm2d(2 * c), nn.ReLU(),
                nn.Conv2d(2 * c, c, 3, padding=1), nn.BatchNorm2d(c),
            )
            for c in channels
        )  # fmt: skip

    def forward(self, x: Tensor, noise: torch.Generator | None = None, detach: bool = False):
        """The logits, and h_l and σ_l of every block; without noise there is no diffusion."""
        h, means, scales = F.relu(self.net.bn1(self.net.conv1(x))), [], []
        for f, g in zip(self.f, self.g, strict=True):
            h = f(h)
            means.append(h)
            if noise:
                scales.append(self.head(g(h.detach() if detach else h)))
                h = h + scales[-1] * torch.empty(h.shape).normal_(generator=noise)
        return self.net.linear(h.mean((2, 3))), means, scales


def paper_step(plain: Plain, x: Tensor, y: Tensor, noise: torch.Generator, adam, sgd) -> list[Tensor]:
    """Algorithm 1 with p(h^a | h) = N(h, σ), σ the variance, a mean over elements and a sum over blocks."""
    similar = x**2
    _, h, sigma = plain(x, noise, detach=True)
    _, h_similar, _ = plain(similar)
    squares = [(b - a).detach() ** 2 for a, b in zip(h, h_similar, strict=True)]
    coverage = sum((s.log() + d / s).mean() / 2 for s, d in zip(sigma, squares, strict=True))
    update(adam, coverage)
    logits, _, _ = plain(torch.cat([x, similar]), noise)
    task = -logits.log_softmax(1).gather(1, y.repeat(2)[:, None]).mean()
    update(sgd, task)
    return [coverage, task]


def authors_step(plain: Plain, x: Tensor, y: Tensor, noise: torch.Generator, adam, sgd) -> list[Tensor]:
    """Both views augmented, nothing detached, torch's losses, a mean over blocks, smoothed labels."""
    first, second = x**2, x**3
    _, mu, sigma = plain(first, noise)
    _, mu_similar, _ = plain(second)
    each = [nn.GaussianNLLLoss()(b, a, s) for a, b, s in zip(mu, mu_similar, sigma, strict=True)]
    coverage = sum(each) / len(each)
    update(adam, coverage)
    logits, _, _ = plain(torch.cat([first, second]), noise)
    task = nn.CrossEntropyLoss(label_smoothing=0.12)(logits, y.repeat(2))
    update(sgd, task)
    return [coverage, task]


def update(optimizer: torch.optim.Optimizer, loss: Tensor) -> None:
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()


def watched(optimizer: torch.optim.Optimizer, names: dict[str, Tensor]) -> dict[str, Tensor]:
    """Filled at its steps with the gradients of all it steps on, by name."""
    found, name_of = {}, {id(p): name for name, p in names.items()}

    def keep(optimizer, args, options):
        every = [p for group in optimizer.param_groups for p in group["params"] if p.grad is not None]
        found.update({name_of[id(p)]: p.grad.clone() for p in every})

    optimizer.register_step_pre_hook(keep)
    return found


@pytest.fixture
def double():
    torch.set_default_dtype(torch.float64)
    yield
    torch.set_default_dtype(torch.float32)


@pytest.mark.usefixtures("double")
@pytest.mark.parametrize("preset", ["paper", "authors"])
def test_a_whole_step_is_that_of_plain_pytorch(preset):
    paper, config = preset == "paper", pp.load_config(preset)
    method = PDEPlus(**{**config.method.options, "augmentor": Powers()})
    torch.manual_seed(0)
    x, base = torch.rand(6, 3, 16, 16), build(classes=5, channels=3, width=4)
    net = method.prepare(base, x).train()
    copied = copy.deepcopy(base)
    stages = [copied.layer1, copied.layer2, copied.layer3, copied.layer4]
    blocks, channels, head = stages, [4, 8, 16, 32], F.relu
    if paper:
        blocks, channels = [block for stage in stages for block in stage], [4, 4, 8, 8, 16, 16, 32, 32]
        head = softplus_with_floor
    plain = Plain(copied, blocks, channels, head).train()
    for mine, theirs in zip(net.add_blocks, plain.g, strict=True):
        theirs.load_state_dict(mine.body.state_dict())
        # what BatchNorm takes out again has no gradient but for rounding, which Adam would make a step of
        for bias in (mine.body[0].bias, mine.body[3].bias, theirs[0].bias, theirs[3].bias):
            bias.requires_grad_(False)
    names = dict(net.named_parameters())
    plain_names = {renamed(name): p for name, p in plain.named_parameters()}

    ours = build_optimizers(method, net, config.train)
    adam = torch.optim.Adam(plain.g.parameters(), lr=0.015 if paper else 0.001)
    sgd = torch.optim.SGD(plain.parameters(), lr=0.05 if paper else 0.06, momentum=0.9, weight_decay=5e-4)
    found = [watched(ours[name], names) for name in ("diffusion", "task")]
    expected = [watched(optimizer, plain_names) for optimizer in (adam, sgd)]
    batch = replace(batch_of(x, seed=7), label_smoothing=config.train.label_smoothing)
    logs = train_step(net, method, batch, ours, Engine("fp32"))
    losses = (paper_step if paper else authors_step)(plain, x, batch.labels, seeded(7), adam, sgd)

    for name, loss in zip(("coverage", "task"), losses, strict=True):
        assert logs[f"loss/{name}"].item() == pytest.approx(loss.item(), rel=1e-9)
    for mine, theirs in zip(found, expected, strict=True):
        assert mine
        assert mine.keys() == theirs.keys()
        for name, gradient in theirs.items():
            least = 1e-9 * float(gradient.abs().max())
            torch.testing.assert_close(mine[name], gradient, rtol=1e-9, atol=least, msg=name)
    state = {renamed(name): value for name, value in plain.state_dict().items()}
    assert state.keys() == net.state_dict().keys()
    for name, value in net.state_dict().items():
        torch.testing.assert_close(value, state[name], **EXACT, msg=name)
    assert int(net.bn1.num_batches_tracked) == 3
    assert [int(block.body[1].num_batches_tracked) for block in net.add_blocks] == [2] * len(channels)


def softplus_with_floor(z: Tensor) -> Tensor:
    return F.softplus(z) + 1e-3


def renamed(name: str) -> str:
    """A plain network's name of a tensor as ours has it."""
    part, _, rest = name.partition(".")
    return rest if part == "net" else "add_blocks.{}.body.{}".format(*rest.split(".", 1))
