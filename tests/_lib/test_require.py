"""Optional packages: given where they are there, named with the way to get them where not."""

import math
import sys

import pytest
from PIL import Image

from pdeplus._lib.registry import require
from pdeplus.cli import main
from pdeplus.errors import UserError


def test_modules_come_in_the_order_of_their_names():
    assert require("math", "sys", purpose="this test", extra="plots") == [math, sys]


def test_a_missing_package_is_answered_with_the_command_that_adds_it(monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    with pytest.raises(UserError, match=r"^a sheet needs matplotlib: pip install 'pdeplus\[plots\]'$"):
        require("math", "matplotlib.figure", purpose="a sheet", extra="plots")


def test_a_contact_sheet_without_the_extra_says_what_to_install(monkeypatch, capsys, tmp_path):
    Image.new("RGB", (32, 32)).save(tmp_path / "one.png")
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    with pytest.raises(SystemExit, match="2"):
        main(["corrupt", str(tmp_path), "--sheet", str(tmp_path / "sheet.png")])
    assert capsys.readouterr().err.endswith("a contact sheet needs matplotlib: pip install 'pdeplus[plots]'\n")
