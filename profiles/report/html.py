"""Build HTML elements; text is escaped."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from html import escape

from ucxstore.copies.figures import clean


@dataclass(frozen=True, slots=True)
class Html:
    """Text that is HTML already. A plain string is not, and is escaped."""

    text: str


type Content = str | Html


def render(content: Content) -> str:
    """Return the HTML text of a content."""
    return content.text if isinstance(content, Html) else escape(clean(content))


def element(tag: str, *contents: Content, **attributes: str) -> Html:
    """Return ``<tag attribute="...">...</tag>``; ``class_`` stands for ``class``."""
    written = "".join(
        f' {name.rstrip("_")}="{escape(clean(value))}"' for name, value in attributes.items()
    )
    return Html(f"<{tag}{written}>{''.join(map(render, contents))}</{tag}>")


def join(parts: Iterable[Content], separator: str = "\n") -> Html:
    """Join contents with a separator."""
    return Html(separator.join(map(render, parts)))


def link(content: Content, target: str) -> Html:
    """Return a link."""
    return element("a", content, href=target)


def items(contents: Iterable[Content], **attributes: str) -> Html:
    """Return a list with bullets."""
    return element("ul", join(element("li", content) for content in contents), **attributes)


def folded(title: str, *contents: Content) -> Html:
    """Return a section that is closed until its title is clicked."""
    summary = element("summary", element("h2", title))
    return element("details", summary, *contents, class_="section")


def facts(pairs: Iterable[tuple[str, Content]]) -> Html:
    """Return a list of names with their values."""
    rows = (join((element("dt", name), element("dd", value)), "") for name, value in pairs)
    return element("dl", join(rows), class_="facts")


def table(caption: str, header: Sequence[Html], rows: Iterable[Html]) -> Html:
    """Return a table that scrolls if it is wider than the page.

    It can have the focus, so that the keyboard can scroll it.
    """
    whole = element("table", element("thead", element("tr", *header)), element("tbody", join(rows)))
    region = {"role": "region", "tabindex": "0", "aria-label": caption}
    scrolled = element("div", whole, class_="scroll", **region)
    return element("figure", element("figcaption", caption), scrolled)


def number(content: Content) -> Html:
    """Return a cell for a number."""
    return element("td", content, class_="number")


def heading(name: str, style: str = "") -> Html:
    """Return the heading of a column."""
    extra = {"class_": style} if style else {}
    return element("th", name, scope="col", **extra)
