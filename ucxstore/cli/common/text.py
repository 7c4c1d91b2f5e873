"""Text for a terminal: sizes, counts, names, tables."""

from ucxstore.base.showing import printable, size_text
from ucxstore.base.showing import text_columns as columns

__all__ = ["columns", "count_text", "printable", "size_text", "time_text"]


def count_text(count: int, what: str) -> str:
    """Format a number of things: ``"1 value"``, ``"2,000 values"``."""
    return f"{count:,} {what}{'' if count == 1 else 's'}"


def time_text(seconds: float) -> str:
    """Format a time by its largest unit: ``"12 s"``, ``"3 h"``."""
    if seconds < 120:
        return f"{seconds:.0f} s"
    minutes, hours = seconds / 60, seconds / 3600
    if hours < 2:
        return f"{minutes:.0f} min"
    return f"{hours:.0f} h" if hours < 48 else f"{hours / 24:.0f} days"
