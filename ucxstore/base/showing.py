"""Objects as text and HTML: sizes, failures, suggestions, tables, and what a notebook shows.

Whatever is shown may come from others: keys, addresses, names of clients. So text is without
control characters, and HTML is escaped. HTML has no colours of its own: it is readable on light and
dark pages, and refers to nothing outside of itself.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from itertools import zip_longest

_UNITS = ("B", "kB", "MB", "GB", "TB", "PB")

# Names of sizes that do not have "bytes" in them.
_SIZES = {"quota", "memory_used", "memory_limit"}

# Columns of a terminal: those of one that does not tell, and those below which nothing is readable.
_USUAL_WIDTH = 80
_LEAST_WIDTH = 40
_LEAST_CELL = 8
_GAP = "  "

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


def terminal_width() -> int:
    """Return the columns of the terminal, as far as a table may use them; 80 without one."""
    from shutil import get_terminal_size

    return max(get_terminal_size((_USUAL_WIDTH, 0)).columns, _LEAST_WIDTH)


def text_columns(
    rows: Sequence[Sequence[str]], *, right: Iterable[int] = (), width: int | None = None
) -> list[str]:
    """Align rows of equal length in columns, those in `right` at their right; return the lines.

    Parameters
    ----------
    rows : sequence of sequence of str
    right : iterable of int
        The positions of columns.
    width : int, optional
        The longest that a line may be. If there is not enough room, the cells of the widest columns
        go on below, but for those in `right`.
    """
    to_right = frozenset(right)
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    if width is not None:
        widths = _narrowed(widths, to_right, width)
    return [
        _GAP.join(
            cell.rjust(size) if place in to_right else cell.ljust(size)
            for place, (cell, size) in enumerate(zip(cells, widths, strict=True))
        ).rstrip()
        for row in rows
        for cells in _broken(row, widths)
    ]


def _narrowed(widths: Sequence[int], fixed: Collection[int], width: int) -> list[int]:
    """Take from the widest columns what does not fit."""
    sizes = list(widths)
    flexible = [place for place in range(len(sizes)) if place not in fixed]
    while flexible and sum(sizes) + len(_GAP) * (len(sizes) - 1) > width:
        widest = max(flexible, key=lambda place: sizes[place])
        if sizes[widest] <= _LEAST_CELL:
            break
        sizes[widest] -= 1
    return sizes


def _broken(row: Sequence[str], widths: Sequence[int]) -> Iterator[Sequence[str]]:
    """Yield the lines of a row whose cells may be too long."""
    if all(len(cell) <= width for cell, width in zip(row, widths, strict=True)):
        yield row
        return
    from textwrap import wrap

    columns = [wrap(cell, width) for cell, width in zip(row, widths, strict=True)]
    yield from zip_longest(*columns, fillvalue="")


def folded_columns(rows: Sequence[Sequence[str]], width: int) -> list[str]:
    """Align rows of equal length as `text_columns` does, in lines of at most `width`.

    If there is not enough room for all columns, the others follow in tables of their own, each with
    the first column again.
    """
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines: list[str] = []
    begin = 1
    while begin < len(widths) or not lines:
        end, taken = begin, widths[0]
        while end < len(widths) and (end == begin or taken + len(_GAP) + widths[end] <= width):
            taken += len(_GAP) + widths[end]
            end += 1
        block = [[row[0], *row[begin:end]] for row in rows]
        lines += ([""] if lines else []) + text_columns(block, width=width)
        begin = end
    return lines


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
        The object's class, and what it is called; empty for no name. Both are escaped here.
    *parts : str
        HTML that is shown below them.
    """
    called = f" <code>{_escape(printable(name))}</code>" if name else ""
    heading = f"<div><b>{_escape(title)}</b>{called}</div>"
    return (
        '<div style="color:inherit;background:transparent;overflow-x:auto">'
        f"{heading}{''.join(parts)}</div>"
    )


def html_details(summary: str, *parts: str) -> str:
    """Return HTML that is folded until somebody opens it."""
    return f"<details><summary>{_escape(summary)}</summary>{''.join(parts)}</details>"
