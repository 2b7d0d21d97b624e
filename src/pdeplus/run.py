"""A run folder: config, environment, metrics, checkpoints, weights; and training into one.

config.toml          the resolved config: every default filled in
environment.json     versions, hardware and command of each session
metrics.jsonl        one line per epoch
checkpoints/         the newest two, for exact resume
best.safetensors     weights of the epoch with the best validation accuracy
model.safetensors    weights after the last epoch; its presence says that the run is finished
"""

import contextlib
import json
import os
import platform
import subprocess
import sys
import warnings
from collections.abc import Callable, Generator, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Literal

import tomli_w
import torch
from torch import Tensor, nn

from . import __version__, _registry
from ._checkpoint import Checkpoint, encode_weights, load_checkpoint, read_weights, save_checkpoint, write_file
from ._errors import UserError, check_choice
from ._seeds import derive
from .batch_norm import check_batch_size, split_batch_norm
from .config import Config, Part, load_config, to_tables
from .data.base import Images, Source, split
from .methods.base import Method
from .models.base import check_image_size
from .trainer import Metrics, Progress, Session, Watch, fit, open_session

Selection = Literal["last", "validation"]
"""Which epoch's weights."""


@dataclass(frozen=True)
class Run:
    """A run folder that training has begun or finished."""

    path: Path

    @staticmethod
    def load(path: str | Path) -> "Run":
        """Open a run folder; refuses a folder that is none."""
        run = Run(Path(path))
        if not (run.path / "config.toml").is_file():
            raise UserError(f"{path} is not a run folder: it has no config.toml")
        return run

    @property
    def config(self) -> Config:
        """The resolved config."""
        return load_config(self.path / "config.toml")

    @property
    def metrics(self) -> list[Metrics]:
        """One record per finished epoch."""
        path = self.path / "metrics.jsonl"
        return [json.loads(line) for line in path.read_text("utf-8").splitlines()] if path.exists() else []

    @property
    def finished(self) -> bool:
        """Whether the last epoch is done."""
        return (self.path / "model.safetensors").is_file()

    @property
    def model(self) -> nn.Module:
        """The trained network after its last epoch, in eval mode."""
        return self.network("last")

    def network(self, selection: Selection) -> nn.Module:
        """The network of the last epoch, or of the epoch with the best validation accuracy."""
        check_choice("selection", selection, Selection)
        name = "model.safetensors" if selection == "last" else "best.safetensors"
        if not (self.path / name).is_file():
            raise UserError(f"{self.path} has no {name} yet; finish it: pdeplus train --resume {self.path}")
        config = self.config
        model = build_network(config, build_source(config), build_method(config))
        model.load_state_dict(read_weights(self.path / name))
        return model.eval()


def train(config: Config, out: str | Path | None = None, *, watch: Watch | None = None) -> Run:
    """Train as `config` says, into a new run folder, and return the finished run.

    Everything is built and checked before the folder is made. A folder that holds anything is refused.
    """
    default = f"{config.name}-{config.method.name}-seed{config.seed}"
    folder = Path(out) if out is not None else Path("runs") / default
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        begun = (folder / "config.toml").exists()
        way_out = f"go on with --resume {folder}, or choose another --out" if begun else "choose another --out"
        raise UserError(f"{folder} already holds {'a run' if begun else 'files'}; {way_out}")
    session, text = _prepare(config), tomli_w.dumps(to_tables(config))
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UserError(f"{folder} cannot be made: {error.strerror}") from error
    try:
        write_file(folder / "config.toml", text.encode())
    except UserError:
        folder.rmdir()
        raise
    return _run(session, folder, None, watch)


def resume(path: str | Path, *, watch: Watch | None = None) -> Run:
    """Go on with an interrupted run; it ends as if it had never been interrupted."""
    run = Run.load(path)
    if run.finished:
        return run
    return _run(_prepare(run.config), run.path, load_checkpoint(run.path / "checkpoints"), watch)


def build_source(config: Config) -> Source:
    """The configured data set."""
    return _build("data", config.data)


def build_method(config: Config) -> Method:
    """The configured method."""
    return _build("methods", config.method)


