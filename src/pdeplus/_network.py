"""Small helpers for any network."""

from collections.abc import Generator
from contextlib import contextmanager
from typing import Any

from torch import Tensor, nn

from ._errors import UserError


@contextmanager
def evaluating(net: nn.Module) -> Generator[None]:
    """Eval mode within; afterwards each module is in the mode it was in."""
    training = [module for module in net.modules() if module.training]
    for module in training:
        module.training = False
    try:
        yield
    finally:
        for module in training:
            module.training = True


def logits_of(output: Any) -> Tensor:
    """The logits of a network's output: the tensor itself, or its `.logits` (Hugging Face)."""
    logits = getattr(output, "logits", output)
    if not isinstance(logits, Tensor):
        raise UserError(f"the network returns {type(output).__name__}; a tensor or .logits is needed")
    return logits
