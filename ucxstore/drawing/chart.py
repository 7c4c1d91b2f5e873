"""Draw a bar chart of a few rows as SVG: for a page, or as an image of its own.

Horizontal positions are in percent: in a page the bars follow its width and the text keeps its
size; an image has a width. Vertical positions are in pixels.
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import accumulate

from markupsafe import Markup

from ucxstore.drawing.templates import render

_PLOT = 76.0  # percent of the width for the bars; the rest is for what stands beside them
_TITLE = 26  # from the top to the axis
_NOTE = 20  # what a note below the title adds
_AXIS = 24
_LABEL = 20
_BAR = 19  # a bar, and the gap below it
_ROW_GAP = 12

_STEPS = (0.25, 0.5, 1.0, 2.0, 5.0, 10.0, 20.0, 50.0, 100.0)  # between grid lines, in the unit
_MOST_LINES = 5


@dataclass(frozen=True, slots=True)
class Bar:
    """A bar, and what is written beside it; where a mark crosses it, if there is one."""

    value: float
    text: str
    mark: float | None = None


@dataclass(frozen=True, slots=True)
class Bars:
    """A row of the chart: its label, and a bar or two below it.

    Parameters
    ----------
    label : str
    bars : sequence of Bar
        The first is drawn in one colour, the second in another.
    own : bool
        Whether the label is bold.
    tip : str
        What the pointer shows over the row.
    """

    label: str
    bars: Sequence[Bar]
    own: bool = False
    tip: str = ""


def scale_of(rows: Iterable[Bars]) -> float:
    """Return the largest value of a chart; at least one.

    For charts that are compared, call this once with all their rows.
    """
    bars = [bar for row in rows for bar in row.bars]
    values = (value for bar in bars for value in (bar.value, bar.mark or 0))
    return max(filter(math.isfinite, (1.0, *values)))


def draw(
    title: str,
    description: str,
    rows: Sequence[Bars],
    *,
    unit: str = "",
    note: str = "",
    image: bool = False,
    name: str = "bars",
    scale: float | None = None,
) -> Markup:
    """Draw the rows from top to bottom, on one scale.

    Parameters
    ----------
    title : str
        What the chart shows: its first line.
    description : str
        For those who cannot see it.
    rows : sequence of Bars
    unit : str
        Written after the 1 of the axis: ``"1 array"``.
    note : str
        A sentence below the title, of one line.
    image : bool
        Make an image with a width, a ground and a style; else an element for a page, as wide as
        there is room.
    name : str
        A part of ids, unique on the page.
    scale : float, optional
        The result of `scale_of`; of these rows by default.

    Returns
    -------
    Markup
        An ``svg`` element.
    """
    largest = scale_of(rows) if scale is None else scale
    step = next((s for s in _STEPS if largest / s <= _MOST_LINES), largest)
    axis = _TITLE + (_NOTE if note else 0) + _AXIS
    heights = (_LABEL + len(row.bars) * _BAR + _ROW_GAP for row in rows)
    *tops, height = accumulate(heights, initial=axis)
    return render(
        "chart.svg.jinja",
        title=title,
        description=description,
        rows=list(zip(rows, tops, strict=True)),
        lines=[i * step for i in range(math.floor(largest / step) + 1)],
        across=lambda value: _across(value, largest),
        axis=axis,
        height=height,
        unit=unit,
        note=note,
        image=image,
        name=name,
        label=_LABEL,
        step=_BAR,
    )


def _across(value: float, scale: float) -> str:
    """Return the horizontal position of a value; 0 if it is negative or not a number."""
    share = value / scale if math.isfinite(value) else 0
    return f"{min(max(share, 0), 1) * _PLOT:.3f}%"
