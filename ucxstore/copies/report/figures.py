"""Numbers and names as the report writes them."""

import math
import re
import unicodedata

from ucxstore.copies.result import CaseResult, Counts, Culprit

_SMALLEST = 0.005  # anything less is 0.00 with two decimals
_WORTH_NAMING = 0.05  # arrays; what is less, no one looks for
_MOST_NAMED = 2
_LOCATION = re.compile(r" \([^()]*\)$")  # "(bytes.py:113)" at the end of a frame


def figure(value: float) -> str:
    """Write a multiple of the array with two decimals, and as "0" what rounds to none."""
    if not math.isfinite(value):
        return "?"
    return "0" if abs(value) < _SMALLEST else f"{value:.2f}"


def pair(peak: float, total: float) -> str:
    """Write the two figures of a case."""
    return f"{figure(peak)} / {figure(total)}"


def clean(text: str) -> str:
    """Return text as one line without control characters.

    A terminal may obey them, and XML does not have them.
    """
    one_line = " ".join(text.split())
    return "".join("\N{REPLACEMENT CHARACTER}" if _is_control(c) else c for c in one_line)


def culprit_share(culprit: Culprit, case: CaseResult) -> float:
    """Return what a culprit allocated, in arrays."""
    return culprit.bytes / case.nbytes if case.nbytes > 0 else 0


def name_culprits(case: CaseResult) -> str:
    """Name who is behind the larger figure of a case, in a few words; nobody if there is little."""
    if case.counts is None:
        return ""
    at = "total" if case.counts.total >= case.counts.peak_extra else "peak"
    shares: dict[str, float] = {}
    for culprit in case.counts.culprits:
        if culprit.at == at:
            name = _short_name(culprit)
            shares[name] = shares.get(name, 0) + culprit_share(culprit, case)
    largest = sorted(shares.items(), key=lambda item: item[1], reverse=True)[:_MOST_NAMED]
    return ", ".join(f"{figure(x)} {name}" for name, x in largest if x >= _WORTH_NAMING)


def weight(counts: Counts) -> float:
    """Return the figure that tells how bad a case is."""
    return max(counts.peak_extra, counts.total)


def _short_name(culprit: Culprit) -> str:
    return _LOCATION.sub("", clean(culprit.python)) or clean(culprit.native) or "unknown"


def _is_control(character: str) -> bool:
    return unicodedata.category(character).startswith("C")
