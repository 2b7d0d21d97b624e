"""torch.compile and lower precision as options: the same mathematics, and a line where they cannot be had."""

import warnings
from collections.abc import Generator

import pytest
import torch
from support.pde_plus import in_stages
from torch import nn
from torch._inductor import config as inductor
from torch._inductor.utils import fresh_cache
from torch.nn import functional as F

import pdeplus as pp
from pdeplus.augment.identity import Identity
from pdeplus.core.network import compile_network
from pdeplus.data.base import Batch
from pdeplus.errors import UserError
from pdeplus.evaluation.tested_models import fast_copy
from pdeplus.functional import coverage_nll
from pdeplus.methods.base import views_of

pytestmark = pytest.mark.filterwarnings(  # of torch's own tracing
    "ignore:The .grad attribute of a Tensor:UserWarning", "ignore:.torch.jit:DeprecationWarning"
)

SMALL = ["model.width=4", "data.size=8", "train.epochs=1", "train.limit=60", "train.batch_size=27"]


def small_net() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Conv2d(3, 8, 3, padding=1),
        nn.BatchNorm2d(8),
        nn.ReLU(),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(8, 4),
    )


def losses(net: nn.Module, steps: int = 4) -> list[float]:
    """Of training in double precision, diffused where the network has ADD blocks."""
    x = torch.rand(6, 3, 8, 8, generator=torch.Generator().manual_seed(1)).double()
    optimizer, found = torch.optim.SGD(net.parameters(), 0.1), list[float]()
    noise = torch.Generator().manual_seed(2)
    for _ in range(steps):
        with pp.diffusion(net, generator=noise):
            loss = F.cross_entropy(net(x), torch.arange(6) % 4)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        found.append(loss.item())
    return found


@pytest.fixture
def noisy() -> nn.Module:
    return pp.add_diffusion(small_net(), ["2"], torch.rand(2, 3, 8, 8)).double().train()


@pytest.fixture
def without_compiler() -> Generator[None]:
    torch._dynamo.reset()
    with fresh_cache(), inductor.patch({"cpp.cxx": ("no-such-compiler",)}):
        yield


def test_a_compiled_network_learns_the_same(noisy):
    weights = {name: value.clone() for name, value in noisy.state_dict().items()}
    plain = losses(noisy)
    noisy.load_state_dict(weights)
    with warnings.catch_warnings():  # a machine without a C++ compiler runs it as it is, and says so
        warnings.filterwarnings("ignore", "torch.compile failed", UserWarning)
        compile_network(noisy)
        compiled = losses(noisy)
    assert compiled == pytest.approx(plain, abs=1e-12)
    assert plain[-1] < plain[0]
    assert set(noisy.state_dict()) == set(weights)


def test_without_a_compiler_it_runs_as_it_is_and_says_so(noisy, without_compiler):
    weights = {name: value.clone() for name, value in noisy.state_dict().items()}
    plain = losses(noisy, 2)
    noisy.load_state_dict(weights)
    compile_network(noisy)
    with pytest.warns(UserWarning, match="torch.compile failed, the network runs without it") as told:
        assert losses(noisy, 2) == plain
    assert all("\n" not in str(one.message) for one in told)


def test_a_compiled_copy_predicts_the_same():
    net, x = small_net().eval(), torch.rand(5, 3, 8, 8)
    with warnings.catch_warnings(), torch.inference_mode():
        warnings.filterwarnings("ignore", "torch.compile failed", UserWarning)
        fast = fast_copy(net, x[:2], compile=True)
        assert (fast(x) - net(x)).abs().max() < 1e-6


def test_a_run_compiles_its_network(tmp_path, without_compiler):
    """Where it cannot, so that no minute goes into it here."""
    chosen = [*SMALL, "method.name=erm", "model.name=plain_cnn", "train.compile=true"]
    with pytest.warns(UserWarning, match="torch.compile failed"):
        run = pp.train(pp.load_config("demo", chosen), tmp_path / "run")
    assert run.finished


