"""The chart that `make bench` draws, and that README shows."""

from xml.etree import ElementTree

import pytest

from benchmarks import candidates, chart
from benchmarks.result import Line, Row

MEDIANS = {bar.figure: float(number) for number, bar in enumerate(chart.BARS, start=1)}
SVG = "{http://www.w3.org/2000/svg}"


def test_the_committed_chart_has_the_figures_of_the_committed_table() -> None:
    assert chart.IMAGE.read_text() == chart.draw(chart.of_table(chart.TABLE.read_text()))


def test_bars_are_as_long_as_their_figures() -> None:
    picture = ElementTree.fromstring(chart.draw(MEDIANS))
    bars = [bar for bar in picture.iter(f"{SVG}rect") if "bar" in bar.get("class", "").split()]
    lengths = [float(bar.get("width", "").rstrip("%")) for bar in bars]
    assert [round(length / lengths[0], 1) for length in lengths] == [1, 2, 3, 4, 5]


def test_all_bars_have_one_baseline() -> None:
    """numpy in the memory of its process; and beside what is only mapped stands what reads it."""
    against = {bar.figure.against for bar in chart.BARS}
    assert against == {candidates.COPY, "summed: an array in memory"}
    mapped, summed, written, *_ = [bar.figure for bar in chart.BARS]
    assert summed.what == f"summed: {mapped.what}"
    assert written.title == f"{mapped.title} = x"


def test_the_words_fit_the_picture() -> None:
    picture = ElementTree.fromstring(chart.draw(MEDIANS))
    width = float(picture.get("width", ""))
    texts = {text.get("class"): text.text or "" for text in picture.iter(f"{SVG}text")}
    assert len(texts["title"]) * 10 < width  # in Chromium with DejaVu: 9.2 pixels each
    assert len(texts["note"]) * 6.7 < width


def test_rows_and_their_table_have_the_same_figures() -> None:
    line = Line(what="ours", against="theirs", median=3.204, minimum=4, unit="x")
    rows = [Row(name="row", title="a title", lines=[line])]
    table = "| **a title** | | | | |\n| ours | theirs | 3.20 x | 4.00 x | >= 1 x |\n"
    assert chart.of_rows(rows) == chart.of_table(table)


def test_a_figure_that_was_not_measured_is_missed() -> None:
    with pytest.raises(KeyError):
        chart.draw({})
