"""Draw the chart of README and docs/performance.md: five ratios, as bars.

``make bench`` draws it from the rows that it has measured. ``python -m benchmarks.chart`` draws it
from the table of docs/performance.md, which is committed.
"""

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import NamedTuple
from xml.sax.saxutils import escape

from benchmarks.report import number
from benchmarks.result import Row

_DOCS = Path(__file__).parents[1] / "docs"
TABLE = _DOCS / "performance.md"
IMAGE = _DOCS / "images/bench.svg"


class Figure(NamedTuple):
    """Names a line of the table: the title of its row, what was measured, against what."""

    title: str
    what: str
    against: str


class Bar(NamedTuple):
    label: str
    figure: Figure


_OURS = "ucxstore, local, memory storage, recycled"
_FUSED = "LocalStore, fused"

BARS = (
    Bar(
        "100 MB raw in one chunk, same machine",
        Figure("100 MB raw, one chunk, z[:]", _OURS, _FUSED),
    ),
    Bar(
        "from S3 by 4 Dask workers, second pass (obstore = 1)",
        Figure(
            "1024 MB in S3, 20 ms away, by 4 Dask workers",
            "chunks of 62.5 kB: shared cache, local, second pass",
            "chunks of 62.5 kB: ObjectStore on obstore",
        ),
    ),
    Bar(
        "100 MB raw in one chunk, over TCP",
        Figure(
            "100 MB raw, one chunk, z[:], TCP on loopback",
            "ucxstore, TCP, memory storage, recycled",
            _FUSED,
        ),
    ),
    Bar(
        "100 MB raw in 10 x 10 chunks, same machine",
        Figure("100 MB raw in 10 x 10 chunks, z[:]", _OURS, _FUSED),
    ),
    Bar(
        "100 MB zstd in 10 x 10 chunks, same machine",
        Figure("100 MB compressed, z[:]", f"zstd, grid: {_OURS}", f"zstd, grid: {_FUSED}"),
    ),
)

# Of the picture, in its own units: small enough to be read on a phone.
_WIDTH, _MARGIN, _TOP, _STEP, _THICK = 480, 16, 62, 52, 20
_LONGEST = _WIDTH - 2 * _MARGIN - 60  # beside it stands the number
_INK, _FAINT, _FILL, _PAPER = "#1b1b1f", "#5f6368", "#00796b", "#ffffff"


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
        If one of the five was not measured.
    """
    values = [medians[bar.figure] for bar in BARS]
    height = _TOP + _STEP * len(BARS) + 26
    scale = _LONGEST / max(values)
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {height}" '
        f'width="{_WIDTH}" height="{height}" role="img" '
        'font-family="system-ui, sans-serif" font-size="14">',
        "<title>Reading an array: how many times as fast as by zarr's LocalStore, or from S3 as by "
        "obstore</title>",
        f'<rect width="{_WIDTH}" height="{height}" rx="6" fill="{_PAPER}"/>',
        _text(_MARGIN, 26, "Reading an array: times as fast", _INK, "font-weight='600'"),
        _text(
            _MARGIN, 45, "white line: zarr's LocalStore on warm files = 1; from S3, obstore", _FAINT
        ),
    ]
    for place, (bar, value) in enumerate(zip(BARS, values, strict=True)):
        y = _TOP + _STEP * place
        length = value * scale
        parts += [
            _text(_MARGIN, y + 13, bar.label, _INK),
            f'<rect x="{_MARGIN}" y="{y + 19}" width="{length:.1f}" height="{_THICK}" rx="2" '
            f'fill="{_FILL}"/>',
            f'<rect x="{_MARGIN + scale - 1:.1f}" y="{y + 19}" width="2" height="{_THICK}" '
            f'fill="{_PAPER}"/>',
            _text(_MARGIN + length + 8, y + 34, _number(value), _INK, "font-weight='600'"),
        ]
    bottom = _TOP + _STEP * len(BARS)
    parts += [
        _text(_MARGIN, bottom + 16, "make bench, 2 cores; docs/performance.md has all rows", _FAINT,
              "font-size='12'"),
        "</svg>",
    ]  # fmt: skip
    return "\n".join(parts) + "\n"


def _number(value: float) -> str:
    return f"{value:.0f} x" if value >= 10 else f"{value:.1f} x"


def _text(x: float, y: float, text: str, fill: str, more: str = "") -> str:
    more = f" {more}".replace("'", '"') if more else ""
    return f'<text x="{x:.1f}" y="{y:.1f}" fill="{fill}"{more}>{escape(text)}</text>'


if __name__ == "__main__":
    IMAGE.write_text(draw(of_table(TABLE.read_text())))
