"""What a cluster is told and a user is shown: Slurm's script, under a stand-in for Slurm, and the table of cells."""

import io
import itertools
import os
import re
import shutil
import signal
import subprocess
import time
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest

from pdeplus.cli import main
from pdeplus.studies.board import Board, State, table_of
from pdeplus.studies.cells import Done, Failure
from pdeplus.studies.estimates import CellCost
from pdeplus.studies.ray import _needs, _result
from pdeplus.studies.reproduction import prepare
from pdeplus.studies.slurm import script_of, time_limit
from pdeplus.training.run_folder import Run

needs_bash = pytest.mark.skipif(shutil.which("bash") is None, reason="needs bash")
CELL = """#!/bin/bash
trap 'kill $!; echo saved >> {log}; exit 0' TERM
echo "cell $* with $OMP_NUM_THREADS threads" >> {log}
sleep 600 & wait
"""
"""A command that trains until it is asked to stop."""
NOTED = '#!/bin/bash\nfor word in "$@"; do echo "{name} $word" >> {log}; done\necho "77;there"\n'
"""A command of Slurm that notes what it was given."""


def executable(path: Path, text: str) -> Path:
    path.write_text(text)
    path.chmod(0o755)
    return path


@pytest.fixture
def slurm(tmp_path):
    """A folder with a script of two cells, its log, and the variables of a machine that has Slurm."""
    log = tmp_path / "log"
    (tmp_path / "bin").mkdir()
    for name in ("sbatch", "scontrol"):
        executable(tmp_path / "bin" / name, NOTED.format(name=name, log=log))
    command = [str(executable(tmp_path / "a cell", CELL.format(log=log))), "data.root=a b"]
    text = script_of(
        command=command, name="two", cells=2, limit="#SBATCH --time=30", cpus=3, gpus=2, start=tmp_path, logs=tmp_path
    )
    script = executable(tmp_path / "submit.sh", text)
    path = f"{tmp_path / 'bin'}{os.pathsep}{os.environ['PATH']}"
    return script, log, {"PATH": path, "again": "yes"}


@needs_bash
def test_the_script_submits_itself_and_the_outcome_after_it(slurm):
    script, log, variables = slurm
    subprocess.run(["bash", str(script)], env=variables, check=True, timeout=600)
    first, second, *rest = log.read_text().splitlines()
    assert first == "sbatch --parsable"
    assert second == f"sbatch {script}"
    assert "sbatch --dependency=afterany:77" in rest
    assert rest[-2:] == ["sbatch --wrap", f"sbatch '{script.parent / 'a cell'}' 'data.root=a b' --on none"]


@needs_bash
@pytest.mark.parametrize(("number", "requeued"), [(signal.SIGUSR1, True), (signal.SIGTERM, False)])
def test_a_job_near_its_time_limit_saves_and_queues_again(slurm, number, requeued):
    script, log, variables = slurm
    job = {"SLURM_ARRAY_TASK_ID": "2", "SLURM_ARRAY_JOB_ID": "5"}
    with subprocess.Popen(["bash", str(script)], env=variables | job) as process:
        end = time.monotonic() + 600
        while not (log.exists() and log.read_text().endswith("\n")):
            assert time.monotonic() < end
            time.sleep(0.01)
        process.send_signal(number)
        assert process.wait(600) == 0
    began, *then = log.read_text().splitlines()
    assert began == "cell data.root=a b --cell 2 with 3 threads"
    assert then == ["saved", *(["scontrol requeue", "scontrol 5_2"] if requeued else [])]


