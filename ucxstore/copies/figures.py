"""Format the numbers and the culprits of a count for reports."""

import math
import re
from collections.abc import Iterable

from ucxstore.base.showing import size_text
from ucxstore.copies.result import Counts, Culprit
from ucxstore.drawing.chart import Bar, Bars
from ucxstore.drawing.templates import clean

# What the charts of reads show, and how to read them.
READ_TITLE = "Extra memory of one read, in arrays"
READ_NOTE = "The memory that a read takes beyond the array that it returns. 1: as much again."

_SMALLEST = 0.005  # anything less is 0.00 with two decimals
_WORTH_NAMING = 0.05  # arrays
_MOST_NAMED = 2
_LINE = re.compile(r" \([^()]*\)$")  # "(bytes.py:113)" at the end of a frame


def figure(value: float) -> str:
    """Format a multiple of the array with two decimals; 0.00 as "0"."""
    if not math.isfinite(value):
        return "?"
    return "0" if abs(value) < _SMALLEST else f"{value:.2f}"


def pair(peak: float, total: float) -> str:
    """Format the two figures of a case: the peak and the total."""
    return f"{figure(peak)} / {figure(total)}"


def read_bars(store: str, raw: float, zstd: float, *, own: bool) -> Bars:
    """Return the row of a store in a chart of reads: its figures for a raw and a zstd array."""
    bars = [
        Bar(value, f"{figure(value)} {codec}") for codec, value in (("raw", raw), ("zstd", zstd))
    ]
    return Bars(store, bars, own)


def weight(counts: Counts) -> float:
    """Return the larger of the two figures: the peak or the total."""
    return max(counts.peak_extra, counts.total)


def fixed_memory(counted: Iterable[tuple[str, Counts]]) -> str:
    """Say how much memory stores map once, whatever the array, by their names; "" for none."""
    most: dict[str, int] = {}
    for name, counts in counted:
        if counts.fixed:
            most[name] = max(most.get(name, 0), counts.fixed)
    if not most:
        return ""
    named = ", ".join(f"{clean(name)} {size_text(nbytes)}" for name, nbytes in most.items())
    return (
        f"Fixed memory: {named}. A process maps it once, to send values of any size to a server of "
        "its host, so it is no copy, and not in the figures."
    )


def name_culprits(counts: Counts, nbytes: int) -> str:
    """Name the functions that allocated most of the larger figure; "" if it is small.

    Parameters
    ----------
    counts : Counts
    nbytes : int
        The size of the array.
    """
    at = "total" if counts.total >= counts.peak_extra else "peak"
    shares: dict[str, float] = {}
    for culprit in counts.culprits:
        if culprit.at == at and nbytes > 0:
            name = _short_name(culprit)
            shares[name] = shares.get(name, 0) + culprit.bytes / nbytes
    largest = sorted(shares.items(), key=lambda item: item[1], reverse=True)[:_MOST_NAMED]
    return ", ".join(f"{figure(x)} {name}" for name, x in largest if x >= _WORTH_NAMING)


def _short_name(culprit: Culprit) -> str:
    return _LINE.sub("", clean(culprit.python)) or clean(culprit.native) or "unknown"
