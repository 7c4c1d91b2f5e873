"""Tables, and how they are written as plain text and as Markdown; a page has them as HTML."""

import re
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, replace

from ucxstore.base.showing import text_columns
from ucxstore.drawing.templates import clean

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

    Columns that are empty in all rows are left out. Those in `right` have numbers.
    """

    title: str
    header: Sequence[str]
    rows: Sequence[Sequence[Cell]]
    notes: Sequence[str] = ()
    right: Collection[int] = ()

    def shown(self) -> "Table":
        """Return the table without the columns that are left out."""
        places = range(len(self.header))
        kept = [at for at in places if not self.rows or any(row[at].text for row in self.rows)]
        return replace(
            self,
            header=[self.header[at] for at in kept],
            rows=[[row[at] for at in kept] for row in self.rows],
            right=[place for place, at in enumerate(kept) if at in self.right],
        )


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
    shown = table.shown()
    lines = [
        [*map(clean, shown.header)],
        *([clean(cell.text) for cell in row] for row in shown.rows),
    ]
    rule = ["-" * max(map(len, column)) for column in zip(*lines, strict=True)]
    body = text_columns([lines[0], rule, *lines[1:]])
    return "\n".join([clean(table.title), "", *body, *table.notes])


def markdown_table(table: Table) -> str:
    """Write a table in GitHub's Markdown."""
    shown = table.shown()
    lines = [f"### {_escape(table.title)}", ""] if table.title else []
    rows = ([_markdown_cell(cell) for cell in row] for row in shown.rows)
    lines += markdown_rows([_escape(name) for name in shown.header], rows)
    if table.notes:  # as a list, else they would be one paragraph
        lines += ["", *(f"- {_escape(note)}" for note in table.notes)]
    return "\n".join(lines)


def markdown_rows(header: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    """Return the lines of a table whose cells are Markdown."""
    lines = [header, ["---"] * len(header), *rows]
    return [f"| {' | '.join(cells)} |" for cells in lines]


def _escape(text: str) -> str:
    """Escape text, so that Markdown shows it as it is."""
    return _SPECIAL.sub(r"\\\1", clean(text))


def _markdown_cell(cell: Cell) -> str:
    text = _escape(cell.text)
    if cell.link:
        text = f"[{text}]({cell.link})"
    return f"**{text}**" if cell.strong and text else text
