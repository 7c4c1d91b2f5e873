"""Print each row when it is measured, and write all rows as a Markdown table."""

from collections.abc import Iterable, Sequence

from benchmarks.result import Line, Row
from benchmarks.timing import Times
from ucxstore.base.showing import text_columns
from ucxstore.drawing.tables import markdown_rows

_HEADING = ("what", "against", "median", "minimum", "target", "reached")


def print_row(row: Row, load: str) -> None:
    print(f"\n{row.name}: {row.title}\n  machine: {load}")
    _print_table([_HEADING, *(_cells(line) for line in row.lines)])
    if row.times:
        print("  times, with the range of the middle half")
        _print_table([(name, *_time_cells(times)) for name, times in row.times.items()])
    for note in row.notes:
        print(f"  {note}")


def markdown(rows: Iterable[Row]) -> str:
    cells = (
        ("" if number else row.title, *_cells(line))
        for row in rows
        for number, line in enumerate(row.lines)
    )
    return "\n".join(markdown_rows(("row", *_HEADING), cells))


def markdown_lines(lines: Iterable[Line]) -> str:
    """Write lines that belong to one row as a table without it."""
    return "\n".join(markdown_rows(_HEADING, map(_cells, lines)))


def misses(rows: Iterable[Row]) -> list[str]:
    return [
        f"{row.name}: {line.what}{_against(line)} is {number(line.median)} {line.unit}, "
        f"not {line.target}"
        for row in rows
        for line in row.lines
        if line.missed
    ]


def _against(line: Line) -> str:
    return f" against {line.against}" if line.against else ""


def _cells(line: Line) -> tuple[str, ...]:
    verdict = {None: "", True: "yes", False: "**no**"}[line.reached]
    if line.target is not None and not line.counts:
        verdict = f"({verdict.strip('*')}; beside)"
    return (
        line.what,
        line.against,
        f"{number(line.median)} {line.unit}",
        f"{number(line.minimum)} {line.unit}",
        "" if line.target is None else f"{line.target} {line.unit}",
        verdict,
    )


def number(value: float) -> str:
    """Return a figure as it is printed."""
    if abs(value) >= 100:
        return f"{value:,.0f}"
    return f"{value:.2f}" if abs(value) < 10 else f"{value:.1f}"


def _time_cells(times: Times) -> tuple[str, ...]:
    return (
        f"median {_duration(times.median)}",
        f"minimum {_duration(times.minimum)}",
        f"{times.spread:.0%}",
        f"of {len(times.seconds)}",
    )


def _duration(seconds: float) -> str:
    if seconds < 1e-3:
        return f"{seconds * 1e6:.1f} us"
    return f"{seconds * 1e3:.1f} ms"


def _print_table(rows: Sequence[Sequence[str]]) -> None:
    for line in text_columns(rows):
        print(f"    {line}", flush=True)
