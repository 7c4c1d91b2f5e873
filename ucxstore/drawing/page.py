"""Write a page as HTML: one file with charts, tables and style, without scripts."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from markupsafe import Markup

from ucxstore.drawing.tables import Table
from ucxstore.drawing.templates import clean, render

# A paragraph, or HTML (`Markup`); a table; names with their values; a list with bullets; a section.
type Part = str | Table | Mapping[str, str] | Sequence[str] | Section


@dataclass(frozen=True, slots=True)
class Section:
    """Parts of a page that are folded under a title.

    Parameters
    ----------
    title : str
        If it is empty, the parts are shown in a frame.
    parts : sequence of Part
    id : str
        What links to the section lead to.
    """

    title: str
    parts: Sequence[Part]
    id: str = ""


def paragraph(text: str, style: str) -> Markup:
    """Return a paragraph that the style sheet has a class for."""
    return Markup('<p class="{}">{}</p>').format(style, clean(text))


def write_page(
    title: str, opening: Sequence[Part], sections: Sequence[Section], *, left: int, what: str
) -> str:
    """Return a page as HTML, to be written as UTF-8.

    Parameters
    ----------
    title : str
    opening : sequence of Part
        What is seen at once.
    sections : sequence of Section
        What follows.
    left : int
        How much the run is still to count.
    what : str
        One of these.
    """
    missing = f"1 {what} is" if left == 1 else f"{left} {what}s are"
    unfinished = f"The run has not ended: {missing} missing." if left else ""
    return render(
        "page.html.jinja", title=title, unfinished=unfinished, opening=opening, sections=sections
    )
