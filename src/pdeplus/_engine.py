"""The one place that knows Hugging Face accelerate: processes, device, mixed precision, backward, clipping."""

import atexit
import os
from collections.abc import Generator, Sequence
from contextlib import contextmanager, nullcontext
from importlib import import_module
from typing import Any, cast, final

import torch
from torch import Tensor, nn
from torch import distributed as dist
from torch.optim import Optimizer

from ._errors import UserError
from ._processes import Processes
from ._sync_norm import SyncBatchNorm


def join() -> Processes:
    """The processes that a launcher started with this one, each on a device of its own: GPUs over NCCL, CPUs over gloo.

    Only where there are several does this wait, until all have come.
    """
    world = int(os.environ.get("WORLD_SIZE", "1"))
    if world == 1:
        return Processes()
    for name in ("RANK", "LOCAL_RANK", "MASTER_ADDR", "MASTER_PORT"):
        if name not in os.environ:
            way_out = "start them with torchrun or accelerate launch, or unset WORLD_SIZE"
            raise UserError(f"WORLD_SIZE={world} asks for {world} processes but {name} is not set; {way_out}")
    from accelerate import PartialState

    import_module("torch.distributed.nn")  # before there is a group: else its functions' defaults hold it to the end
    cpu = not torch.cuda.is_available()
    state: Any = PartialState(cpu=cpu, backend="gloo" if cpu else None)
    atexit.unregister(_end_gloo)
    atexit.register(_end_gloo)
    return Processes(rank=state.process_index, world=state.num_processes, device=state.device)


def _end_gloo() -> None:
    """End gloo's threads while Python is still there: one that lets go of a tensor later aborts the process."""
    if dist.is_initialized() and dist.get_backend() == "gloo":
        dist.destroy_process_group()


@final
class Engine:
    """Where and in which precision the work is done, and by how many."""

    def __init__(self, precision: str, *, sync_batch_norm: bool = False) -> None:
        from accelerate import Accelerator
        from accelerate.state import AcceleratorState

        self.processes = join()
        self.sync_batch_norm = sync_batch_norm and self.processes.world > 1
        AcceleratorState._reset_state()  # type: ignore[reportPrivateUsage]  # else the first run's precision stays
        if precision == "fp16" and not torch.cuda.is_available():
            raise UserError("train.precision=fp16 needs a GPU; take bf16 or fp32")
        self._accelerator: Any = Accelerator(mixed_precision="no" if precision == "fp32" else precision)

    @property
    def device(self) -> torch.device:
        """Where tensors live."""
        return cast(torch.device, self._accelerator.device)

    @contextmanager
    def forward(self) -> Generator[None]:
        """Within it, forward passes run in the chosen precision, and BatchNorm over the chosen processes."""
        with self._accelerator.autocast(), SyncBatchNorm(self.processes) if self.sync_batch_norm else nullcontext():
            yield

    def wrap(self, optimizer: Optimizer) -> Optimizer:
        """The optimiser, made to step in the chosen precision."""
        return cast(Optimizer, self._accelerator.prepare_optimizer(optimizer))

    def backward(self, loss: Tensor, inputs: Sequence[nn.Parameter] | None) -> None:
        """Add the loss's gradient to `.grad` of `inputs`, or of every parameter it depends on."""
        self._accelerator.backward(loss, inputs=inputs)

    def clip(self, parameters: Sequence[nn.Parameter], norm: float) -> None:
        """Scale the gradients so that their joint norm is at most `norm`."""
        self._accelerator.clip_grad_norm_(parameters, norm)
