"""What can be done to any network: evaluate it, read its logits, find and change modules by name, lay out, compile."""

import threading
import warnings
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from difflib import get_close_matches
from functools import partial
from typing import Any, cast, final

import torch
from torch import Tensor, nn
from torch.fx import GraphModule

from ..errors import UserError, reason_of

Change = Callable[[Tensor], Tensor]
"""From the features at some place to what replaces them."""
INPUT = ""
"""Names the network's input among the places."""
SAFE_ROW = 32
"""Pixels: on longer rows `step_by_indexing` is needed. Where it is not, trained bits stay as they were."""
_lock = threading.Lock()
_evaluating: dict[nn.Module, tuple[int, list[nn.Module]]] = {}
"""Networks some thread is evaluating: how many contexts are open, and which modules to put back."""


@contextmanager
def evaluating(net: nn.Module) -> Generator[None]:
    """Eval mode within; when the last of a network's contexts closes, each module is in its old mode."""
    with _lock:
        open_contexts, training = _evaluating.get(net, (0, [m for m in net.modules() if m.training]))
        _evaluating[net] = open_contexts + 1, training
        for module in training:
            module.training = False
    try:
        yield
    finally:
        with _lock:
            open_contexts, training = _evaluating.pop(net)
            if open_contexts > 1:
                _evaluating[net] = open_contexts - 1, training
            else:
                for module in training:
                    module.training = True


def device_of(net: nn.Module) -> torch.device:
    """Where its parameters are; the CPU for a network that has none."""
    return next((parameter.device for parameter in net.parameters()), torch.device("cpu"))


def logits_of(output: Any) -> Tensor:
    """The logits of a network's output: the tensor itself, or its `.logits` (Hugging Face)."""
    logits = getattr(output, "logits", output)
    if not isinstance(logits, Tensor):
        raise UserError(f"the network returns {type(output).__name__}; a tensor or .logits is needed")
    return logits


def find_modules(net: nn.Module, after: Sequence[str]) -> dict[str, nn.Module]:
    """The named modules; an unknown name is answered with its neighbours."""
    modules: dict[str, nn.Module] = dict(net.named_modules())  # type: ignore[reportUnknownArgumentType]
    if isinstance(after, str) or not after:
        raise UserError(f"after={after!r} must be a list of at least one module name")
    for name in after:
        if name not in modules or not name:
            near = get_close_matches(name, modules, 5, 0.3) or [n for n in modules if n][:8]
            raise UserError(f"after: the model has no module {name!r}; among its modules: {', '.join(near)}")
    return {name: modules[name] for name in after}


def output_shapes(net: nn.Module, after: Sequence[str], example: Tensor | Mapping[str, Any]) -> dict[str, torch.Size]:
    """The shape of each named module's output for the example; refuses what is no tensor."""
    outputs = outputs_of(net, find_modules(net, after), example)
    for name in after:
        if name not in outputs:
            raise UserError(f"after: module {name!r} was not called for the example")
        if not isinstance(outputs[name], Tensor):
            kind = type(outputs[name]).__name__
            raise UserError(f"after: module {name!r} returns a {kind}, not a tensor; name a module within it")
    return {name: output.shape for name, output in outputs.items()}


def outputs_of(net: nn.Module, modules: Mapping[str, nn.Module], example: Tensor | Mapping[str, Any]) -> dict[str, Any]:
    """What each of these modules within `net` returns for an example, in the order of their calls, in eval mode."""
    found = dict[str, Any]()

    def note(module: nn.Module, args: Any, output: Any, name: str) -> None:
        found[name] = output

    with ExitStack() as stack:
        for name, module in modules.items():
            stack.callback(module.register_forward_hook(partial(note, name=name)).remove)
        run_example(net, example)
    return found


@torch.no_grad()
def run_example(net: nn.Module, example: Tensor | Mapping[str, Any]) -> None:
    """One pass of an input, or of a mapping of keyword inputs, in eval mode."""
    with evaluating(net):
        net(**example) if isinstance(example, Mapping) else net(example)


def memory_layout(
    net: nn.Module, channels_last: bool, device: torch.device, precision: str = "fp32"
) -> torch.memory_format:
    """Channels-last if wanted, but on a CPU never for 1×1 convolutions of fewer than 8 channels, nor narrow bf16.

    The weight gradient of such a convolution (4 to 8 channels, torch 2.13, AVX2) can wait for ever.
    """
    points = any(isinstance(m, nn.Conv2d) and m.kernel_size == (1, 1) and m.in_channels < 8 for m in net.modules())
    unsafe = device.type == "cpu" and (points or (precision == "bf16" and is_narrow(net)))
    return torch.channels_last if channels_last and not unsafe else torch.contiguous_format


def is_narrow(net: nn.Module) -> bool:
    """Whether a convolution has fewer than 16 channels: in bf16, channels-last and two threads, torch 2.13 crashes."""
    return any(isinstance(m, nn.Conv2d) and m.out_channels < 16 for m in net.modules())


def step_by_indexing(net: nn.Module) -> None:
    """Let 1×1 convolutions of fewer than 16 channels see the pixels they would step to, and step by one: the same sums.

    In channels-last memory on a CPU, torch 2.13 (oneDNN, AVX-512) crashes at their weight gradient where they step by
    two on rows of 48 pixels or more.
    """
    for m in net.modules():
        if not (isinstance(m, nn.Conv2d) and m.kernel_size == (1, 1) and m.in_channels < 16):
            continue
        if m.stride != (1, 1) and m.padding in ((0, 0), "valid"):
            m.register_forward_pre_hook(partial(_stepped, down=m.stride[0], across=m.stride[1]))
            m.stride = (1, 1)


def _stepped(module: nn.Module, given: tuple[Tensor], down: int, across: int) -> tuple[Tensor]:
    return (given[0][..., ::down, ::across],)


@contextmanager
def changing(net: nn.Module, changes: Mapping[str, Change]) -> Generator[None]:
    """Within this context the output of each named module, or the network's input, is what its change makes of it.

    Changes come after the diffusion of an ADD block at the same place. The network is afterwards as before.
    """
    names = [name for name in changes if name != INPUT]
    with ExitStack() as stack:
        for name, module in (find_modules(net, names) if names else {}).items():
            stack.callback(module.register_forward_hook(_on_output(changes[name])).remove)
        if INPUT in changes:
            # before the network's own hooks: it may normalise its input
            change = changes[INPUT]
            handle = net.register_forward_pre_hook(lambda module, args: (change(args[0]), *args[1:]), prepend=True)
            stack.callback(handle.remove)
        yield


def _on_output(change: Change) -> Callable[[nn.Module, Any, Tensor], Tensor]:
    return lambda module, args, output: change(output)


def compile_network(net: nn.Module) -> None:
    """From now on calls of `net` are compiled, anew for each shape; names, weights and copies stay as they are."""
    net.compile(backend=_InductorOrPlain(), dynamic=False)


@final
class _InductorOrPlain:
    """torch's own compiler until it fails, from then on the graph itself."""

    failed = False

    def __call__(self, graph: GraphModule, inputs: Sequence[Tensor]) -> Callable[..., Any]:
        from torch._dynamo import lookup_backend

        if self.failed:
            return graph.forward
        try:
            return cast(Callable[..., Any], lookup_backend("inductor")(graph, list(inputs)))
        except Exception as error:  # no C++ compiler, an operation it does not know, a defect of its own
            self.failed = True
            reason = reason_of(error, 160)
            warnings.warn(f"torch.compile failed, the network runs without it: {reason}", stacklevel=2)
            return graph.forward