def test_second_derivatives_leave_compiling_out(tmp_path):
    chosen = [*SMALL, "method.name=grad_reg", "model.name=plain_cnn"]
    plain = pp.train(pp.load_config("demo", chosen), tmp_path / "plain")
    with pytest.warns(UserWarning, match="train.compile=true is ignored: the method differentiates twice"):
        run = pp.train(pp.load_config("demo", [*chosen, "train.compile=true"]), tmp_path / "run")
    assert run.metrics[0]["loss/task"] == plain.metrics[0]["loss/task"]


@pytest.mark.filterwarnings("ignore:.*no better than chance:UserWarning")
def test_what_cannot_be_compiled_is_told_in_an_evaluation():
    net = small_net().eval()
    given = (torch.randint(0, 256, (6, 3, 8, 8), dtype=torch.uint8), torch.arange(6) % 4)
    with pytest.warns(UserWarning, match="ignored: the model is not a torch module"):
        pp.evaluate(lambda x: net(x), "clean", data=given, compile=True)
    net.held = (value for value in ())  # a generator cannot be copied
    with pytest.warns(UserWarning, match="ignored: the network cannot be copied"):
        fast_copy(net, torch.rand(2, 3, 8, 8), compile=True)


@pytest.mark.filterwarnings("ignore:torch.compile failed:UserWarning", "ignore:.*no better than chance:UserWarning")
def test_an_evaluation_compiles_its_network():
    given = (torch.randint(0, 256, (6, 3, 8, 8), dtype=torch.uint8), torch.arange(6) % 4)
    plain, compiled = (pp.evaluate(small_net().eval(), "clean", data=given, compile=how)[0] for how in (False, True))
    assert compiled.nll == pytest.approx(plain.nll, abs=1e-6)
    assert fast_copy(small_net(), torch.rand(2, 3, 8, 8), compile=True)._compiled_call_impl is not None


@pytest.mark.parametrize("precision", [torch.bfloat16, torch.float16])
def test_coverage_is_computed_in_32_bits_under_autocast(precision):
    method = in_stages(placement=("2",), augmentor=Identity())
    x = torch.rand(6, 3, 8, 8, generator=torch.Generator().manual_seed(1))
    net = method.prepare(small_net(), x).train()
    with torch.autocast("cpu", precision):
        with pp.diffusion(net, local=True) as trace:
            net(x)
        with torch.no_grad(), pp.diffusion(net, active=False) as twin:
            net(x.flip(0))
        found = method.coverage(twin, trace)
    assert trace.means[0].dtype == precision
    exact = coverage_nll(twin.means[0].double(), trace.means[0].double(), trace.scales[0].double())
    assert found.dtype == torch.float32
    assert found.item() == pytest.approx(exact.item(), rel=1e-5)


def test_lower_precision_learns_much_the_same(tmp_path):
    runs = [pp.train(pp.load_config("demo", [*SMALL, f"train.precision={p}"]), tmp_path / p) for p in ("bf16", "fp32")]
    low, full = (run.metrics[0] for run in runs)
    assert low["loss/task"] == pytest.approx(full["loss/task"], rel=0.02)
    assert low["loss/task"] != full["loss/task"]


@pytest.mark.skipif(torch.cuda.is_available(), reason="a GPU has half precision")
def test_half_precision_is_refused_where_there_is_none(tmp_path):
    with pytest.raises(UserError, match="train.precision=fp16 needs a GPU; use bf16 or fp32"):
        pp.train(pp.load_config("demo", [*SMALL, "train.precision=fp16"]), tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_batches_keep_their_precision():
    """Augmentation under autocast would round images to 8 bits' worth of mantissa."""
    x = torch.rand(6, 3, 8, 8, generator=torch.Generator().manual_seed(1))
    stream = torch.Generator().manual_seed(0)
    batch = Batch(x, torch.arange(6) % 4, lambda images, generator: images * 1.0, stream)
    with torch.autocast("cpu", torch.bfloat16):
        original, similar = views_of(batch, Identity())
    assert torch.equal(original, x)
    assert torch.equal(similar, x)
