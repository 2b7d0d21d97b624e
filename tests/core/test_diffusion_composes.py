"""A diffused network is a plain module to copies, threads, torch.compile, torch.export and DDP."""

import copy
import io
import threading

import pytest
import torch
from conftest import STAGES
from torch import nn

import pdeplus as pp
from pdeplus.core.surgery import add_blocks_of


def test_copies_pickles_and_threads_are_independent(net, x):
    changed = pp.add_diffusion(net, STAGES, x)
    twin = copy.deepcopy(changed)
    buffer = io.BytesIO()
    torch.save(changed, buffer)
    buffer.seek(0)
    loaded = torch.load(buffer, weights_only=False)
    with torch.no_grad(), pp.diffusion(changed):
        assert not torch.equal(changed(x), net(x))
        assert torch.equal(twin(x), net(x))
        assert torch.equal(loaded(x), net(x))
        answers = []
        thread = threading.Thread(target=lambda: answers.append(torch.equal(changed(x), net(x))))
        thread.start()
        thread.join()
        assert answers == [True]  # this thread has no context open
        with pp.diffusion(twin):
            assert not torch.equal(twin(x), net(x))
            assert not torch.equal(changed(x), net(x))
    with pp.diffusion(loaded) as trace:
        loaded(x)
    assert trace.names == STAGES
    add_blocks_of(twin)[0].body[-1].bias.data.fill_(9)
    with torch.no_grad(), pp.diffusion(twin) as trace:
        twin(x)
    assert trace.scales[0].min() > 8  # the copy's hook leads to the copy's block


def test_threads_may_predict_with_a_network_in_train_mode(net, x):
    changed = pp.add_diffusion(net, STAGES, x).train()
    statistics = changed.bn1.running_mean.clone()
    expected, wrong = net(x).softmax(-1), []

    def work():
        for _ in range(20):
            if not torch.allclose(pp.predict(changed, x, samples=0), expected, atol=1e-6):
                wrong.append(1)

    threads = [threading.Thread(target=work) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong
    assert torch.equal(changed.bn1.running_mean, statistics)
    assert all(module.training for module in changed.modules())


def test_compile_needs_no_graph_break_and_no_recompilation(net, x):
    from torch._dynamo.testing import CompileCounter

    changed = pp.add_diffusion(net, STAGES, x)
    torch._dynamo.reset()
    counter = CompileCounter()
    compiled = torch.compile(changed, fullgraph=True, backend=counter)
    with torch.no_grad():
        for _ in range(4):
            assert torch.equal(compiled(x), net(x))
            with pp.diffusion(changed) as trace:
                assert not torch.equal(compiled(x), net(x))
            assert [s.shape for s in trace.scales] == [m.shape for m in trace.means]
    assert counter.frame_count == 2


def test_compiled_network_draws_from_a_generator_too(net, x):
    changed = pp.add_diffusion(net, STAGES, x)
    torch._dynamo.reset()
    compiled = torch.compile(changed, backend="eager")
    a, b = (pp.predict(compiled, x, samples=2, generator=torch.Generator().manual_seed(1)) for _ in range(2))
    assert torch.equal(a, b)


@pytest.mark.parametrize("strict", [True, False])
@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning")
def test_export_gives_the_plain_network(net, x, strict):
    changed = pp.add_diffusion(net, STAGES, x)
    exported = torch.export.export(changed, (x,), strict=strict)
    assert torch.allclose(exported.module()(x), net(x), atol=1e-6)


def test_data_parallel_wrapper_keeps_trace_and_gradients(net, x, tmp_path):
    import torch.distributed as dist

    dist.init_process_group("gloo", init_method=f"file://{tmp_path}/rendezvous", rank=0, world_size=1)
    try:
        changed = pp.add_diffusion(net, STAGES, x).train()
        wrapped = nn.parallel.DistributedDataParallel(changed)
        with pp.diffusion(wrapped) as trace:
            wrapped(x).sum().backward()
        assert trace.names == STAGES
        assert all(p.grad is not None for p in changed.parameters())
    finally:
        dist.destroy_process_group()
