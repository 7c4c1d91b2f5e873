"""Draw a bar chart of one workload as SVG, with the page's style sheet.

Horizontal positions are in percent: bars follow the width of the page, and text keeps its size.
Vertical positions are in pixels. The two bars differ not only in colour, but also in filling and
outline, and each has its figure and its name.
"""

import math
from collections.abc import Iterable, Iterator, Sequence
from html import escape

from profiles.report.best import Best, best
from profiles.report.cases import row_of
from profiles.result import CaseResult
from ucxstore.copies import Counts
from ucxstore.copies.figures import clean, figure, name_culprits

_PLOT = 78.0  # percent of the width for the bars; the rest is for the figures
_AXIS = 22  # pixels, like the next five
_LABEL = 16
_BAR = 10
_BAR_GAP = 2
_ROW_GAP = 12
_ROW = _LABEL + 2 * _BAR + _BAR_GAP + _ROW_GAP
_TICK_OVERHANG = 1.5  # pixels by which the mark of the best exceeds its bar at each end

_STEPS = (0.25, 0.5, 1.0, 2.0, 5.0, 10.0, 20.0, 50.0, 100.0)  # arrays between grid lines
_MOST_LINES = 5


def scale_of(cases: Iterable[CaseResult]) -> float:
    """Return the largest value of a chart, in arrays; at least one.

    For charts that are compared, call this once with all their cases.
    """
    values = (
        value
        for case in cases
        if case.counts is not None
        for value in (case.counts.peak_extra, case.counts.total, best(case).peak, best(case).total)
    )
    return max(filter(math.isfinite, (1.0, *values)))


def draw(title: str, identifier: str, cases: Sequence[CaseResult], scale: float) -> str:
    """Draw the cases of one workload.

    Parameters
    ----------
    title : str
        The title, for screen readers.
    identifier : str
        A part of ids, unique on the page.
    cases : sequence of CaseResult
        One row for each, from top to bottom.
    scale : float
        The result of `scale_of`.

    Returns
    -------
    str
        An ``svg`` element.
    """
    height = _AXIS + _ROW * len(cases)
    ids = f"{identifier}-title {identifier}-desc"
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" class="chart" width="100%" height="{height}" '
        f'role="img" aria-labelledby="{ids}">',
        f'<title id="{identifier}-title">{_text(title)}</title>',
        f'<desc id="{identifier}-desc">{_text(_describe(cases))}</desc>',
        '<g transform="translate(2 0)">',  # else a mark at 0 would be cut in half
        *_draw_axis(scale, height),
        *(_draw_row(case, _AXIS + _ROW * i, scale) for i, case in enumerate(cases)),
        "</g>",
        "</svg>",
    ]
    return "\n".join(parts)


def _describe(cases: Sequence[CaseResult]) -> str:
    return (
        f"Bars for {len(cases)} stores, in multiples of the array: extra memory at the peak, and "
        "allocated in all. The table below the chart has the same figures."
    )


def _draw_axis(scale: float, height: float) -> Iterator[str]:
    step = next((s for s in _STEPS if scale / s <= _MOST_LINES), scale)
    for i in range(math.floor(scale / step) + 1):
        x = _across(i * step, scale)
        anchor = "middle" if i else "start"
        yield f'<line class="grid" x1="{x}" y1="{_AXIS - 6}" x2="{x}" y2="{height}"/>'
        yield (
            f'<text class="axis" x="{x}" y="{_AXIS - 10}" text-anchor="{anchor}">'
            f"{i * step:g}</text>"
        )


def _draw_row(case: CaseResult, top: float, scale: float) -> str:
    row = row_of(case)
    style = "row ours" if row.is_ours else "row"
    if case.counts is None:
        bars = [_write("failed", "0", top + _LABEL + _BAR, "failed; the reason is below the chart")]
    else:
        bars = list(_draw_bars(case.counts, best(case), top + _LABEL, scale))
    return "".join(
        [
            f'<g class="{style}"><title>{_text(_tooltip(case))}</title>',
            f'<rect class="hit" x="0" y="{top}" width="100%" height="{_ROW}"/>',
            _write("label", "0", top + _LABEL - 4, row.label),
            *bars,
            "</g>",
        ]
    )


def _draw_bars(counts: Counts, ideal: Best, top: float, scale: float) -> Iterator[str]:
    for name, value, least in (
        ("peak", counts.peak_extra, ideal.peak),
        ("total", counts.total, ideal.total),
    ):
        x = _across(least, scale)
        y1, y2 = top - _TICK_OVERHANG, top + _BAR + _TICK_OVERHANG
        after = _across(max(value, least), scale)  # the mark must not cross the figure
        yield (
            f'<rect class="bar {name}" x="0" y="{top}" width="{_across(value, scale)}" '
            f'height="{_BAR}"/>'
            f'<line class="best" x1="{x}" y1="{y1}" x2="{x}" y2="{y2}"/>'
        )
        yield _write("value", after, top + _BAR - 1, f"{figure(value)} {name}", dx=6)
        top += _BAR + _BAR_GAP


def _tooltip(case: CaseResult) -> str:
    label = row_of(case).label
    if case.counts is None:
        return f"{label}: {case.error}"
    ideal = best(case)
    lines = [
        f"{label}: {figure(case.counts.peak_extra)} at the peak, "
        f"{figure(case.counts.total)} in all",
        f"Best: {figure(ideal.peak)} and {figure(ideal.total)}, {ideal.reason}",
        f"By: {name_culprits(case.counts, case.nbytes) or 'many small allocations'}",
    ]
    return ". ".join([*lines, case.note] if case.note else lines)


def _write(style: str, x: str, y: float, text: str, dx: int = 0) -> str:
    return f'<text class="{style}" x="{x}" y="{y}" dx="{dx}">{_text(text)}</text>'


def _across(value: float, scale: float) -> str:
    """Return the horizontal position of a figure; 0 if it is negative or not a number."""
    share = value / scale if math.isfinite(value) else 0
    return f"{min(max(share, 0), 1) * _PLOT:.3f}%"


def _text(text: str) -> str:
    return escape(clean(text))
