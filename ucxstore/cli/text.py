"""Sizes, names and tables for a terminal."""

from collections.abc import Sequence

_UNITS = ("B", "kB", "MB", "GB", "TB", "PB")


def size_text(nbytes: float) -> str:
    """Format a number of bytes with about three digits: ``"1.5 MB"``."""
    value, unit = float(nbytes), 0
    while value >= 999.5 and unit < len(_UNITS) - 1:
        value, unit = value / 1000, unit + 1
    digits = 0 if unit == 0 or value >= 99.95 else 1
    return f"{value:.{digits}f} {_UNITS[unit]}"


def count_text(count: int, what: str) -> str:
    """Format a number of things: ``"1 value"``, ``"2,000 values"``."""
    return f"{count:,} {what}{'' if count == 1 else 's'}"


def printable(name: str) -> str:
    """Escape control characters, which a terminal would obey: anybody can choose a key."""
    if name.isprintable():
        return name
    return "".join(
        one if one.isprintable() else one.encode("unicode_escape").decode() for one in name
    )


def columns(rows: Sequence[Sequence[str]]) -> list[str]:
    """Align rows of equal length in columns; return the lines."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return ["  ".join(map(str.ljust, row, widths)).rstrip() for row in rows]
