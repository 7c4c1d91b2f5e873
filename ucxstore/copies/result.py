"""The result of a count."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self


@dataclass(frozen=True, slots=True)
class Culprit:
    """A function that allocated some of the extra memory.

    Attributes
    ----------
    bytes, blocks : int
        How much, in how many allocations.
    at : str
        ``"peak"``: alive at the peak. ``"total"``: in large blocks, over the whole run.
    python, native : str
        The innermost frames of the allocation's stack that say something.
    """

    bytes: int
    blocks: int
    at: str
    python: str
    native: str


@dataclass(frozen=True, slots=True)
class Counts:
    """Extra copies, in multiples of the array.

    Attributes
    ----------
    peak : int
        Bytes that were allocated at the peak, the result with them.
    peak_extra : float
        What was alive at the peak beyond the user's own array.
    total : float
        What was allocated over the whole run in blocks of at least half a chunk, beyond the result.
    grown : float
        The part of `total` that came by realloc of such blocks.
    rss_extra : float
        Growth of the peak resident set beyond the user's own array.
    culprits : tuple of Culprit
        Of the peak, then of the total; the largest first.
    """

    peak: int
    peak_extra: float
    total: float
    grown: float
    rss_extra: float
    culprits: tuple[Culprit, ...] = ()

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> Self:
        """Return what `asdict` made."""
        culprits = tuple(Culprit(**culprit) for culprit in value["culprits"])
        return cls(**{**value, "culprits": culprits})
