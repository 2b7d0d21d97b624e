"""Features changed on their way through a network, for the length of a context."""

from collections.abc import Callable, Generator, Mapping
from contextlib import ExitStack, contextmanager
from typing import Any

from torch import Tensor, nn

from ._network import find_modules

Change = Callable[[Tensor], Tensor]
INPUT = ""
"""Names the network's input among the places."""


@contextmanager
def changing(net: nn.Module, changes: Mapping[str, Change]) -> Generator[None]:
    """Within this context the output of each named module, or the network's input, is what its change makes of it.

    Changes come after the diffusion of an ADD block at the same place. The network is afterwards as before.
    """
    named = find_modules(net, [name for name in changes if name != INPUT]) if set(changes) - {INPUT} else {}
    with ExitStack() as stack:
        for name, module in named.items():
            handle = module.register_forward_hook(_on_output(changes[name]))
            stack.callback(handle.remove)
        if INPUT in changes:
            handle = net.register_forward_pre_hook(_on_input(changes[INPUT]))
            stack.callback(handle.remove)
        yield


def _on_output(change: Change) -> Callable[[nn.Module, Any, Tensor], Tensor]:
    return lambda module, args, output: change(output)


def _on_input(change: Change) -> Callable[[nn.Module, tuple[Any, ...]], tuple[Any, ...]]:
    return lambda module, args: (change(args[0]), *args[1:])
