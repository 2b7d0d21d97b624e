"""The examples of loops with the real libraries, in one process and, where a library shares work out, in two."""

import os
import runpy
import warnings
from functools import partial
from pathlib import Path

import pytest
import torch
from support.distributed_jobs import together
from support.peers import peer

import pdeplus as pp

EXAMPLES = Path(__file__).parents[2] / "examples"
LIBRARIES = {
    "pytorch": "torch", "accelerate": "accelerate", "trainer": "transformers", "lightning": "lightning",
    "lightning_two": "lightning", "timm": "timm",
}  # fmt: skip
MOST_LINES = 25


def ran(name: str, folder: Path) -> dict:
    """What an example leaves, run in a folder of its own."""
    os.chdir(folder)
    with warnings.catch_warnings():  # of the libraries
        warnings.simplefilter("ignore")
        return runpy.run_path(str(EXAMPLES / f"loop_{name}.py"))


@pytest.mark.parametrize("name", LIBRARIES)
def test_the_example_learns(name, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    peer(LIBRARIES[name])
    ran(name, tmp_path)
    assert float(capsys.readouterr().out.partition("accuracy ")[2][:4]) > 0.9


def test_all_loops_are_tested_and_short():
    files = {path.stem.removeprefix("loop_"): path.read_text("utf-8") for path in EXAMPLES.glob("loop_*.py")}
    assert files.keys() == LIBRARIES.keys()
    for name, text in files.items():
        code = text.partition('"""\n')[2]  # behind the line that says what it is
        assert len([line for line in code.splitlines() if line.strip()]) <= MOST_LINES, name


def test_the_trainer_divides_the_loss_by_the_parts_of_an_update(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    peer("transformers")
    left = ran("trainer", tmp_path)
    trainer, net, criterion = left["trainer"], left["net"].train(), left["criterion"]
    inputs = {"pixel_values": left["images"][:8], "labels": left["labels"][:8]}
    found = []
    for parts in (1, 2):
        trainer.current_gradient_accumulation_steps = parts
        criterion.generator = torch.Generator().manual_seed(0)
        net.zero_grad()
        trainer.training_step(net, inputs, num_items_in_batch=torch.tensor(16))
        found.append([p.grad.clone() for p in net.parameters()])
    assert any(bool(g.any()) for g in found[0])
    for whole, half in zip(*found, strict=True):
        torch.testing.assert_close(half, whole / 2)


def weights_after(name: str, folder: Path) -> tuple[list[torch.Tensor], float]:
    """In one of two processes: the trained weights and the loss's last task term, which is of its own images."""
    os.environ |= {"TORCHELASTIC_RUN_ID": "test", "ACCELERATE_USE_CPU": "true"}  # as torchrun, accelerate --cpu do
    library, made, make = peer(LIBRARIES[name]), [], pp.PDEPlusLoss
    pp.PDEPlusLoss = lambda *given, **options: made.append(make(*given, **options)) or made[0]
    if LIBRARIES[name] == "lightning":
        library.Trainer = partial(library.Trainer, strategy="ddp", devices=2)
    left = ran(name, folder)
    found = [p.detach().clone() for p in left["net"].parameters()], float(made[0].parts["task"])
    torch.distributed.barrier()
    torch.distributed.destroy_process_group()
    return found


@pytest.mark.slow
@pytest.mark.parametrize("name", ["pytorch", "accelerate", "trainer", "lightning", "lightning_two"])
def test_two_processes_train_one_network(name, tmp_path):
    peer(LIBRARIES[name])
    (one, its_loss), (other, others_loss) = together(weights_after, name, tmp_path)
    assert its_loss != others_loss
    assert all(torch.equal(a, b) for a, b in zip(one, other, strict=True))
