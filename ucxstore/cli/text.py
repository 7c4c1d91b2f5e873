"""Text for a terminal: sizes, counts, names, tables."""

from ucxstore.showing import printable, size_text
from ucxstore.showing import text_columns as columns

__all__ = ["columns", "count_text", "printable", "size_text"]


def count_text(count: int, what: str) -> str:
    """Format a number of things: ``"1 value"``, ``"2,000 values"``."""
    return f"{count:,} {what}{'' if count == 1 else 's'}"
