"""Several processes that work together, each with one thread, and the work that tests of them do."""

import contextlib
import io
import os
import signal
import socket
import sys
import warnings
from collections.abc import Callable
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any, final

import torch
from support.forkserver import CONTEXT
from support.normless_cnn import without_batch_norm
from support.pde_plus import in_stages
from torch import Tensor, nn
from torch.optim import SGD

from pdeplus._lib import files, registry
from pdeplus._lib.seeds import generator_for
from pdeplus.augment.gaussian_noise import GaussianNoise
from pdeplus.augment.identity import Identity
from pdeplus.cli import main
from pdeplus.core.surgery import add_blocks_of
from pdeplus.data.base import Batch, Images, Split
from pdeplus.data.digits import Digits
from pdeplus.errors import Stopped, UserError
from pdeplus.methods.erm import ERM
from pdeplus.methods.pde_plus import PDEPlus
from pdeplus.models.plain_cnn import build
from pdeplus.models.resnet18 import build as resnet18
from pdeplus.training import checkpoint, distributed
from pdeplus.training.config import Train, load_config
from pdeplus.training.distributed import Engine, join
from pdeplus.training.loop import fit, train_step
from pdeplus.training.run_folder import resume, train
from pdeplus.training.session import open_session

SECONDS = 280
"""Each wait's limit."""
JOINT = {"clip_norm": 0.5, "ema": 0.5}
"""With these too a run of two processes is one process's."""


def start(work: Callable[..., Any], *arguments: Any, world: int = 2) -> tuple[list[BaseProcess], list[Connection]]:
    """`work(*arguments)` in so many processes that know each other, and where each sends what comes out."""
    pairs = [CONTEXT.Pipe(duplex=False) for _ in range(world)]
    jobs = [
        CONTEXT.Process(target=_member, args=(place, pair[1], work, arguments), daemon=True)
        for place, pair in zip(places(world), pairs, strict=True)
    ]
    for job in jobs:
        job.start()
    return jobs, [pair[0] for pair in pairs]


def places(world: int) -> list[dict[str, str]]:
    """The variables that a launcher gives to each of so many processes."""
    shared = {"WORLD_SIZE": world, "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": free_port()}
    own = [{"RANK": rank, "LOCAL_RANK": rank, "OMP_NUM_THREADS": 1, **shared} for rank in range(world)]
    return [{name: str(value) for name, value in place.items()} for place in own]


def free_port() -> int:
    """A free port below those that systems hand out themselves, so that no other process gets it before it is used."""
    for port in range(20_000 + 7 * os.getpid() % 10_000, 32_000):
        with socket.socket() as trial, contextlib.suppress(OSError):
            trial.bind(("127.0.0.1", port))
            return port
    raise OSError("no port between 20,000 and 32,000 is free")


def together(work: Callable[..., Any], *arguments: Any) -> list[Any]:
    """What `work` gives in each of two processes; neither may fail or outlive this."""
    jobs, results = start(work, *arguments)
    try:
        assert all(result.poll(SECONDS) for result in results)
        return [torch.load(io.BytesIO(result.recv_bytes()), weights_only=False) for result in results]
    finally:
        end(jobs)


def codes(jobs: list[BaseProcess], seconds: float = SECONDS) -> list[int | None]:
    """How each process ended, in time."""
    for job in jobs:
        job.join(seconds)
    ended = [job.exitcode for job in jobs]
    end(jobs)
    return ended


def end(jobs: list[BaseProcess]) -> None:
    for job in jobs:
        job.join(5)
        job.kill()


def _member(place: dict[str, str], sender: Connection, work: Callable[..., Any], arguments: Any) -> None:
    os.environ.update(place)
    torch.set_num_threads(1)
    buffer = io.BytesIO()
    torch.save(work(*arguments), buffer)
    sender.send_bytes(buffer.getvalue())


def command(cwd: Path, *arguments: str) -> None:
    """`pdeplus` with these arguments in a folder; what it says goes to a file of this process's own."""
    os.chdir(cwd)
    with Path(f"shown{os.environ['RANK']}.txt").open("w") as sys.stderr:
        sys.stdout = sys.stderr
        main(arguments)


@final
class Exact(nn.Module):
    """A network in double precision: rounding cannot push an activation over the kink of a ReLU, whence runs part."""

    def __init__(self, net: nn.Module) -> None:
        super().__init__()
        self.net = net.double()

    def forward(self, x: Tensor) -> Tensor:
        return self.net(x.double())


def patient_command(cwd: Path, *arguments: str) -> None:
    """The same; a process that lets the main one speak waits until a launcher ends it."""
    distributed.LET_MAIN_SPEAK = SECONDS
    command(cwd, *arguments)


def numbered(n: int) -> Images:
    """Random images of four classes, each with its number in the first pixel."""
    generator = generator_for(n, "images")
    images = torch.randint(256, (n, 3, 8, 8), generator=generator, dtype=torch.uint8)
    images[:, 0, 0, 0] = torch.arange(n)
    return Images(images, torch.randint(4, (n,), generator=generator))


def network() -> nn.Module:
    with torch.random.fork_rng():
        torch.manual_seed(0)
        return build(classes=4, channels=3, width=4)


