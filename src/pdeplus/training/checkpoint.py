"""Checkpoints that survive a power cut: written aside, checked by hash, renamed into place.

A checkpoint is a folder with weights.safetensors, state.pt (tensors and plain values; read with weights_only),
config.toml (that of the run when it was saved) and manifest.json (their SHA-256). Until the final rename it has a
temporary name, so a folder with a final name is whole; a damaged one is recognised by its hashes.
"""

import io
import json
import shutil
import warnings
from pathlib import Path

import torch
from safetensors.torch import load as parse_safetensors

from .._lib.files import encode_weights, sum_of, sync_folder, write_synced
from ..errors import UserError
from .session import Checkpoint

KEEP = 2
"""Checkpoints: the newest, and the one before it in case the newest is damaged."""


def save_checkpoint(folder: Path, step: int, checkpoint: Checkpoint) -> None:
    """Write a checkpoint; the ones before it stay until it is safe on disk, then all but two go."""
    buffer = io.BytesIO()
    torch.save(checkpoint.state, buffer)
    files = {"weights.safetensors": encode_weights(checkpoint.weights), "state.pt": buffer.getvalue()}
    if checkpoint.config is not None:
        files["config.toml"] = checkpoint.config
    hashes = {name: sum_of(data) for name, data in files.items()}
    files["manifest.json"] = json.dumps(hashes, indent=1).encode()
    final, temporary = folder / f"{step:09d}", folder / f"{step:09d}.tmp"
    try:
        _remove(temporary)
        temporary.mkdir(parents=True)
        for name, data in files.items():
            write_synced(temporary / name, data)
        sync_folder(temporary)
        _remove(final)
        temporary.rename(final)
        sync_folder(folder)
    except OSError as error:
        _remove(temporary)
        way_out = f"make room, then: pdeplus train --resume {folder.parent}"
        raise UserError(f"checkpoint {final}: {error.strerror}; the one before it is intact; {way_out}") from error
    older = [path for path in _steps(folder) if path.name < final.name]
    for path in folder.iterdir():  # what a killed process or a damaged later checkpoint left, and the too old
        ours = path.name.removesuffix(".tmp").isdigit()
        if ours and path != final and path not in older[-(KEEP - 1) :]:
            _remove(path)


def load_checkpoint(folder: Path) -> Checkpoint | None:
    """The newest checkpoint that is whole; warns of each damaged one it passes over."""
    steps = _steps(folder)
    for path in reversed(steps):
        try:
            hashes = json.loads((path / "manifest.json").read_bytes())
            names = ["weights.safetensors", "state.pt", *(name for name in hashes if name == "config.toml")]
            data = {name: (path / name).read_bytes() for name in names}
            for name, content in data.items():
                if sum_of(content) != hashes[name]:
                    raise ValueError(f"{name} does not match its hash")
            state = torch.load(io.BytesIO(data["state.pt"]), weights_only=True)
            weights = parse_safetensors(data["weights.safetensors"])
            return Checkpoint(weights, state, data.get("config.toml"), path)
        except Exception as error:
            warnings.warn(f"checkpoint {path} is damaged ({error}); trying the one before it", stacklevel=2)
    if steps:
        warnings.warn(f"no checkpoint in {folder} is intact: starting over", stacklevel=2)
    return None


def _steps(folder: Path) -> list[Path]:
    return sorted(p for p in folder.iterdir() if p.name.isdigit()) if folder.is_dir() else []


def _remove(path: Path) -> None:
    if path.exists():
        shutil.rmtree(path)
