"""Results to report, made up."""

from typing import Any

from profiles.result import CaseResult
from ucxstore.copies import Counts, Culprit

ARRAY = 100_000_000


def make_counts(peak_extra: float, total: float, *culprits: Culprit) -> Counts:
    return Counts(
        peak=int((1 + peak_extra) * ARRAY),
        peak_extra=peak_extra,
        total=total,
        grown=0.0,
        rss_extra=peak_extra,
        culprits=culprits,
    )


def make_case(**changes: Any) -> CaseResult:
    """A raw write of one chunk to a LocalStore, unless something else is asked for."""
    usual: dict[str, Any] = {
        "store": "LocalStore",
        "pipeline": "default",
        "direction": "write",
        "codec": "raw",
        "layout": "one",
        "nbytes": ARRAY,
        "chunk_nbytes": ARRAY,
        "stored_nbytes": ARRAY,
        "counts": make_counts(0.01, 0.0),
    }
    return CaseResult(**{**usual, **changes})


def make_culprit(arrays: float, python: str, at: str = "total", native: str = "") -> Culprit:
    return Culprit(bytes=int(arrays * ARRAY), blocks=1, at=at, python=python, native=native)
