"""The one place that knows Hugging Face accelerate: device, mixed precision, backward, clipping."""

import os
from collections.abc import Sequence
from contextlib import AbstractContextManager
from typing import Any, cast, final

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from ._errors import UserError


@final
class Engine:
    """Where and in which precision the work is done."""

    def __init__(self, precision: str) -> None:
        from accelerate import Accelerator
        from accelerate.state import AcceleratorState

        AcceleratorState._reset_state()  # type: ignore[reportPrivateUsage]  # else the first run's precision stays
        if int(os.environ.get("WORLD_SIZE", "1")) > 1:
            raise UserError("training in several processes is not supported yet; start one process")
        self._accelerator: Any = Accelerator(mixed_precision="no" if precision == "fp32" else precision)

    @property
    def device(self) -> torch.device:
        """Where tensors live."""
        return cast(torch.device, self._accelerator.device)

    def autocast(self) -> AbstractContextManager[None]:
        """Within it, forward passes run in the chosen precision."""
        return self._accelerator.autocast()

    def wrap(self, optimizer: Optimizer) -> Optimizer:
        """The optimiser, made to step in the chosen precision."""
        return cast(Optimizer, self._accelerator.prepare_optimizer(optimizer))

    def backward(self, loss: Tensor, inputs: Sequence[nn.Parameter] | None) -> None:
        """Add the loss's gradient to `.grad` of `inputs`, or of every parameter it depends on."""
        self._accelerator.backward(loss, inputs=inputs)

    def clip(self, parameters: Sequence[nn.Parameter], norm: float) -> None:
        """Scale the gradients so that their joint norm is at most `norm`."""
        self._accelerator.clip_grad_norm_(parameters, norm)
