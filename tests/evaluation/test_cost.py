"""What a network costs, against counts worked out from the shapes of its layers."""

import pytest
import torch
from conftest import STAGES
from support.operation_counts import add_blocks, conv, resnet18
from torch import nn

import pdeplus as pp
from pdeplus.evaluation.cost import parameters_used, prediction_flops, training_flops
from pdeplus.models.resnet18 import build
from pdeplus.training.run_folder import Expects, build_method


def light_blocks(width: int, side: int) -> tuple[int, int]:
    """Behind each stage, of each channel a 3×3 convolution, and a 1×1 convolution of all: the two kinds' operations."""
    stages = [(width * 2**k, side // 2**k) for k in range(4)]
    return sum(conv(1, c, 3, s) for c, s in stages), sum(conv(c, c, 1, s) for c, s in stages)


def trained_flops(width: int, side: int, *overrides: str) -> float:
    """A training step's FLOPs; without another method, of PDE+ in stages."""
    named = any(one.startswith("method.name=") for one in overrides)
    overrides = overrides if named else ("method.name=pde_plus_stages", *overrides)
    config = pp.load_config("demo", [f"model.width={width}", *overrides])
    expects = Expects(classes=tuple("0123456789"), shape=(3, side, side))
    return training_flops(config, build_method(config), expects, 100) / 100


def test_progressive_epochs_cost_what_their_images_do():
    settings = "method.name=erm", "train.epochs=4"
    small, full = trained_flops(4, 24, *settings), trained_flops(4, 32, *settings)
    assert trained_flops(4, 32, *settings, "train.progressive=0.25") == pytest.approx((small + 3 * full) / 4)


def test_single_layers():
    x = torch.rand(1, 3, 10, 12)
    assert prediction_flops(nn.Conv2d(3, 5, 3), x) == 2 * 3 * 5 * 9 * 8 * 10
    assert prediction_flops(nn.Conv2d(3, 6, 3, stride=2, groups=3), x) == 2 * 6 * 9 * 4 * 5
    assert prediction_flops(nn.Linear(12, 7), torch.rand(1, 12)) == 2 * 12 * 7


def test_resnet18_at_full_width():
    counted = prediction_flops(build(classes=10, channels=3).eval(), torch.rand(1, 3, 32, 32))
    assert counted == resnet18(64, 32)
    assert counted / 2e9 == pytest.approx(0.5554, abs=5e-5)  # thousand millions of multiply-adds


def test_noisy_passes_cost_what_lies_behind_the_first_block(net, x):
    """At width 4 and 16 px; σ of the first block is computed once."""
    changed = pp.add_diffusion(net, ["layer1"], x, block="paper")
    counts = {e: prediction_flops(lambda x, e=e: pp.predict(changed, x, e), x[:1]) for e in (0, 1, 2, 5)}
    stem, first = conv(3, 4, 3, 16), 4 * conv(4, 4, 3, 16)
    rest, block = resnet18(4, 16) - stem - first, 2 * conv(4, 8, 3, 16)
    assert counts[0] == stem + first + rest
    assert {e: counts[e] for e in (1, 2, 5)} == {e: stem + first + block + e * rest for e in (1, 2, 5)}


def test_parameters_with_and_without_noise():
    net = pp.add_diffusion(build(classes=10, channels=3), STAGES, torch.rand(2, 3, 32, 32), block="paper")
    assert parameters_used(net, 0) == 11_173_962
    assert parameters_used(net, 1) == 11_173_962 + 12_542_400


def test_training_costs_three_passes_but_for_the_gradient_of_the_images():
    assert trained_flops(8, 16, "method.name=erm") == 3 * resnet18(8, 16) - conv(3, 8, 3, 16)


def test_pde_plus_training_against_the_papers_cost():
    """The model F + 6(F + A), less what the fused schedule saves: σ learns from one of two views, without its input.

    Forward: a plain pass of one view, a diffused one of both. Backward: backbone of both; of each ADD block, for one
    view, two gradients of weights and one of features (1.5 A instead of 4 A). No images need a gradient.
    """
    f, a, stem = resnet18(8, 16), add_blocks(8, 16), conv(3, 8, 3, 16)
    counted = trained_flops(8, 16, "method.block=paper")
    assert counted == f + 2 * (f + a) + 4 * f + 1.5 * a - 2 * stem
    model = f + 6 * (f + a)
    assert counted == pytest.approx(model - 2.5 * a, rel=0.01)
    ratio = counted / trained_flops(8, 16, "method.name=erm")
    assert 3.3 < ratio < 13 / 3  # with A ≈ F: (13 - 2.5) / 3 = 3.5; 3.65 in time, on a CPU


def test_pde_plus_on_images_costs_a_step_of_erm_and_its_block():
    """Its block: a convolution, whose images need no gradient, and a linear map of each pixel back. The task trains σ
    too, so the network's first layer, unlike ERM's, has a gradient of its input."""
    filters, back, stem = conv(3, 16, 3, 16), conv(16, 3, 1, 16), conv(3, 8, 3, 16)
    counted, plain = trained_flops(8, 16, "method.name=pde_plus"), trained_flops(8, 16, "method.name=erm")
    assert counted - plain == 2 * filters + 3 * back + stem


def test_pde_plus_with_light_blocks_costs_little_more_than_its_passes():
    """Seven passes of the backbone; of a block's two convolutions the first needs no gradient of its input."""
    f, (depthwise, pointwise), stem = resnet18(8, 16), light_blocks(8, 16), conv(3, 8, 3, 16)
    counted = trained_flops(8, 16)
    assert counted == 7 * f - 2 * stem + 3 * depthwise + 4 * pointwise
    assert counted - trained_flops(8, 16, "method.twins=diffused") == f


def test_a_coverage_loss_on_a_quarter_of_the_batch_is_counted_as_such():
    """The plain pass of the twins is one of a quarter of the images, and so are the gradients of the blocks."""
    f, (depthwise, pointwise), stem = resnet18(8, 16), light_blocks(8, 16), conv(3, 8, 3, 16)
    counted = trained_flops(8, 16, "train.batch_size=1024", "method.coverage_images=256")
    assert counted == 6.25 * f - 2 * stem + 2.25 * depthwise + 2.5 * pointwise


@pytest.mark.parametrize(
    ("options", "views"),
    [
        ("augmix", 1),
        ("augmix views=original+augmented", 2),
        ("augmix jsd=12", 3),
        ("augmix jsd=12 agreeing=2", 2),
        ("augmix jsd=12 views=both_augmented", 3),
        ("two_views agreeing=3", 3),
    ],
)
def test_a_step_costs_as_many_passes_as_it_has_views(options, views):
    name, *others = (option.replace("_augmented", " augmented") for option in options.split())
    counted = trained_flops(4, 8, f"method.name={name}", *(f"method.{option}" for option in others))
    assert counted == views * (3 * resnet18(4, 8) - conv(3, 4, 3, 8))


def test_a_third_view_of_pde_plus_is_one_pass_more_without_gradients_of_its_blocks():
    f, (depthwise, pointwise), stem = resnet18(4, 8), light_blocks(4, 8), conv(3, 4, 3, 8)
    more = trained_flops(4, 8, "method.agreeing=3") - trained_flops(4, 8)
    assert more == 3 * f - stem + depthwise + pointwise
    alone = trained_flops(4, 8, "method.views=original", "method.jsd=0")
    assert alone == trained_flops(4, 8, "method.mixture=false") == trained_flops(4, 8) - more


def test_counting_leaves_the_global_random_state_alone():
    state = torch.get_rng_state()
    trained_flops(4, 8)
    assert torch.equal(state, torch.get_rng_state())
