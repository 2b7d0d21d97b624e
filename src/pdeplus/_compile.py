"""torch.compile as an option that never stops the work: what it cannot compile runs as it is, and one line says so."""

import textwrap
import warnings
from collections.abc import Callable, Sequence
from typing import Any, cast, final

from torch import Tensor, nn
from torch.fx import GraphModule

Graph = Callable[..., Any]


def compile_network(net: nn.Module) -> None:
    """From now on calls of `net` are compiled, anew for each shape; names, weights and copies stay as they are."""
    net.compile(backend=_InductorOrPlain(), dynamic=False)


@final
class _InductorOrPlain:
    """torch's own compiler until it fails, from then on the graph itself."""

    failed = False

    def __call__(self, graph: GraphModule, inputs: Sequence[Tensor]) -> Graph:
        from torch._dynamo import lookup_backend

        if self.failed:
            return graph.forward
        try:
            return cast(Graph, lookup_backend("inductor")(graph, list(inputs)))
        except Exception as error:  # no C++ compiler, an operation it does not know, a defect of its own
            self.failed = True
            reason = textwrap.shorten(str(error), 160, placeholder=" …")
            warnings.warn(f"torch.compile failed, the network runs without it: {reason}", stacklevel=2)
            return graph.forward
