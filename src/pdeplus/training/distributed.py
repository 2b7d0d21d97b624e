"""The processes that train one network together, and what they tell each other.

A launcher (torchrun) starts them all with the same command. In a process that is alone nothing
here waits for anything, and torch.distributed is not needed.
"""

import atexit
import os
import time
from collections.abc import Callable, Generator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from dataclasses import dataclass
from importlib import import_module
from typing import Any, NoReturn, TypeVar, cast, final

import torch
from torch import Tensor, nn
from torch import distributed as dist
from torch.optim import Optimizer

from ..errors import RunFailed, Stopped, UserError

T = TypeVar("T")
LET_MAIN_SPEAK = 1.0
"""Seconds: a launcher ends all processes as soon as one has ended, the main one perhaps before it has said why."""


@final
class ProcessLost(RunFailed):
    """Another process of the job ended, so that this one cannot go on."""


@final
@dataclass(frozen=True, kw_only=True)
class Processes:
    """All processes of a job, seen from one of them. What sums and averages give has the same bits in each."""

    rank: int = 0
    world: int = 1
    device: torch.device = torch.device("cpu")
    """Where this process's tensors live."""

    @property
    def main(self) -> bool:
        """Whether this is the one that writes and speaks."""
        return self.rank == 0

    @property
    def stream(self) -> tuple[int, ...]:
        """What tells this process's random streams from the others'; nothing where it is alone."""
        return (self.rank,) if self.world > 1 else ()

    def share(self, indices: Tensor) -> Tensor:
        """This process's part of a batch; the parts differ by one at the most and make up the whole."""
        return indices.tensor_split(self.world)[self.rank]

    def sum(self, values: Tensor) -> Tensor:
        """The sum over all processes."""
        if self.world == 1:
            return values
        total = values.detach().clone(memory_format=torch.contiguous_format)
        with _losing():
            dist.all_reduce(total)
        return total

    def any(self, *flags: bool) -> tuple[bool, ...]:
        """Of each flag, whether it is raised in any process."""
        if self.world == 1:
            return flags
        raised = self.sum(torch.tensor(flags, dtype=torch.float32, device=self.device))
        return tuple(bool(count) for count in raised)

    @torch.no_grad()
    def average(self, tensors: Sequence[Tensor]) -> None:
        """Put the mean over all processes into each tensor, in place."""
        if self.world == 1 or not tensors:
            return
        mean = self.sum(torch.cat([t.detach().flatten() for t in tensors])).div_(self.world)
        for tensor, values in zip(tensors, torch.split(mean, [t.numel() for t in tensors]), strict=True):
            tensor.copy_(values.view(tensor.shape))

    def average_gradients(self, parameters: Sequence[nn.Parameter]) -> None:
        """Put the mean over all processes into each `.grad`, by one exchange.

        A gradient that this process lacks counts as zero; one that all of them lack stays missing.
        """
        if self.world == 1:
            return
        lacking = [p for p in parameters if p.grad is None]
        present = torch.tensor([p.grad is not None for p in parameters], dtype=torch.float32, device=self.device)
        for p in lacking:
            p.grad = torch.zeros_like(p)
        gradients = [cast(Tensor, p.grad) for p in parameters]
        self.average([present, *gradients])
        if lacking:
            for p, share in zip(parameters, present, strict=True):
                p.grad = p.grad if bool(share) else None

    @torch.no_grad()
    def copy_main(self, tensors: Sequence[Tensor]) -> None:
        """Put the main process's values into each tensor, in place."""
        for tensor in tensors if self.world > 1 else ():
            sent = tensor.detach().contiguous()
            with _losing():
                dist.broadcast(sent, 0)
            tensor.copy_(sent)

    def on_main(self, work: Callable[[], T]) -> T:
        """Do `work` in the main process alone and hand its result to all, who wait for it; where it fails, all end."""
        if self.world == 1:
            return work()
        result, failure = _attempt(work) if self.main else (None, None)
        told: list[Any] = [result, failure]
        with _losing():
            dist.broadcast_object_list(told, 0)
        if told[1] is not None:
            self._fail(told[1])
        return cast(T, told[0])

    def together(self, work: Callable[[], T]) -> T:
        """Do `work`, which must not talk to other processes, in every one of them; where it fails in any, all end."""
        if self.world == 1:
            return work()
        result, failure = _attempt(work)
        failures: list[Exception | None] = [None] * self.world
        with _losing():
            dist.all_gather_object(failures, failure)
        for rank, error in enumerate(failures):
            if error is not None:
                self._fail(error if rank == 0 else type(error)(f"process {rank}: {error}"))
        return cast(T, result)

    def first(self, text: str | None) -> str | None:
        """The text of the first process that has one."""
        texts = [text] * self.world
        if self.world > 1:
            with _losing():
                dist.all_gather_object(texts, text)
        return next((each for each in texts if each is not None), None)

    @contextmanager
    def one_voice(self) -> Generator[None]:
        """Within it the main process alone says how a run ended that ends in all: the others exit with its code."""
        try:
            yield
        except (RunFailed, Stopped, KeyboardInterrupt) as error:
            if self.main or isinstance(error, ProcessLost):
                raise
            _exit_after_main(1 if isinstance(error, RunFailed) else 0 if isinstance(error, Stopped) else 130)

    def _fail(self, error: Exception) -> NoReturn:
        if self.main:
            raise error
        _exit_after_main(1 if isinstance(error, RunFailed) else 2)


