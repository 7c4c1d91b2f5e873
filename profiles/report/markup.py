"""Write tables as plain text or Markdown; the text of cells is escaped."""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from urllib.parse import quote

from ucxstore.cli.common.text import columns
from ucxstore.copies.figures import clean

# Characters that begin a tag, a link, emphasis, code or the next cell. An underscore within a word
# is literal in GitHub's Markdown, but not in all others.
_SPECIAL = re.compile(r"([\\`*_\[\]<>|~#&$])")


@dataclass(frozen=True, slots=True)
class Cell:
    """The text of a cell, with a link if there is one."""

    text: str
    link: str = ""
    strong: bool = False


@dataclass(frozen=True, slots=True)
class Table:
    """A table with a title, and notes that cells refer to by number.

    Columns that are empty in all rows are left out.
    """

    title: str
    header: Sequence[str]
    rows: Sequence[Sequence[Cell]]
    notes: Sequence[str] = ()


class Notes:
    """The notes of a table. Equal notes have one number."""

    def __init__(self) -> None:
        self._numbers: dict[str, int] = {}

    def mark(self, note: str) -> str:
        """Return the mark for a cell: "(1)" for the first note."""
        return f"({self._numbers.setdefault(clean(note), len(self._numbers) + 1)})"

    def lines(self) -> list[str]:
        """Return the lines under the table."""
        return [f"({number}) {note}" for note, number in self._numbers.items()]


def plain_table(table: Table) -> str:
    """Write a table as plain text with aligned columns."""
    header, rows = _without_empty_columns(table)
    lines = [header, *([clean(cell.text) for cell in row] for row in rows)]
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    body = columns([header, ["-" * width for width in widths], *lines[1:]])
    return "\n".join([*([clean(table.title), ""] if table.title else []), *body, *table.notes])


def markdown_table(table: Table) -> str:
    """Write a table in GitHub's Markdown."""
    header, rows = _without_empty_columns(table)
    lines = [f"### {escape_markdown(table.title)}", ""] if table.title else []
    lines += [_pipes(map(escape_markdown, header)), _pipes(["---"] * len(header))]
    lines += [_pipes(map(_markdown_cell, row)) for row in rows]
    if table.notes:  # as a list, else they would be one paragraph
        lines += ["", *(f"- {escape_markdown(note)}" for note in table.notes)]
    return "\n".join(lines)


def escape_markdown(text: str) -> str:
    """Escape text, so that Markdown shows it as it is."""
    return _SPECIAL.sub(r"\\\1", clean(text))


def _markdown_cell(cell: Cell) -> str:
    text = escape_markdown(cell.text)
    if cell.link:
        text = f"[{text}]({quote(cell.link)})"
    return f"**{text}**" if cell.strong and text else text


def _pipes(cells: Iterable[str]) -> str:
    return f"| {' | '.join(cells)} |"


def _without_empty_columns(table: Table) -> tuple[list[str], list[list[Cell]]]:
    kept = [
        index for index in range(len(table.header)) if any(row[index].text for row in table.rows)
    ]
    header = [clean(table.header[index]) for index in kept]
    return header, [[row[index] for index in kept] for row in table.rows]
