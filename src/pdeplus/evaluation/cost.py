"""What a network costs: parameters and floating-point operations (a multiply and an add are two)."""

from collections import Counter
from collections.abc import Callable
from functools import partial
from typing import Any, final

import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.flop_counter import flop_registry

from .._lib.seeds import generator_for
from ..core.add_block import ADDBlock
from ..data.base import Batch
from ..methods.base import Method
from ..training.config import Config
from ..training.distributed import Engine
from ..training.loop import train_step
from ..training.optimizers import build_optimizers
from ..training.run_folder import Expects, build_network

TRIAL, USUAL = 4, 256
"""Images in the training step that is counted; twice as many for batches beyond the usual, of which a method may treat
a quarter in a way of its own."""


@final
class _Operations(TorchDispatchMode):
    """Counts within; torch's own counter also follows modules, and stumbles where part of a batch has no gradient."""

    def __init__(self) -> None:
        super().__init__()
        self.total = 0.0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        out = func(*args, **(kwargs or {}))
        count = flop_registry.get(func.overloadpacket)
        if func.overloadpacket is torch.ops.aten.convolution_backward:  # torch's own count forgets about groups
            gradient, x, weight, transposed, wanted = *args[:3], args[7], args[10]
            own = 2.0 * (x if transposed else gradient).numel() * weight[0].numel()
            self.total += own * sum(wanted[:2])  # each gradient takes as many operations as the convolution itself
        elif count is not None:
            self.total += count(*args, **(kwargs or {}), out_val=out)
        return out


def operations_of(work: Callable[[], object]) -> float:
    """Operations of one call, in matrix products and convolutions."""
    with _Operations() as counter:
        work()
    return counter.total


def parameters_used(net: nn.Module, samples: int) -> int:
    """Parameters that take part in predicting; without noise those of ADD blocks do not."""
    blocks = [module for module in net.modules() if isinstance(module, ADDBlock) and samples == 0]
    idle = {id(p) for block in blocks for p in block.parameters()}
    return sum(p.numel() for p in net.parameters() if id(p) not in idle)


def prediction_flops(predict: Callable[[Tensor], object], example: Tensor) -> float:
    """Operations that one image more costs, of matrix products and convolutions; `example` is 1×C×H×W."""
    with torch.no_grad():
        two, one = (operations_of(partial(predict, images)) for images in (torch.cat([example, example]), example))
    return two - one  # what a batch costs once is left out


def training_flops(config: Config, method: Method, expects: Expects, images: int) -> float:
    """Operations of learning from so many images, counted on one small step of a network like the run's."""
    net, train = build_network(config, method, expects), config.train
    net.train()
    trial = TRIAL if train.batch_size <= USUAL else 2 * TRIAL
    method = method.in_batches(trial, max(train.batch_size, trial))
    optimizers = build_optimizers(method, net, train)
    stream = generator_for(0, "cost")
    labels = torch.arange(trial) % len(expects.classes)

    def counted(size: tuple[int, int]) -> float:
        shape = (trial, expects.shape[0], *size)
        batch = Batch(torch.rand(shape, generator=stream), labels, lambda x, generator: x, stream)
        with torch.random.fork_rng():
            return operations_of(partial(train_step, net, method, batch, optimizers, Engine("fp32")))

    height, width = expects.shape[1:]
    sizes = Counter((train.side_in(i, height), train.side_in(i, width)) for i in range(train.epochs))
    mean = sum(counted(size) * epochs for size, epochs in sizes.items()) / train.epochs
    updates = sum(operations_of(optimizer.step) for optimizer in optimizers.values())  # Muon's; others have none
    return (mean - updates) / trial * images + updates * images / train.batch_size
