"""Draw the chart of README and docs/performance.md: reads and writes beside those of numpy.

``make bench`` draws it from the rows that it has measured. ``python -m benchmarks.chart`` draws it
from the table of docs/performance.md, which is committed.
"""

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import NamedTuple

from benchmarks.report import number
from benchmarks.result import Row
from ucxstore.drawing import chart

_DOCS = Path(__file__).parents[1] / "docs"
TABLE = _DOCS / "performance.md"
IMAGE = _DOCS / "images/bench.svg"

_TITLE = "How fast: 100 MB at a server of this machine, beside numpy"
_NOTE = (
    "1 is numpy: np.copyto into a new array; for the sum, an array in memory. 2: in half the time."
)


class Figure(NamedTuple):
    """Names a line of the table: the title of its row, what was measured, against what."""

    title: str
    what: str
    against: str


class Bar(NamedTuple):
    label: str
    figure: Figure


_READ = "ucxstore, local, memory storage, recycled"
_COPY = "np.copyto, fresh array"

# Each against what numpy takes in the memory of its own process. The first three belong together: a
# read that maps pages has not touched them yet, so beside it stands one that looks at each byte.
BARS = (
    Bar(
        "z[:] of one chunk: its pages are mapped, and none is touched yet",
        Figure("100 MB raw, one chunk, z[:]", _READ, _COPY),
    ),
    Bar(
        "z[:].sum() of it: every byte is looked at",
        Figure(
            "100 MB raw, one chunk, handed out by z[:], and summed",
            f"summed: {_READ}",
            "summed: an array in memory",
        ),
    ),
    Bar(
        "z[:] = x, one chunk",
        Figure("100 MB raw, one chunk, z[:] = x", "ucxstore, local, memory storage", _COPY),
    ),
    Bar(
        "z[:] of 10 x 10 chunks: they are copied into place",
        Figure(
            "100 MB raw in 10 x 10 chunks, z[:]", "ucxstore, local, memory storage, fresh", _COPY
        ),
    ),
    Bar(
        "z[:] of one chunk, over TCP",
        Figure(
            "100 MB raw, one chunk, z[:], TCP on loopback",
            "ucxstore, TCP, memory storage, recycled",
            _COPY,
        ),
    ),
)


def of_rows(rows: Iterable[Row]) -> dict[Figure, float]:
    """Return the medians of what was measured, as the table has them."""
    return {
        Figure(row.title, line.what, line.against): float(number(line.median))
        for row in rows
        for line in row.lines
    }


def of_table(markdown: str) -> dict[Figure, float]:
    """Return the medians of a table in Markdown, as in docs/performance.md."""
    found = {}
    title = ""
    for line in markdown.splitlines():
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        if len(cells) == 5 and cells[0].startswith("**"):
            title = cells[0].strip("*")
        elif len(cells) == 5 and cells[2].endswith(" x"):
            found[Figure(title, cells[0], cells[1])] = float(cells[2].removesuffix(" x"))
    return found


def draw(medians: Mapping[Figure, float]) -> str:
    """Draw the bars as SVG.

    Raises
    ------
    KeyError
        If one of them was not measured.
    """
    values = {bar.label: medians[bar.figure] for bar in BARS}
    rows = [chart.Bars(label, [chart.Bar(x, f"{x:.2g} x")]) for label, x in values.items()]
    told = "; ".join(f"{label}: {x:.2g} times as fast" for label, x in values.items())
    return chart.draw(_TITLE, f"{_NOTE} {told}.", rows, unit="x", note=_NOTE, image=True)


if __name__ == "__main__":
    IMAGE.write_text(draw(of_table(TABLE.read_text())))