def fit_plainly(images: int, epochs: int, *, batch_norm: bool = False, **settings: Any) -> dict[str, Any]:
    """ERM without augmentation; what each process saw of the images and of its random stream."""
    net = network() if batch_norm else without_batch_norm(network())
    seen, draws, losses = list[list[int]](), list[tuple[float, float]](), list[float]()

    def transform(x: Tensor, generator: torch.Generator | None) -> Tensor:
        seen.append(x[:, 0, 0, 0].mul(255).round().int().tolist())
        draws.append((float(torch.rand(1, generator=generator)), float(torch.rand(1))))  # and what dropout would draw
        return x

    split = Split(numbered(images), numbered(40), transform)  # type: ignore[arg-type]
    session = open_session(Exact(net), ERM(), split, Train(epochs=epochs, batch_size=15, **settings), 0)

    def watch(step: int, steps: int, progress: Any, logs: Any) -> None:
        losses.append(float(logs["loss/task"]))

    trained = fit(session, resume=None, save=lambda *a: None, on_step=watch, on_epoch=lambda *a: None)
    history = session.progress.history
    return {"losses": losses, "history": history, "seen": seen, "draws": draws, "weights": trained.state_dict()}


def fit_often() -> list[dict[str, Any]]:
    """Without BatchNorm, again, and with each process's own statistics in batches whose last is too small."""
    return [*(fit_plainly(67, 4, **JOINT) for _ in range(2)), fit_plainly(62, 2, batch_norm=True)]


def pde_plus(schedule: str) -> tuple[PDEPlus, nn.Module]:
    """A network whose ADD blocks have left their start, with fixed statistics."""
    method = in_stages(schedule=schedule, augmentor=GaussianNoise(std=0.1))  # type: ignore[arg-type]
    with torch.random.fork_rng():
        torch.manual_seed(0)
        net = method.prepare(network(), torch.zeros(2, 3, 8, 8))
    generator = generator_for(1, "weights")
    with torch.no_grad():
        for p in net.parameters():
            p += 0.05 * torch.randn(p.shape, generator=generator)
    return method, net.eval()


def part(rank: int) -> Batch:
    """Five of nine images, or the other four, with their process's stream."""
    images = numbered(9).take(torch.arange(9).tensor_split(2)[rank])
    return Batch(images.floats(), images.labels, lambda x, g: x + 0.01 * torch.rand(x.shape, generator=g), stream(rank))


def stream(rank: int) -> torch.Generator:
    return generator_for(0, "step", 0, rank)


def step_of_pde_plus(schedule: str) -> list[tuple[str, list[Tensor], list[Tensor]]]:
    """Of each update of one step: the optimiser's name, its gradients, and θ before it."""
    method, net = pde_plus(schedule)
    optimizers, updates = method.optimizers(net, lambda parameters: SGD(parameters, 0.1)), []
    phi = {id(p) for block in add_blocks_of(net) for p in block.parameters()}
    for name, optimizer in optimizers.items():

        def note(stepping: Any, args: Any, kwargs: Any, name: str = name) -> None:
            gradients = [p.grad.clone() for group in stepping.param_groups for p in group["params"]]
            updates.append((name, gradients, [p.detach().clone() for p in net.parameters() if id(p) not in phi]))

        optimizer.register_step_pre_hook(note)
    batch = part(join().rank)
    train_step(net, method, batch, optimizers, Engine("fp32"), weight=len(batch.labels) * 2 / 9)
    return updates


def step_of_each_method() -> dict[str, list[Tensor]]:
    """The network after one step of every method."""
    images, engine, found = numbered(9), Engine("fp32"), {}
    mine = images.take(engine.processes.share(torch.arange(9)))
    for name in registry.names("methods"):
        with torch.random.fork_rng():
            torch.manual_seed(0)
            method = registry.build("methods", name, {"members": 2} if name == "en_resnet" else {})
            net = method.prepare(resnet18(classes=4, channels=3, width=2), torch.zeros(2, 3, 8, 8))
            optimizers = method.optimizers(net, lambda parameters: SGD(parameters, 0.1))
            batch = Batch(mine.floats(), mine.labels, Identity(), stream(engine.processes.rank))
            train_step(net, method, batch, optimizers, engine)
        found[name] = [p.detach() for p in net.parameters()]
    return found


def incomplete_gradients() -> list[Tensor | None]:
    """The averages of a gradient that both have, one that a single process has, and one that none has."""
    processes = join()
    parameters = [nn.Parameter(torch.ones(2, 3)) for _ in range(3)]
    loss = (processes.rank + 1.0) * parameters[0].sum()
    (loss + parameters[1].sum() if processes.rank else loss).backward()
    processes.average_gradients(parameters)
    return [p.grad for p in parameters]


def fail_in_one(rank: int) -> str | int | None:
    """Prepare something that one process cannot; what each says, or the code it exits with in silence."""
    processes = join()

    def work() -> None:
        if processes.rank == rank:
            raise UserError("there is no such folder")

    try:
        processes.together(work)
    except UserError as error:
        return str(error)
    except SystemExit as leaving:
        return leaving.code
    return None


def train_and_go_on(folder: Path) -> None:
    """Go on with the run `grown`; begin the run `shrunk` and stop after its first epoch."""
    Digits.transform = property(lambda self: Identity())
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        config = resume(folder / "grown", trust_code=True).config
    with contextlib.suppress(Stopped):
        train(config, folder / "shrunk", watch=stop_after_an_epoch)


def stop_after_an_epoch(step: int, steps: int, progress: Any, logs: Any) -> None:
    """Of two."""
    if 2 * (step + 1) == steps:
        signal.raise_signal(signal.SIGTERM)


def count_writes(folder: Path, settings: list[str]) -> list[str]:
    """Names of the files that this process writes while it trains."""
    written = list[str]()
    write = files.write_synced

    def note(path: Path, data: bytes) -> None:
        written.append(path.name)
        write(path, data)

    files.write_synced = checkpoint.write_synced = note
    train(load_config("demo", settings), folder)
    return written
