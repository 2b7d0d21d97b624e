"""What the registry reads from declared types."""

from typing import Literal, Optional

import pytest

from pdeplus._lib.registry import choices, find
from pdeplus.errors import UserError

Order = Literal["first", "last"]


@pytest.mark.parametrize(
    ("hint", "expected"),
    [
        (Order, ("first", "last")),
        (Order | None, ("first", "last")),
        (Optional[Order], ("first", "last")),  # noqa: UP045
        (Order | Literal["none"], ("first", "last", "none")),
        (Literal[9, 13], ("9", "13")),
    ],
)
def test_the_choices_of_a_flag_are_those_of_its_type(hint, expected):
    assert choices(hint) == expected


def test_a_type_without_choices_is_refused():
    with pytest.raises(TypeError, match="names no choices"):
        choices(str | None)


def test_a_module_beside_one_is_told_of_the_dot_it_needs(tmp_path, monkeypatch):
    (tmp_path / "own_net.py").write_text("")
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UserError, match=r"'own_net' \(a module of your own needs a dot: my_package.own_net\) is not"):
        find("models", "own_net")
