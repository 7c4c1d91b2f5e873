"""Draw curves as an SVG image: panels with a scale each, several curves in each, one legend.

All positions are in pixels.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from markupsafe import Markup

from ucxstore.drawing.templates import render

_COLUMNS = 2
_WIDTH = 720
_EDGE = 12
_HEAD = 52  # title and note
_PANEL = 210  # of a panel, with its title and axis
_TITLE = 24
_AXIS = 26
_LEFT = 46  # of a panel, for the numbers of its axis
_RIGHT = 14
_LEGEND = 22  # a row of the legend
_LEGEND_COLUMNS = 3

_LINES = 4  # of a linear scale, above 0
_KINDS = 8  # of curves, that look different


@dataclass(frozen=True, slots=True)
class Panel:
    """One part of the picture: its title, and the curves by name.

    A curve has a value for each mark of the axis, or ``None`` where it has none.
    """

    title: str
    curves: Mapping[str, Sequence[float | None]]


@dataclass(frozen=True, slots=True)
class _Axis:
    """The vertical axis of a panel."""

    low: float
    high: float
    is_logarithmic: bool

    def share(self, value: float) -> float:
        """Return how far up a value is, from 0 to 1."""
        if self.is_logarithmic:
            low, high = math.log10(self.low), math.log10(self.high)
            return (math.log10(max(value, self.low)) - low) / (high - low)
        return value / self.high

    def lines(self) -> list[float]:
        """Return the values that have lines."""
        if self.is_logarithmic:
            decades = range(round(math.log10(self.low)), round(math.log10(self.high)) + 1)
            return [10.0**decade for decade in decades]
        return [self.high * number / _LINES for number in range(_LINES + 1)]


def draw(
    title: str,
    description: str,
    panels: Sequence[Panel],
    marks: Sequence[str],
    *,
    note: str = "",
    logarithmic: bool = False,
) -> Markup:
    """Draw the panels, two beside each other.

    Parameters
    ----------
    title : str
        What the picture shows.
    description : str
        Text in place of the picture, for screen readers.
    panels : sequence of Panel
    marks : sequence of str
        The marks of the horizontal axis, at equal distances.
    note : str
        A line below the title.
    logarithmic : bool
        Whether the vertical axis has a line for each power of ten; then no value may be 0.

    Returns
    -------
    Markup
        An ``svg`` element with a ground and a style.

    Raises
    ------
    ValueError
        If a panel has no value at all.
    """
    names = list(dict.fromkeys(name for panel in panels for name in panel.curves))
    rows = -(-len(panels) // _COLUMNS)
    legend = -(-len(names) // _LEGEND_COLUMNS)
    return render(
        "curves.svg.jinja",
        title=title,
        description=description,
        note=note,
        width=_WIDTH,
        height=_HEAD + rows * _PANEL + legend * _LEGEND + _EDGE,
        edge=_EDGE,
        panels=[
            _placed(panel, number, names, marks, _axis(panel, logarithmic))
            for number, panel in enumerate(panels)
        ],
        legend=[
            {
                "name": name,
                "kind": number % _KINDS,
                "x": _EDGE + number % _LEGEND_COLUMNS * (_WIDTH - 2 * _EDGE) // _LEGEND_COLUMNS,
                "y": _HEAD + rows * _PANEL + number // _LEGEND_COLUMNS * _LEGEND + 14,
            }
            for number, name in enumerate(names)
        ],
    )


def _axis(panel: Panel, logarithmic: bool) -> _Axis:
    values = (value for curve in panel.curves.values() for value in curve)
    there = [value for value in values if value is not None and math.isfinite(value)]
    if not there:
        raise ValueError(f"{panel.title}: there is no value to draw")
    if logarithmic:
        low, high = (math.log10(one) for one in (min(there), max(there)))
        least = math.floor(low)
        return _Axis(10.0**least, 10.0 ** max(math.ceil(high), least + 1), True)
    return _Axis(0.0, _round_up(max(there)), False)


def _round_up(value: float) -> float:
    """Return the next of 1, 2, 4, 6, 8, 10, ... times a power of ten: a fourth of it is short."""
    if value <= 0:
        return 1.0
    decade = 10.0 ** math.floor(math.log10(value))
    return next(step * decade for step in (1, 2, 4, 6, 8, 10) if step * decade >= value * 0.999)


def _placed(
    panel: Panel, number: int, names: Sequence[str], marks: Sequence[str], axis: _Axis
) -> dict[str, object]:
    """Return what the template needs of a panel."""
    width = (_WIDTH - 2 * _EDGE) / _COLUMNS
    left = _EDGE + number % _COLUMNS * width + _LEFT
    right = left + width - _LEFT - _RIGHT
    top = _HEAD + number // _COLUMNS * _PANEL + _TITLE
    bottom = top + _PANEL - _TITLE - _AXIS

    def across(place: int) -> float:
        return left + (right - left) * (place + 0.5) / len(marks)

    def up(value: float) -> float:
        return bottom - (bottom - top) * axis.share(value)

    return {
        "title": panel.title,
        "left": left,
        "right": right,
        "top": top,
        "bottom": bottom,
        "lines": [(up(value), f"{value:g}") for value in axis.lines()],
        "marks": [(across(place), mark) for place, mark in enumerate(marks)],
        "curves": [
            {
                "kind": names.index(name) % _KINDS,
                "points": [
                    (round(across(place), 1), round(up(value), 1), f"{name}: {value:.3g}")
                    for place, value in enumerate(curve)
                    if value is not None and math.isfinite(value)
                ],
            }
            for name, curve in panel.curves.items()
        ],
    }
