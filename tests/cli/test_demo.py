"""The demo at a fraction of its size, and its table."""

import sys
from dataclasses import replace

import pytest
from support.hand_records import one_seed

from pdeplus.cli import demo
from pdeplus.errors import UserError

TINY = ["model.width=16", "data.size=16", "train.limit=80", "train.epochs=1"]


def test_demo_prints_a_table_writes_a_report_and_does_nothing_twice(tmp_path, capsys):
    demo.run_demo(tmp_path, TINY, seeds=1, jobs=1)
    shown = capsys.readouterr().out
    for label in ("ERM", "AugMix", "PDE+ (ours)"):
        assert f"| {label} |" in shown
    assert "against AugMix points of corrupted accuracy, one seed" in shown
    assert (tmp_path / "table.md").read_text() in shown
    assert "PDE+" in (tmp_path / "report.html").read_text()
    assert list((tmp_path / "files").glob("*.png"))
    kept = [*tmp_path.glob("own/runs/*/model.safetensors"), *tmp_path.glob("own/runs/*/records.jsonl")]
    assert len(kept) == 2 * 3
    before = [path.stat().st_mtime_ns for path in kept]
    demo.run_demo(tmp_path, TINY, seeds=1, jobs=1)
    assert [path.stat().st_mtime_ns for path in kept] == before
    assert capsys.readouterr().out == shown


def test_the_demo_asks_for_its_extra_before_it_trains(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "vl_convert", None)
    with pytest.raises(UserError, match=r"^pdeplus demo needs vl_convert: pip install 'pdeplus\[plots\]'$"):
        demo.run_demo(tmp_path, TINY)
    assert not list(tmp_path.iterdir())


def test_the_gain_is_a_mean_over_seeds(capsys):
    """PDE+ is 10 and 20 points above ERM: 15 ± 12.706 · 5."""

    def records(label, *accuracies):
        found = [one_seed(lambda c, s, a=a: 1 - a) for a in accuracies]
        return [replace(r, model=label, config=label, seed=i) for i, rs in enumerate(found) for r in rs]

    text = demo._finding([*records("ERM", 0.5, 0.5), *records("PDE+", 0.6, 0.7)])
    assert "PDE+: +15.0 against ERM (-48.5 to +78.5) points of corrupted accuracy, 95 % intervals over 2 seeds" in text


def test_table_by_hand():
    """Noise costs 60 %, fog 10 %, everything else 50 %; severity 5 of pixelate costs nothing."""

    def error(corruption: str, severity: int) -> float:
        special = {"clean": 0.0, "gaussian_noise": 0.6, "shot_noise": 0.6, "impulse_noise": 0.6, "fog": 0.1}
        return 0.0 if (corruption, severity) == ("pixelate", 5) else special.get(corruption, 0.5)

    table = demo.format_table(one_seed(error))
    assert "| clean | noise | blur | weather | digital | mean of 15 × 5 | severity 5 | seeds |" in table
    weather, digital = 50 + 40 / 4, 50 + 50 / 20
    mean, severe = (3 * 40 + 4 * 50 + 4 * weather + 4 * digital) / 15, (3 * 40 + 4 * 50 + 4 * weather + 250) / 15
    numbers = [100.0, 40.0, 50.0, weather, digital, mean, severe]
    accuracies = " | ".join(f"{number:.1f}" for number in numbers)
    assert table.splitlines()[2] == f"| PDE+ | {accuracies} | 1 | 0 | 2.00 |"
