"""The demo at a fraction of its size, and its table."""

import sys

import pytest
from support.hand_records import one_seed

from pdeplus.cli import demo
from pdeplus.errors import UserError

TINY = ["model.width=2", "data.size=8", "train.limit=80", "train.epochs=1"]


def test_demo_prints_a_table_writes_a_report_and_does_nothing_twice(tmp_path, capsys):
    demo.run_demo(tmp_path, TINY)
    shown = capsys.readouterr().out
    for label in demo.METHODS:
        assert f"| {label} |" in shown
    assert "against AugMix" in shown
    assert (tmp_path / "table.md").read_text() in shown
    assert "PDE+" in (tmp_path / "report.html").read_text()
    assert list((tmp_path / "files").glob("*.png"))
    kept = [tmp_path / "erm" / name for name in ("model.safetensors", "records.jsonl")]
    before = [path.stat().st_mtime_ns for path in kept]
    demo.run_demo(tmp_path, TINY)
    assert [path.stat().st_mtime_ns for path in kept] == before
    assert capsys.readouterr().out == shown
    with pytest.raises(UserError, match="other settings"):
        demo.run_demo(tmp_path, [*TINY, "seed=1"])


@pytest.mark.parametrize(("module", "extra"), [("sklearn", "digits"), ("vl_convert", "plots")])
def test_the_demo_asks_for_its_extras_before_it_trains(tmp_path, monkeypatch, module, extra):
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(UserError, match=rf"^pdeplus demo needs {module}: pip install 'pdeplus\[{extra}\]'$"):
        demo.run_demo(tmp_path, TINY)
    assert not list(tmp_path.iterdir())


def test_table_by_hand():
    """Noise costs 60 %, fog 10 %, everything else 50 %; severity 5 of pixelate costs nothing."""

    def error(corruption: str, severity: int) -> float:
        special = {"clean": 0.0, "gaussian_noise": 0.6, "shot_noise": 0.6, "impulse_noise": 0.6, "fog": 0.1}
        return 0.0 if (corruption, severity) == ("pixelate", 5) else special.get(corruption, 0.5)

    table = demo.format_table(one_seed(error))
    assert "| clean | noise | blur | weather | digital | mean of 15 × 5 | severity 5 | selection |" in table
    weather, digital = 50 + 40 / 4, 50 + 50 / 20
    mean, severe = (3 * 40 + 4 * 50 + 4 * weather + 4 * digital) / 15, (3 * 40 + 4 * 50 + 4 * weather + 250) / 15
    numbers = [100.0, 40.0, 50.0, weather, digital, mean, severe]
    accuracies = " | ".join(f"{number:.1f}" for number in numbers)
    assert table.splitlines()[2] == f"| PDE+ | {accuracies} | last | 0 | 2.00 |"