@needs_bash
def test_a_dry_run_prints_the_script_and_writes_nothing(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    words = ["--size", "smoke", "--seeds", "2", "--on", "slurm", "--cpus", "4", "--gpus", "1", "--dry-run"]
    with pytest.raises(SystemExit) as left:
        main(["reproduce", "demo", *words, "train.limit=40"])
    text = capsys.readouterr().out
    assert left.value.code == 0
    assert not list(tmp_path.iterdir())
    subprocess.run(["bash", "-n"], input=text.encode(), check=True)
    options = [line.removeprefix("#SBATCH ") for line in text.splitlines() if line.startswith("#SBATCH")]
    home = tmp_path / "reproduced" / "smoke" / "demo" / "slurm"
    assert {"--array=1-6", "--cpus-per-task=4", "--gres=gpu:1", "--requeue", "--signal=B:USR1@60"} < set(options)
    assert f"--output={home}/%a.log" in options
    assert any(option.startswith("--time=") for option in options)
    given = "-m pdeplus reproduce demo train.limit=40 --size smoke --out reproduced --seeds 2"
    assert f'{given} --cell "$SLURM_ARRAY_TASK_ID" &' in text
    assert f"{given} --on none'" in text


def test_without_slurm_the_script_is_written_and_one_line_says_how_to_submit(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PATH", "")
    with pytest.raises(SystemExit) as left:
        main(["reproduce", "fig_losses", "--size", "smoke", "--on", "slurm"])
    script = Path("reproduced/smoke/fig_losses/slurm/submit.sh")
    assert left.value.code == 0
    assert capsys.readouterr().out == f"there is no sbatch here; where there is, submit with: bash {script}\n"
    assert "gres" not in script.read_text()


def test_the_time_limit_is_twice_the_longest_cell_and_ten_minutes():
    cell = prepare("fig_losses", "smoke", None, [])[2][0]
    known = [CellCost(cell=cell, state="to do", hours=hours) for hours in (0.5, 1.25)]
    assert time_limit(known) == "#SBATCH --time=160"
    unknown = CellCost(cell=cell, state="unknown", reason="no\ndata")
    assert time_limit([*known, unknown]) == "# no --time, which stays the cluster's own: no data"


def stand_in_for_ray(*nodes, get=None):
    """As much of Ray as is asked for, with these CPUs and GPUs."""
    found = [{"Alive": alive, "Resources": {"CPU": cpus, "GPU": gpus}} for alive, cpus, gpus in nodes]
    return SimpleNamespace(nodes=lambda: found, get=get, exceptions=SimpleNamespace(RayError=OSError))


def test_a_cell_on_ray_has_a_gpu_where_there_is_one(monkeypatch, capsys):
    monkeypatch.setenv("PDEPLUS_DATA", "there")
    needs = _needs(stand_in_for_ray((True, 8, 0), (True, 4, 2), (False, 64, 8)), 4, None)
    assert capsys.readouterr().err == "pdeplus: Ray has 12 CPUs and 2 GPUs, nodes: 2\n"
    assert (needs["num_cpus"], needs["num_gpus"]) == (4, 1)
    assert needs["runtime_env"]["env_vars"] == {"OMP_NUM_THREADS": "4", "PDEPLUS_DATA": "there"}
    assert _needs(stand_in_for_ray((True, 8, 0)), 4, None)["num_gpus"] == 0
    with pytest.warns(UserWarning, match="no node has 8 CPUs and 1 GPUs: runs wait until one joins"):
        _needs(stand_in_for_ray((True, 8, 0), (True, 4, 2)), 8, 1)


def test_a_cell_that_ray_gives_up_is_a_failure_in_one_line():
    cell = prepare("fig_losses", "smoke", None, [])[2][0]

    def get(task):
        raise ConnectionError(f"{task}\nthe node is lost")

    result = _result(stand_in_for_ray(get=get), "task", cell)
    assert result == Failure(cell=cell, reason="Ray gave it up (ConnectionError): the node is lost")


def states(*words):
    return [State(title=f"{i} cell", word=word, about=word[0], epochs=i, of=9, minutes=1.5) for i, word in words]


def test_a_table_shows_what_runs_and_the_numbers_of_all():
    every = [*states((1, "done"), (2, "running"), (3, "waiting"), (4, "failed"), (5, "running")), *states((6, "done"))]
    every[4] = replace(every[4], progress="training 45 %")
    assert table_of(every, 100.0, 80, 20) == [
        "run        epochs  minutes  state",
        "2 cell        2/9      1.5  running on r",
        "5 cell        5/9      1.5  training 45 %",
        "6 runs: 2 done, 1 failed, 2 running, 1 waiting; about 01:40 left",
    ]
    assert table_of(every, 0.0, 12, 3) == ["run        e", "2 cell      ", "6 runs: 2 do"]
    assert table_of(states((1, "done")), 0.0, 80, 20) == ["1 runs: 1 done"]


class Screen(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_a_terminal_is_drawn_over_and_a_file_gets_a_line_per_change(tmp_path, monkeypatch):
    clock = itertools.count(90.0, 0.001)
    monkeypatch.setattr("pdeplus.studies.board.time", SimpleNamespace(monotonic=lambda: next(clock)))
    cells = prepare("demo", "smoke", None, ["train.epochs=5"])[2][:3]
    screen, file = Screen(), io.StringIO()
    boards = [Board(cells, tmp_path, out, kept=[2]) for out in (screen, file)]
    ended = {2: Done(cell=cells[2], run=Run(tmp_path), records=())}

    def update(running, **more):
        for board in boards:
            board.update(ended, running, **more)

    update({})
    (tmp_path / cells[0].folder).mkdir()
    (tmp_path / cells[0].folder / "metrics.jsonl").write_text("{}\n{}\n")
    update({0: "there, process 7"})
    update({0: "there, process 7"}, progress={0: "training 40 %"})
    for board in boards:
        board.say("look")
    ended[0] = Done(cell=cells[0], run=Run(tmp_path), records=())
    ended[1] = Failure(cell=cells[1], reason="too hot")
    update({})
    update({})
    begun, done, failed = (
        "pdeplus: 1/3 erm seed 0: running on there, process 7, 2 of 5 epochs, 0.0 minutes",
        "pdeplus: 1/3 erm seed 0: done, 2 of 5 epochs, 0.0 minutes",
        "pdeplus: 2/3 augmix seed 0: failed: too hot, 0 of 5 epochs, 0.0 minutes",
    )
    assert file.getvalue().splitlines() == [begun, "pdeplus: look", done, failed]
    drawings = re.split("\x1b\\[[0-9]F\x1b\\[J", screen.getvalue())
    assert [text.count("\n") for text in drawings] == [1, 3, 3, 4, 1]
    assert drawings[0] == "3 runs: 1 done, 2 waiting\n"
    assert "2/5      0.0  running on there, process 7\n" in drawings[1]
    assert "2/5      0.0  training 40 %\n3 runs: 1 done, 1 running, 1 waiting; about 00:00 left\n" in drawings[2]
    assert drawings[3] == f"pdeplus: look\n{done}\n{failed}\n3 runs: 2 done, 1 failed\n"
    assert drawings[4] == "3 runs: 2 done, 1 failed\n"
