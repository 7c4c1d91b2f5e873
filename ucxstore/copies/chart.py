"""Draw a bar chart of a few rows as SVG: for a page, or as an image of its own.

The colours are in the SVG, for light and dark pages. Horizontal positions are in percent: in a page
the bars follow its width and the text keeps its size; an image has a width.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from html import escape

from ucxstore.copies.figures import clean

_PLOT = 76.0  # percent of the width for the bars; the rest is for what stands beside them
_IMAGE_WIDTH = 720  # pixels, like all that follow
_TITLE = 26  # from the top to the axis
_NOTE = 20  # what a note below the title adds
_AXIS = 24
_LABEL = 20
_BAR = 16
_BAR_GAP = 3
_ROW_GAP = 12
_TEXT_DROP = 12.5  # from the top of a bar to the baseline of its text
_BESIDE = 7

_STEPS = (0.25, 0.5, 1.0, 2.0, 5.0, 10.0, 20.0, 50.0, 100.0)  # between grid lines, in the unit
_MOST_LINES = 5

# Contrast with both grounds is at least 4.5:1 for text and 3:1 for bars.
_STYLE = """
.bars { color-scheme: light dark; }
.bars .ground { fill: #ffffff; }
.bars text { fill: #1a1f26; font: 14px system-ui, sans-serif; }
.bars .axis { fill: #56606c; font-size: 12px; }
.bars .title { font-size: 16px; font-weight: 700; }
.bars .note { fill: #56606c; font-size: 13px; }
.bars .own { font-weight: 700; }
.bars .value { font-variant-numeric: tabular-nums; }
.bars .line { stroke: #d5dae0; }
.bars .one { fill: #1f6fb8; }
.bars .two { fill: #c25a12; }
@media (prefers-color-scheme: dark) {
  .bars .ground { fill: #14181d; }
  .bars text { fill: #e8ebef; }
  .bars .axis { fill: #a3adb8; }
  .bars .note { fill: #a3adb8; }
  .bars .line { stroke: #3a434d; }
  .bars .one { fill: #4a98e6; }
  .bars .two { fill: #ffa45c; }
}
"""


@dataclass(frozen=True, slots=True)
class Bar:
    """A bar, and what is written beside it."""

    value: float
    text: str


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
    """

    label: str
    bars: Sequence[Bar]
    own: bool = False


def draw(
    title: str,
    description: str,
    rows: Sequence[Bars],
    *,
    unit: str = "",
    note: str = "",
    image: bool = False,
) -> str:
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
        Make an image with a width and a ground; else an element for a page, as wide as there is
        room.

    Returns
    -------
    str
        An ``svg`` element.
    """
    axis = _TITLE + (_NOTE if note else 0) + _AXIS
    tops, height = [], float(axis)
    for row in rows:
        tops.append(height)
        height += _LABEL + len(row.bars) * (_BAR + _BAR_GAP) + _ROW_GAP
    scale = max(filter(math.isfinite, (1.0, *(bar.value for row in rows for bar in row.bars))))
    size = (
        f'width="{_IMAGE_WIDTH}" height="{height:g}" viewBox="0 0 {_IMAGE_WIDTH} {height:g}"'
        if image
        else f'width="100%" height="{height:g}"'
    )
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" class="bars" {size} role="img" '
        'aria-labelledby="bars-title bars-description">',
        f'<title id="bars-title">{_text(title)}</title>',
        f'<desc id="bars-description">{_text(description)}</desc>',
        f"<style>{_STYLE}</style>",
        *(['<rect class="ground" width="100%" height="100%"/>'] if image else []),
        '<g transform="translate(12 0)">' if image else '<g transform="translate(1 0)">',
        f'<text class="title" x="0" y="{_TITLE - 6}">{_text(title)}</text>',
        *([f'<text class="note" x="0" y="{_TITLE + 12}">{_text(note)}</text>'] if note else []),
        *_draw_axis(scale, axis, height, unit),
        *(_draw_row(row, top, scale) for row, top in zip(rows, tops, strict=True)),
        "</g>",
        "</svg>",
    ]
    return "\n".join(parts) + "\n"


def _draw_axis(scale: float, top: float, height: float, unit: str) -> Iterator[str]:
    step = next((s for s in _STEPS if scale / s <= _MOST_LINES), scale)
    for i in range(math.floor(scale / step) + 1):
        x = _across(i * step, scale)
        anchor = "middle" if i else "start"
        name = f"{i * step:g} {unit}" if unit and i * step == 1 else f"{i * step:g}"
        yield f'<line class="line" x1="{x}" y1="{top - 6}" x2="{x}" y2="{height:g}"/>'
        yield (
            f'<text class="axis" x="{x}" y="{top - 10}" text-anchor="{anchor}">{_text(name)}</text>'
        )


def _draw_row(row: Bars, top: float, scale: float) -> str:
    style = "label own" if row.own else "label"
    parts = [f'<text class="{style}" x="0" y="{top + _LABEL - 5:g}">{_text(row.label)}</text>']
    top += _LABEL
    for bar, colour in zip(row.bars, ("one", "two"), strict=False):
        x = _across(bar.value, scale)
        parts.append(
            f'<rect class="bar {colour}" x="0" y="{top:g}" width="{x}" height="{_BAR}"/>'
            f'<text class="value" x="{x}" y="{top + _TEXT_DROP:g}" dx="{_BESIDE}">'
            f"{_text(bar.text)}</text>"
        )
        top += _BAR + _BAR_GAP
    return "".join(parts)


def _across(value: float, scale: float) -> str:
    """Return the horizontal position of a value; 0 if it is negative or not a number."""
    share = value / scale if math.isfinite(value) else 0
    return f"{min(max(share, 0), 1) * _PLOT:.3f}%"


def _text(text: str) -> str:
    return escape(clean(text))
