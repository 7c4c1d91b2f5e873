"""Numbers and names in reports."""

import pytest

from tests.profiles.report_cases import ARRAY, make_counts, make_culprit
from ucxstore.copies.figures import figure, name_culprits, pair
from ucxstore.drawing.templates import clean


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0, "0"),
        (0.0049, "0"),
        (-0.0049, "0"),
        (0.0051, "0.01"),
        (1, "1.00"),
        (-0.02, "-0.02"),
        (1.894, "1.89"),
        (12.345, "12.35"),
        (float("nan"), "?"),
        (float("inf"), "?"),
    ],
)
def test_figures_have_two_decimals(value: float, text: str) -> None:
    assert figure(value) == text


def test_the_pair_has_the_peak_first() -> None:
    assert pair(1.03, 0.001) == "1.03 / 0"


def test_text_from_outside_is_one_line_without_control_characters() -> None:
    assert clean("a\n b\t\x1b[31mc\x00\ud800\u202e") == "a b \ufffd[31mc\ufffd\ufffd\ufffd"


def test_culprits_are_those_of_the_larger_figure_without_their_line() -> None:
    counts = make_counts(
        1.0,
        2.5,
        make_culprit(1.0, "wrong (a.py:1)", at="peak"),
        make_culprit(0.7, "read (b.py:2)"),
        make_culprit(0.5, "read (b.py:3)"),
        make_culprit(1.0, "", native="malloc_it"),
        make_culprit(0.3, "third (c.py:4)"),
    )
    assert name_culprits(counts, ARRAY) == "1.20 read, 1.00 malloc_it"


def test_what_is_small_has_no_culprit() -> None:
    counts = make_counts(0.01, 0, make_culprit(0.01, "connect (a.py:1)", at="peak"))
    assert name_culprits(counts, ARRAY) == ""
