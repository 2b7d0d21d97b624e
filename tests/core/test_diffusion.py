"""Surgery, trace, gradients and prediction on our own networks."""

import copy

import pytest
import torch
from conftest import STAGES
from torch import nn

import pdeplus as pp
from pdeplus.core.add_block import ADDBlock, light_body, paper_body, token_body
from pdeplus.core.surgery import add_blocks_of
from pdeplus.errors import UserError
from pdeplus.models.plain_cnn import build as build_plain


def test_off_is_the_original_bit_for_bit_and_the_model_is_left_alone(net, x):
    before = copy.deepcopy(net.state_dict())
    changed = pp.add_diffusion(net, STAGES, x)
    assert type(changed) is type(net)
    assert torch.equal(changed(x), net(x))
    assert not any(isinstance(m, ADDBlock) for m in net.modules())
    assert all(torch.equal(before[k], v) for k, v in net.state_dict().items())
    assert set(before) <= set(changed.state_dict())
    net.train(), changed.train()
    assert torch.equal(changed(x), net(x))


def test_parameter_counts_are_the_papers():
    from pdeplus.models.resnet18 import build

    model = build(classes=10, channels=3)
    assert sum(p.numel() for p in model.parameters()) == 11_173_962
    changed = pp.add_diffusion(model, STAGES, torch.rand(2, 3, 32, 32), block="paper")
    assert sum(p.numel() for b in add_blocks_of(changed) for p in b.parameters()) == 12_542_400


@pytest.mark.parametrize(("body", "count"), [(paper_body, 36 * 64 + 9 * 8), (light_body, 64 + 15 * 8)])
def test_body_sizes(body, count):
    assert sum(p.numel() for p in body(8).parameters()) == count


def test_on_adds_noise_of_the_traced_scale(net, x):
    changed = pp.add_diffusion(net, ["layer1"], x, initial_scale=0.3)
    seen = []
    changed.layer2.register_forward_pre_hook(lambda module, args: seen.append(args[0]))
    with torch.no_grad(), pp.diffusion(changed, generator=torch.Generator().manual_seed(0)) as trace:
        changed(x)
    assert trace.names == ["layer1"]
    assert torch.allclose(trace.scales[0], torch.tensor(0.3))
    noise = (seen[0] - trace.means[0]) / 0.3
    assert noise.mean().abs() < 0.03
    assert noise.std().item() == pytest.approx(1, abs=0.02)


def test_inactive_context_traces_the_plain_features(net, x):
    changed = pp.add_diffusion(net, STAGES, x)
    with torch.no_grad(), pp.diffusion(changed, active=False) as trace:
        out = changed(x)
    assert torch.equal(out, net(x))
    assert trace.scales == []
    assert torch.equal(trace.means[0], net.layer1(torch.relu(net.bn1(net.conv1(x)))))


def test_trace_survives_a_later_in_place_layer():
    model = nn.Sequential(nn.Conv2d(3, 4, 3), nn.ReLU(inplace=True))
    x = torch.randn(2, 3, 8, 8)
    changed = pp.add_diffusion(model, ["0"], x)
    with torch.no_grad(), pp.diffusion(changed, active=False) as trace:
        changed(x)
    assert torch.equal(trace.means[0], model[0](x))
    assert (trace.means[0] < 0).any()


@pytest.mark.parametrize("head", ["softplus", "relu"])
@pytest.mark.parametrize("body", [paper_body(4), light_body(4), token_body(4)])
def test_initial_scale_is_exact_for_every_input(head, body):
    block = ADDBlock(body, head=head, initial_scale=0.05)
    shape = (5, 7, 4) if isinstance(body[0], nn.Linear) else (5, 4, 7, 7)
    for mode in (True, False):
        assert torch.allclose(block.train(mode).scale(10 * torch.randn(shape)), torch.tensor(0.05), atol=1e-6)


def test_softplus_head_is_positive_even_where_its_input_is_hugely_negative():
    block = ADDBlock(paper_body(2), initial_scale=None)
    nn.init.constant_(block.body[-1].bias, -1e6)
    assert block.scale(torch.randn(4, 2, 5, 5)).min().item() == pytest.approx(1e-3)


def test_relu_head_gives_zeros_from_batch_norms_own_start():
    scale = ADDBlock(paper_body(8), head="relu", initial_scale=None).scale(torch.randn(16, 8, 8, 8))
    assert (scale == 0).float().mean().item() == pytest.approx(0.5, abs=0.05)
    assert scale.mean().item() == pytest.approx(0.4, abs=0.05)


def test_token_and_vector_features():
    class Tokens(nn.Module):
        def __init__(self):
            super().__init__()
            self.embed, self.head = nn.Linear(3, 8), nn.Linear(8, 2)

        def forward(self, x):
            return self.head(self.embed(x))

    for shape in ((4, 5, 3), (4, 3)):
        x = torch.randn(shape)
        changed = pp.add_diffusion(Tokens(), ["embed"], x)
        with pp.diffusion(changed) as trace:
            assert changed(x).shape == (*shape[:-1], 2)
        assert trace.scales[0].shape == (*shape[:-1], 8)


def test_network_without_residual_connections(x):
    model = build_plain(classes=5, channels=3, width=4).eval()
    changed = pp.add_diffusion(model, STAGES, x)
    assert torch.equal(changed(x), model(x))
    with pp.diffusion(changed):
        assert not torch.equal(changed(x), model(x))


