"""What the registry reads from declared types."""

from typing import Literal, Optional

import pytest

from pdeplus._lib.registry import choices

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
