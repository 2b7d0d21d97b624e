"""The processes that train one network together, and what they tell each other.

A launcher (torchrun, accelerate launch) starts them all with the same command. In a process that is alone nothing
here waits for anything, and torch.distributed is not needed.
"""

import time
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any, NoReturn, TypeVar, cast, final

import torch
from torch import Tensor, nn
from torch import distributed as dist

from ._errors import RunFailed, Stopped, UserError

T = TypeVar("T")
LOST = "another process of this job ended"
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

    def average(self, tensors: Sequence[Tensor]) -> None:
        """Put the mean over all processes into each tensor, in place."""
        if self.world == 1 or not tensors:
            return
        mean = self.sum(torch.cat([t.detach().flatten() for t in tensors])).div_(self.world)
        _put(mean, tensors)

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


@torch.no_grad()
def _put(flat: Tensor, tensors: Sequence[Tensor]) -> None:
    start = 0
    for tensor in tensors:
        tensor.copy_(flat[start : start + tensor.numel()].view(tensor.shape))
        start += tensor.numel()


@contextmanager
def _losing() -> Generator[None]:
    """Within it an exchange that fails, as it does when its partner is gone, raises `ProcessLost`."""
    try:
        yield
    except RuntimeError as error:
        raise ProcessLost(LOST) from error