def _attempt(work: Callable[[], T]) -> tuple[T | None, Exception | None]:
    """What `work` gives, or the error that a user is told of."""
    try:
        return work(), None
    except (UserError, RunFailed, OSError) as error:
        return None, error


def _exit_after_main(code: int) -> NoReturn:
    with suppress(Stopped, KeyboardInterrupt):  # of a launcher that ends those who are left
        time.sleep(LET_MAIN_SPEAK)
    raise SystemExit(code)


@contextmanager
def _losing() -> Generator[None]:
    """Within it an exchange that fails, as it does when its partner is gone, raises `ProcessLost`."""
    try:
        yield
    except RuntimeError as error:
        raise ProcessLost("another process of this job ended") from error


def join(device: str = "auto") -> Processes:
    """The processes that a launcher started with this one, each on a device of its own: GPUs over NCCL, CPUs over gloo.

    Only where there are several does this wait, until all have come. One that is alone may be told its device.
    """
    way_out = "start them with torchrun, or unset WORLD_SIZE"
    world = os.environ.get("WORLD_SIZE") or "1"
    if world == "1":
        return Processes(device=_device() if device == "auto" else named_device(device))
    if device != "auto":
        raise UserError(f"train.device={device!r}: of {world} processes each has its own device; leave it at auto")
    for name in ("WORLD_SIZE", "RANK", "LOCAL_RANK", "MASTER_ADDR", "MASTER_PORT"):
        value = os.environ.get(name)
        if value is None:
            raise UserError(f"WORLD_SIZE={world} asks for {world} processes but {name} is not set; {way_out}")
        if name != "MASTER_ADDR" and not (value.isdecimal() and len(value) < 10):
            raise UserError(f"{name}={value} is not a number of processes or a port; {way_out}")
    if int(os.environ["RANK"]) >= int(world):
        raise UserError(f"RANK={os.environ['RANK']} must be below WORLD_SIZE={world}; {way_out}")
    own = _device(int(os.environ["LOCAL_RANK"]))
    if not dist.is_initialized():
        import_module("torch.distributed.nn")  # before there is a group: else its defaults hold it to the end
        dist.init_process_group("nccl" if own.type == "cuda" else "gloo")
        atexit.register(_end_gloo)
    return Processes(rank=dist.get_rank(), world=dist.get_world_size(), device=own)


def named_device(name: str) -> torch.device:
    """The device of this name; one that is not known, or not there, is refused."""
    try:
        device = torch.device(name)
        torch.empty(1, device=device)
    except Exception as error:  # torch raises all kinds for what it was not built with
        reason = str(error).partition("\n")[0]
        raise UserError(f"train.device={name!r} cannot be used: {reason}; use auto or cpu") from error
    return device


def _device(local_rank: int = 0) -> torch.device:
    """This process's own accelerator, or the CPU."""
    found = torch.accelerator.current_accelerator() if torch.accelerator.is_available() else None
    if found is None or found.type != "cuda":
        return found or torch.device("cpu")
    torch.cuda.set_device(local_rank)
    return torch.device("cuda", local_rank)


def _end_gloo() -> None:
    """End gloo's threads while Python is still there: one that lets go of a tensor later aborts the process."""
    if dist.is_initialized() and dist.get_backend() == "gloo":
        dist.destroy_process_group()


@final
class Engine:
    """Where and in which precision the work is done, and by how many."""

    def __init__(self, precision: str, device: str = "auto") -> None:
        self.processes = join(device)
        self.device = self.processes.device
        if precision == "fp16" and self.device.type != "cuda":
            raise UserError("train.precision=fp16 needs a GPU; use bf16 or fp32")
        self.precision = precision
        """fp32, bf16 or fp16; auto is fp32 until it is chosen."""
        self._scaler = torch.GradScaler(self.device.type, enabled=precision == "fp16")

    def forward(self) -> AbstractContextManager[Any]:
        """Within it, forward passes run in the chosen precision."""
        dtype = {"bf16": torch.bfloat16, "fp16": torch.float16}.get(self.precision)
        return nullcontext() if dtype is None else torch.autocast(self.device.type, dtype)

    def backward(self, loss: Tensor, inputs: Sequence[nn.Parameter] | None) -> None:
        """Add the loss's gradient to `.grad` of `inputs`, or of every parameter it depends on."""
        self._scaler.scale(loss).backward(inputs=inputs)

    def step(self, optimizers: Sequence[Optimizer], clip_norm: float) -> None:
        """Step with each; the gradient of each is first cut to a norm of `clip_norm`, unless that is 0.

        A gradient that two share is cut by the first, and again by the second if it has more.
        """
        for optimizer in optimizers:
            if clip_norm:
                self._scaler.unscale_(optimizer)
                nn.utils.clip_grad_norm_([p for g in optimizer.param_groups for p in g["params"]], clip_norm)
        for optimizer in optimizers:
            self._scaler.step(optimizer)
        self._scaler.update()


def synchronised(model: nn.Module, processes: Processes) -> nn.Module:
    """The model with BatchNorm over the batches of all processes together, which torch has for GPUs."""
    if processes.device.type != "cuda":
        way_out = "torch synchronises BatchNorm there alone; set it to false"
        raise UserError(f"train.sync_batch_norm=true needs GPUs: {way_out}")
    return nn.SyncBatchNorm.convert_sync_batchnorm(model)  # type: ignore[reportUnknownVariableType]
