"""Write the page of ``ucxstore copies --page``: a chart, and the figures below it."""

from collections.abc import Sequence

from ucxstore.copies.figures import (
    READ_NOTE,
    READ_TITLE,
    fixed_memory,
    name_culprits,
    pair,
    read_bars,
    weight,
)
from ucxstore.copies.quick import Result
from ucxstore.drawing.chart import draw
from ucxstore.drawing.page import Section, paragraph, write_page
from ucxstore.drawing.tables import Cell, Table

_CODECS = ("raw", "zstd")  # of the chart's reads
_WHAT = (
    f"{READ_NOTE} The array is one chunk of random numbers. Each bar is the larger of two figures, "
    "the peak and the total."
)


def render_page(results: Sequence[Result], *, left: int = 0, note: str = "") -> str:
    """Return the page as HTML.

    Parameters
    ----------
    results : sequence of Result
        Those so far.
    left : int
        The transfers that are still to come.
    note : str
        What to keep in mind about the figures.
    """
    fixed = fixed_memory((one.row.name, one.counts) for one in results if one.counts is not None)
    opening = [*_chart(results), *(paragraph(text, "muted") for text in (fixed, note) if text)]
    details = [
        Section(f"{direction}: all figures", [_table(direction, results)])
        for direction in ("read", "write")
    ]
    return write_page("Copies, counted", opening, details, left=left, what="transfer")


def _chart(results: Sequence[Result]) -> list[str]:
    found: dict[tuple[str, str], dict[str, float]] = {}
    for one in results:
        load = one.workload
        is_shown = (load.direction, load.layout) == ("read", "one") and load.codec in _CODECS
        if is_shown and one.counts is not None:
            found.setdefault((one.row.name, one.row.pipeline), {})[load.codec] = weight(one.counts)
    whole = [(row, values) for row, values in found.items() if len(values) == len(_CODECS)]
    rows = [
        read_bars(f"{store} ({pipeline})", **values, own=pipeline == "zero-copy")
        for (store, pipeline), values in sorted(whole, key=lambda one: sum(one[1].values()))
    ]
    if not rows:
        return []
    return [draw(READ_TITLE, _WHAT, rows, unit="array"), paragraph(_WHAT, "muted")]


def _table(direction: str, results: Sequence[Result]) -> Table:
    header = ("store", "pipeline", "codec", "layout", "peak / total", "culprit")
    rows = [
        (one.row.name, one.row.pipeline, one.workload.codec, one.workload.layout, *_figures(one))
        for one in results
        if one.workload.direction == direction
    ]
    cells = [[*map(Cell, row)] for row in rows]
    return Table(f"{direction}, in multiples of the array", header, cells, right=[4])


def _figures(result: Result) -> tuple[str, str]:
    counts = result.counts
    if counts is None:
        return "failed", result.error
    return pair(counts.peak_extra, counts.total), name_culprits(counts, result.workload.nbytes)
