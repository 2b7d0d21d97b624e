"""A short round of the campaign (`make campaign` is the long one): no traceback, no silent change."""

import random

import pytest
from campaign import __main__ as campaign
from campaign.kills import STATES, TRAIN
from campaign.tally import Tally, judge

from pdeplus.errors import Stopped, UserError
from pdeplus.training.config import load_config
from pdeplus.training.run_folder import prepare


def test_the_tally_tells_good_from_bad():
    def fail(error: Exception) -> object:
        raise error

    tally = Tally()
    for call in (
        lambda: 3,
        lambda: fail(UserError("no")),
        lambda: fail(KeyError("x")),
        lambda: fail(UserError("a\nb")),
    ):
        tally.add("calls", judge(call)[0])
    assert [tally.counts["calls", name] for name in ("read", "refused", "traceback")] == [1, 1, 2]
    assert len(tally.bad) == 2
    assert tally.table().splitlines()[-1] == "| all | 4 | 1 | 1 | 2 | 0 | 0 |"


def test_every_reader_reads_or_refuses_what_it_gets(tmp_path, monkeypatch):
    pytest.importorskip("hypothesis")
    from campaign.fuzz import fuzz, readers

    (tmp_path / "work").mkdir()
    monkeypatch.chdir(tmp_path / "work")
    for name, (whole, read) in readers().items():
        (tmp_path / name).mkdir()
        assert judge(lambda read=read, whole=whole, name=name: read(whole, tmp_path / name))[0] in ("read", "warned"), (
            name
        )
    tally = Tally()
    fuzz(tally, 300, 0, tmp_path / "fuzz")
    assert not tally.bad


def test_a_damaged_file_is_noticed_or_harmless(tmp_path):
    from campaign.damage import Damages

    trials, chance, tally = Damages(tmp_path), random.Random(0), Tally()
    for _ in range(25):
        trials.finished(tally, chance)
        trials.of_a_shared_folder(tally, chance)
    for _ in range(5):
        trials.stopped(tally, chance)
    assert not tally.bad


def test_everything_that_is_killed_can_be_trained():
    for options in STATES.values():
        prepare(load_config("demo", [*TRAIN, *options]))


@pytest.mark.parametrize("ending", [KeyboardInterrupt, Stopped])
def test_stopped_early_it_prints_what_was_done(ending, tmp_path, monkeypatch, capsys):
    def part(name, tally, *given):
        tally.add("some", "refused")
        raise ending

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("sys.argv", ["campaign"])
    monkeypatch.setattr("signal.signal", lambda *given: None)
    monkeypatch.setattr(campaign, "_part", part)
    with pytest.raises(SystemExit, match="^False$"):
        campaign.main()
    assert "| some | 1 | 1 |" in capsys.readouterr().out
