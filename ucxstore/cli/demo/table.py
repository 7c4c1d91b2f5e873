"""Aligned tables for a terminal."""

_INDENT = "   "
_GAP = "  "


class Table:
    """Rows of cells under a heading. Numbers are aligned right, text left.

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
        columns = [_align(list(column)) for column in zip(*self._rows, strict=True)]
        lines = (_GAP.join(row) for row in zip(*columns, strict=True))
        return "\n".join(f"{_INDENT}{line}".rstrip() for line in lines)


def _align(cells: list[str]) -> list[str]:
    width = max(map(len, cells))
    right = any(cells[1:]) and all(_is_number(cell) for cell in cells[1:] if cell)
    return [cell.rjust(width) if right else cell.ljust(width) for cell in cells]


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True
