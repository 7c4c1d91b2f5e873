"""The chart that `make bench` draws, and that README shows."""

from xml.etree import ElementTree

import pytest

from benchmarks import chart
from benchmarks.result import Line, Row

MEDIANS = {bar.figure: float(number) for number, bar in enumerate(chart.BARS, start=1)}


def test_the_committed_chart_has_the_figures_of_the_committed_table() -> None:
    assert chart.IMAGE.read_text() == chart.draw(chart.of_table(chart.TABLE.read_text()))


def test_bars_are_as_long_as_their_figures() -> None:
    picture = ElementTree.fromstring(chart.draw(MEDIANS))
    bars = [element for element in picture if element.get("fill") == "#00796b"]
    lengths = [float(bar.get("width", "")) for bar in bars]
    assert [round(length / lengths[0], 1) for length in lengths] == [1, 2, 3, 4, 5]


def test_rows_and_their_table_have_the_same_figures() -> None:
    line = Line(what="ours", against="theirs", median=3.204, minimum=4, unit="x")
    rows = [Row(name="row", title="a title", lines=[line])]
    table = "| **a title** | | | | |\n| ours | theirs | 3.20 x | 4.00 x | >= 1 x |\n"
    assert chart.of_rows(rows) == chart.of_table(table)


def test_a_figure_that_was_not_measured_is_missed() -> None:
    with pytest.raises(KeyError):
        chart.draw({})
