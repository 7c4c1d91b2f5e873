"""Objects as text and HTML: sizes, failures, suggestions, tables, and what a notebook shows.

Whatever is shown may come from others: keys, addresses, names of clients. So text is without
control characters, and HTML is escaped. HTML has no colours of its own: it is readable on light and
dark pages, and refers to nothing outside of itself.
"""

from collections.abc import Iterable, Mapping, Sequence

_UNITS = ("B", "kB", "MB", "GB", "TB", "PB")

# Names of sizes that do not have "bytes" in them.
_SIZES = {"quota", "memory_used", "memory_limit"}

_LINE = "border-bottom:1px solid rgba(128,128,128,.35)"
_CELL = f"text-align:left;padding:.15em 1em .15em 0;{_LINE}"
_NUMBER = f"text-align:right;padding:.15em 1em .15em 0;{_LINE};font-variant-numeric:tabular-nums"


def size_text(nbytes: float) -> str:
    """Format a number of bytes with about three digits: ``"1.5 MB"``."""
    value, unit = float(nbytes), 0
    while abs(value) >= 999.5 and unit < len(_UNITS) - 1:
        value, unit = value / 1000, unit + 1
    digits = 0 if unit == 0 or abs(value) >= 99.95 else 1
    return f"{value:.{digits}f} {_UNITS[unit]}"


def printable(text: str) -> str:
    """Escape control characters, which a terminal would obey."""
    if text.isprintable():
        return text
    return "".join(
        one if one.isprintable() else one.encode("unicode_escape").decode() for one in text
    )


def _escape(text: str) -> str:
    from html import escape  # with its tables, it takes as long as all of this package's basics

    return escape(text)


def one_line(error: BaseException) -> str:
    """Return an error without Python's number of it: ``"No such file or directory: /nope"``."""
    if isinstance(error, OSError) and error.strerror:
        return error.strerror + (f": {error.filename}" if error.filename else "")
    return str(error)


def suggest(word: str, known: Iterable[str], prefix: str = "") -> str:
    """Return a question for what may have been meant; empty if nothing is close.

    Parameters
    ----------
    word : str
        What was given.
    known : iterable of str
        What there is.
    prefix : str
        What stands before each of them.
    """
    from difflib import get_close_matches  # only once something is wrong

    close = get_close_matches(word, sorted(known), n=1, cutoff=0.5)
    return f"; did you mean {prefix}{close[0]}?" if close else ""


def value_text(name: str, value: object) -> str:
    """Format a value by its name: those with ``bytes`` in it, and quotas and memory, are sizes."""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int | float):
        if "bytes" in name or name in _SIZES:
            return size_text(value)
        if name.endswith("_s"):
            return f"{value:,.1f} s"
        return f"{value:,}"
    if value is None:
        return "-"
    if isinstance(value, Mapping):
        return ", ".join(f"{printable(str(k))} {value_text(name, v)}" for k, v in value.items())
    if isinstance(value, list | tuple):
        return printable(" ".join(map(str, value))) or "-"
    return printable(str(value))


def text_columns(rows: Sequence[Sequence[str]], *, right: Iterable[int] = ()) -> list[str]:
    """Align rows of equal length in columns, those in `right` at their right; return the lines."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    to_right = frozenset(right)
    return [
        "  ".join(
            cell.rjust(width) if place in to_right else cell.ljust(width)
            for place, (cell, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in rows
    ]


def html_table(
    rows: Iterable[Sequence[str]], header: Sequence[str] = (), *, right: Iterable[int] = ()
) -> str:
    """Return a table of escaped cells; those of the columns in `right` are at their right."""
    to_right = frozenset(right)

    def line(cells: Sequence[str], kind: str) -> str:
        return "".join(
            f'<{kind} style="{_NUMBER if place in to_right else _CELL}">'
            f"{_escape(printable(cell))}</{kind}>"
            for place, cell in enumerate(cells)
        )

    head = f"<thead><tr>{line(header, 'th')}</tr></thead>" if header else ""
    body = "".join(f"<tr>{line(row, 'td')}</tr>" for row in rows)
    return (
        f'<table style="border-collapse:collapse;margin:.3em 0">{head}<tbody>{body}</tbody></table>'
    )


def html_block(title: str, name: str, *parts: str) -> str:
    """Return what a notebook shows of an object.

    Parameters
    ----------
    title, name : str
        The object's class, and what it is called. Both are escaped here.
    *parts : str
        HTML that is shown below them.
    """
    heading = f"<div><b>{_escape(title)}</b> <code>{_escape(printable(name))}</code></div>"
    return (
        '<div style="color:inherit;background:transparent;overflow-x:auto">'
        f"{heading}{''.join(parts)}</div>"
    )


def html_details(summary: str, *parts: str) -> str:
    """Return HTML that is folded until somebody opens it."""
    return f"<details><summary>{_escape(summary)}</summary>{''.join(parts)}</details>"
