"""An image-to-image network for DeepAugment where none has been trained: random features, the last layer fitted."""

import atexit
import shutil
import tempfile
from functools import cache
from pathlib import Path
from typing import cast

import torch
from torch import Tensor
from torch.nn import functional as F

from .._seeds import generator_for
from ..augment._image_network import Weights, initial_weights, reconstruct, save

WIDTH, BLOCKS, TAPS = 24, 4, 9
RIDGE = 1e-3
PICTURES, SIDE = 16, 24
COARSENESS = (2, 5, 12, 24)


@cache
def made_network_file(channels: int) -> str:
    """A file with the weights of `made_network`, kept as long as the process runs."""
    folder = Path(tempfile.mkdtemp(prefix="pdeplus-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    save(made_network(channels), folder / "made.safetensors")
    return str(folder / "made.safetensors")


def made_network(channels: int) -> Weights:
    """Weights that reconstruct pictures of any kind within about a hundredth; the same on every call.

    The layers but the last are random; the last is the least-squares fit that gives made pictures back.
    """
    generator = generator_for(0, "made network")
    weights, pictures = initial_weights(channels, WIDTH, BLOCKS, generator), made_pictures(channels, generator)
    columns = WIDTH * TAPS
    unfold = {"decode.weight": torch.eye(columns).view(columns, WIDTH, 3, 3), "decode.bias": torch.zeros(columns)}
    patches, wanted = (_rows(x) for x in (reconstruct(weights | unfold, pictures), pictures))
    inputs = F.pad(patches, (0, 1), value=1.0)  # a column for the bias
    square = inputs.T @ inputs + RIDGE * len(inputs) * torch.eye(columns + 1)
    solved = cast(Tensor, torch.linalg.solve(square, inputs.T @ wanted)).float()
    kernel, bias = solved[:-1], solved[-1]
    return weights | {"decode.weight": kernel.T.reshape(channels, WIDTH, 3, 3), "decode.bias": bias}


def made_pictures(channels: int, generator: torch.Generator) -> Tensor:
    """Random pictures in [0, 1], N×C×H×W, each its own mixture of coarse and fine structure."""
    shares = torch.rand(len(COARSENESS), PICTURES, 1, 1, 1, generator=generator)
    grids = (torch.rand(PICTURES, channels, cells, cells, generator=generator) for cells in COARSENESS)
    layers = torch.stack([F.interpolate(grid, size=(SIDE, SIDE), mode="bicubic") for grid in grids])
    mean = (layers * shares / shares.sum(0)).sum(0)
    return (0.5 + 2 * (mean - 0.5)).clamp(0, 1)  # a mean of several has lost contrast


def _rows(x: Tensor) -> Tensor:
    """N×C×H×W → one row of C numbers for each pixel."""
    return x.movedim(1, -1).flatten(0, 2).double()