def test_root_that_is_a_sequential_is_untouched_by_its_blocks(x):
    model = nn.Sequential(nn.Conv2d(3, 4, 3), nn.ReLU(), nn.Flatten(), nn.Linear(4 * 14 * 14, 2))
    changed = pp.add_diffusion(model, ["0", "1"], x)
    assert torch.equal(changed(x), model(x))
    with pp.diffusion(changed) as trace:
        changed(x)
    assert trace.names == ["0", "1"]


def test_local_gradient_reaches_its_own_block_only(net, x):
    changed = pp.add_diffusion(net, STAGES, x).train()
    with pp.diffusion(changed, local=True) as trace:
        changed(x)
    trace.scales[2].sum().backward()
    reached = {name for name, p in changed.named_parameters() if p.grad is not None}
    assert reached
    assert all(name.startswith("add_blocks.2.") for name in reached)


def test_gradient_through_reaches_backbone_and_earlier_blocks(net, x):
    changed = pp.add_diffusion(net, STAGES, x).train()
    with pp.diffusion(changed) as trace:
        changed(x)
    (trace.scales[2] * torch.randn_like(trace.scales[2])).sum().backward()
    reached = {name for name, p in changed.named_parameters() if p.grad is not None}
    assert {"conv1.weight", "add_blocks.0.body.4.bias", "add_blocks.2.body.4.bias"} <= reached
    assert "add_blocks.3.body.4.bias" not in reached


def test_learning_from_some_rows_still_diffuses_the_others(net, x):
    changed = pp.add_diffusion(net, ["layer1"], x, initial_scale=0.3).eval()
    seen = []
    changed.layer2.register_forward_pre_hook(lambda module, args: seen.append(args[0]))
    with pp.diffusion(changed, local=True, learn_from=2) as trace:
        changed(x)
    assert len(trace.scales[0]) == 2
    assert len(trace.means[0]) == len(x)
    noise = (seen[0] - trace.means[0])[2:].std().item()
    assert noise == pytest.approx(0.3, abs=0.02)
    gradient = torch.autograd.grad(seen[0][2:].sum(), list(changed.add_blocks[0].parameters()), allow_unused=True)
    assert all(g is None or not g.any() for g in gradient)


def test_predict_is_the_average_of_its_passes(net, x):
    changed = pp.add_diffusion(net, STAGES, x, initial_scale=0.5)
    generator = torch.Generator().manual_seed(7)
    logits = []
    for _ in range(5):
        with torch.no_grad(), pp.diffusion(changed, generator=generator):
            logits.append(changed(x))
    by_hand = torch.stack(logits)

    def again(average):
        return pp.predict(changed, x, samples=5, generator=torch.Generator().manual_seed(7), average=average)

    assert torch.allclose(again("probabilities"), by_hand.softmax(-1).mean(0), atol=1e-6)
    assert torch.allclose(again("logits"), by_hand.mean(0).softmax(-1), atol=1e-6)
    assert torch.equal(pp.predict(changed, x, samples=0), net(x).softmax(-1))


def test_predict_uses_eval_mode_and_leaves_every_mode_as_it_was(net, x):
    changed = pp.add_diffusion(net, STAGES, x)
    changed.train()
    changed.layer1.eval()
    modes = [m.training for m in changed.modules()]
    assert torch.equal(pp.predict(changed, x, samples=0), net.eval()(x).softmax(-1))
    assert [m.training for m in changed.modules()] == modes


def test_predict_without_samples_is_plain_even_inside_an_open_context(net, x):
    changed = pp.add_diffusion(net, STAGES, x)
    with pp.diffusion(changed) as trace:
        assert torch.equal(pp.predict(changed, x, samples=0), net(x).softmax(-1))
        assert trace.names == []
        changed(x)
    assert trace.names == STAGES


class Pair(nn.Module):
    def __init__(self):
        super().__init__()
        self.both = nn.LSTM(3, 4)

    def forward(self, x):
        return self.both(x)[0]


@pytest.mark.parametrize(
    ("after", "message"),
    [
        (["layer9"], "no module 'layer9'; among its modules: .*layer"),
        ([], "at least one module name"),
        ("layer1", "must be a list"),
    ],
)
def test_bad_names_are_refused(net, x, after, message):
    with pytest.raises(UserError, match=message):
        pp.add_diffusion(net, after, x)


def test_bad_outputs_are_refused(net, x):
    with pytest.raises(UserError, match="'both' returns a tuple, not a tensor"):
        pp.add_diffusion(Pair(), ["both"], torch.rand(2, 5, 3))
    with pytest.raises(UserError, match="no ADD blocks"), pp.diffusion(net):
        pass
    changed = pp.add_diffusion(net, ["layer1"], x)
    with pytest.raises(UserError, match="already"):
        pp.add_diffusion(changed, ["layer2"], x)
    with pytest.raises(UserError, match="samples=-1"):
        pp.predict(changed, x, samples=-1)
    for option, value in (("head", "sofplus"), ("block", "ligth"), ("prior", "cauchy")):
        with pytest.raises(UserError, match=f"{option}='{value}' is not known; choose from"):
            pp.add_diffusion(net, ["layer1"], x, **{option: value})
    with pytest.raises(UserError, match="average='logitz'"):
        pp.predict(changed, x, average="logitz")
    with pytest.raises(UserError, match="initial_scale=0.0001"):
        pp.add_diffusion(net, ["layer1"], x, initial_scale=1e-4)