def build_network(config: Config, source: Source, method: Method, images: Images | None = None) -> nn.Module:
    """The configured network, prepared by the method, its weights drawn from the run's seed.

    `images` are some of the source's, if they are read already: their shape counts.
    """
    example = (images or source.train()).take(torch.arange(2)).floats()
    check_image_size(min(example.shape[-2:]))
    with _seeded(derive(config.seed, "init")):
        model = _build("models", config.model, classes=len(source.classes), channels=example.shape[1])
        network = method.prepare(model, example)
    return split_batch_norm(network) if config.train.batch_norm == "split" else network


def _prepare(config: Config) -> Session:
    """Build all parts, so that bad input is answered before anything is written."""
    source, method = build_source(config), build_method(config)
    parts = split(source, validation=config.train.validation, limit=config.train.limit, seed=config.seed)
    network = build_network(config, source, method, parts.train)
    check_batch_size(network, config.train.batch_size)
    parts.train.preload()
    parts.validation.preload()
    return open_session(network, method, parts, config.train, config.seed)


def _run(
    session: Session,
    folder: Path,
    checkpoint: Checkpoint | None,
    watch: Watch | None,
) -> Run:
    """Train into a folder that holds the config, from a checkpoint or from the start."""
    _stamp(folder)
    _write_metrics(folder, checkpoint.state["progress"]["history"] if checkpoint else [])

    with _tensorboard(folder) as show:

        def on_epoch(progress: Progress, network: nn.Module) -> None:
            _write_metrics(folder, progress.history)
            accuracies = [record["validation/accuracy"] for record in progress.history]
            if accuracies[-1] > max(accuracies[:-1], default=-1.0):
                write_file(folder / "best.safetensors", encode_weights(network.state_dict()))
            show(progress.history[-1])

        save = partial(save_checkpoint, folder / "checkpoints")
        network = fit(session, resume=checkpoint, save=save, on_step=watch or _watch_nothing, on_epoch=on_epoch)
    write_file(folder / "model.safetensors", encode_weights(network.state_dict()))
    return Run(folder)


def _build(family: str, part: Part, **given: Any) -> Any:
    return _registry.build(family, part.name, part.options, **given)


def _watch_nothing(step: int, steps: int, progress: Progress, logs: Mapping[str, Tensor]) -> None: ...


def _write_metrics(folder: Path, history: list[Metrics]) -> None:
    lines = "".join(json.dumps(record) + "\n" for record in history)
    write_file(folder / "metrics.jsonl", lines.encode())


def environment() -> dict[str, Any]:
    """What a result may depend on besides its config: versions, hardware, command."""
    return {
        "pdeplus": __version__,
        "commit": _commit(),
        "python": platform.python_version(),
        "torch": torch.__version__,
        "system": f"{platform.system()} {platform.machine()}",
        "devices": torch.cuda.device_count() or "cpu",
        "cores": os.cpu_count(),
        "threads": torch.get_num_threads(),
        "command": " ".join(["pdeplus", *sys.argv[1:]]),
    }


def _stamp(folder: Path) -> None:
    """Add this session's environment; warn where it differs so that resume may not be exact."""
    path = folder / "environment.json"
    sessions: list[dict[str, Any]] = json.loads(path.read_bytes()) if path.exists() else []
    now = environment()
    for key in ("torch", "threads", "devices", "system"):
        if sessions and sessions[0][key] != now[key]:
            text = f"this session has {key} {now[key]}, the run began with {sessions[0][key]}: bits may differ"
            warnings.warn(text, stacklevel=2)
    write_file(path, json.dumps([*sessions, now], indent=1).encode())


def _commit() -> str | None:
    command = ["git", "-C", str(Path(__file__).parent), "rev-parse", "--short=12", "HEAD"]
    with contextlib.suppress(OSError, subprocess.SubprocessError):
        return subprocess.run(command, capture_output=True, text=True, check=True, timeout=5).stdout.strip()
    return None


@contextlib.contextmanager
def _seeded(seed: int) -> Generator[None]:
    """Torch's global random state is `seed`'s within and as before afterwards."""
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        yield


@contextlib.contextmanager
def _tensorboard(folder: Path) -> Generator[Callable[[Metrics], None]]:
    """Where TensorBoard is installed, what writes an epoch's record to it; else what does nothing."""
    try:
        from torch.utils.tensorboard.writer import SummaryWriter
    except ImportError:
        yield lambda record: None
        return
    with SummaryWriter(folder / "tensorboard") as writer:

        def write(record: Metrics) -> None:
            for name, value in record.items():
                writer.add_scalar(name, value, record["epoch"])  # type: ignore[reportUnknownMemberType]

        yield write
