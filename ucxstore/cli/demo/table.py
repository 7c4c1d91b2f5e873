"""Aligned tables for a terminal."""

from ucxstore.base.showing import terminal_width, text_columns

_INDENT = "   "


class TextTable:
    """Rows of cells under a heading. Numbers are aligned right, text left.

    It is as wide as the terminal at the most. Long texts go on in the next line.

    Parameters
    ----------
    *heading : str
        The names of the columns.
    """

    def __init__(self, *heading: str) -> None:
        self._rows = [list(heading)]

    def add(self, *cells: object) -> None:
        """Add a row, which may be shorter than the heading."""
        texts = [str(cell) for cell in cells]
        self._rows.append(texts + [""] * (len(self._rows[0]) - len(texts)))

    def __str__(self) -> str:
        columns = zip(*self._rows, strict=True)
        numbers = [place for place, column in enumerate(columns) if _is_of_numbers(column[1:])]
        width = terminal_width() - len(_INDENT)
        lines = text_columns(self._rows, right=numbers, width=width)
        return "\n".join(f"{_INDENT}{line}".rstrip() for line in lines)


def _is_of_numbers(cells: tuple[str, ...]) -> bool:
    return any(cells) and all(_is_number(cell) for cell in cells if cell)


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True
