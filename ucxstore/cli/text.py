"""Text for a terminal: sizes, counts, names, tables, errors."""

from ucxstore.showing import printable, size_text
from ucxstore.showing import text_columns as columns

__all__ = ["columns", "count_text", "one_line", "printable", "size_text"]


def count_text(count: int, what: str) -> str:
    """Format a number of things: ``"1 value"``, ``"2,000 values"``."""
    return f"{count:,} {what}{'' if count == 1 else 's'}"


def one_line(error: BaseException) -> str:
    """Return an error without Python's number of it: ``"No such file or directory: /nope"``."""
    if isinstance(error, OSError) and error.strerror:
        return error.strerror + (f": {error.filename}" if error.filename else "")
    return str(error)
