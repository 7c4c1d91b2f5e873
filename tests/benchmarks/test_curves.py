"""Curves as SVG: where points stand, and what is refused."""

from xml.etree import ElementTree

import pytest

from ucxstore.drawing.curves import Panel, draw

SVG = "{http://www.w3.org/2000/svg}"


def drawn(*panels: Panel, logarithmic: bool = False) -> ElementTree.Element:
    marks = ["1", "8", "64"]
    return ElementTree.fromstring(
        draw("title", "told", panels, marks, note="note", logarithmic=logarithmic)
    )


def points(picture: ElementTree.Element, curve: int = 0) -> list[tuple[float, float]]:
    """Return the points of a curve; those of the legend come after all."""
    line = [*picture.iter(f"{SVG}polyline")][curve].get("points", "")
    pairs = [pair.split(",") for pair in line.split()]
    return [(float(x), float(y)) for x, y in pairs]


def test_heights_are_proportional_to_values() -> None:
    picture = drawn(Panel("a", {"one": [1.0, 2.0, 4.0], "zero": [0.0, 0.0, 0.0]}))
    ground = points(picture, 1)[0][1]
    heights = [ground - y for _, y in points(picture)]
    assert heights[1] == pytest.approx(2 * heights[0], abs=0.2)
    assert heights[2] == pytest.approx(4 * heights[0], abs=0.2)


def test_marks_are_at_equal_distances() -> None:
    (first, _), (second, _), (third, _) = points(drawn(Panel("a", {"one": [1.0, 2.0, 4.0]})))
    assert second - first == pytest.approx(third - second, abs=0.2)


def test_each_power_of_ten_is_as_high_as_the_other() -> None:
    picture = drawn(Panel("a", {"one": [0.1, 1.0, 10.0]}), logarithmic=True)
    (_, low), (_, middle), (_, high) = points(picture)
    assert low - middle == pytest.approx(middle - high, abs=0.2)


def test_panels_have_scales_of_their_own() -> None:
    small, large = Panel("a", {"one": [0.1] * 3}), Panel("b", {"one": [10.0] * 3})
    picture = drawn(small, large)
    assert [y for _, y in points(picture, 0)] == [y for _, y in points(picture, 1)]


def test_a_value_that_is_not_there_has_no_point() -> None:
    picture = drawn(Panel("a", {"one": [1.0, None, float("nan")]}))
    assert len(points(picture)) == 1


def test_text_is_escaped_and_each_name_is_once_in_the_legend() -> None:
    picture = drawn(Panel("<a>", {"x & y": [1.0] * 3}), Panel("b", {"x & y": [1.0] * 3}))
    texts = [text.text for text in picture.iter(f"{SVG}text")]
    assert texts.count("x & y") == 1
    assert "<a>" in texts


def test_a_panel_without_a_value_is_refused() -> None:
    with pytest.raises(ValueError, match="b: there is no value"):
        drawn(Panel("a", {"one": [1.0] * 3}), Panel("b", {"one": [None] * 3}))
