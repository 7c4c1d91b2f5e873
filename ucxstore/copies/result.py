"""`Counts`: the result of counting copies."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self


@dataclass(frozen=True, slots=True)
class Culprit:
    """A function that allocated some of the extra memory.

    Attributes
    ----------
    bytes, blocks : int
        The bytes, and the number of allocations.
    at : str
        ``"peak"``: alive at the peak. ``"total"``: in large blocks, over the whole run.
    python, native : str
        The innermost useful frames of the allocation's stack.
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
        Bytes that were allocated at the peak, including the result.
    peak_extra : float
        Memory that was allocated at the peak beyond the user's own array.
    total : float
        Memory that was allocated over the whole run in blocks of at least half a chunk, beyond the
        result.
    grown : float
        The part of `total` that was allocated by realloc.
    rss_extra : float
        Growth of the peak resident set beyond the user's own array.
    culprits : tuple of Culprit
        Those of the peak, then those of the total; the largest first.
    fixed : int
        Bytes that the process mapped once, whatever the array, to send values to a server of its
        host. They are in `rss_extra` as far as they were used, and in no other figure.
    """

    peak: int
    peak_extra: float
    total: float
    grown: float
    rss_extra: float
    culprits: tuple[Culprit, ...] = ()
    fixed: int = 0

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> Self:
        """Return the counts that `asdict` has turned into a dict."""
        culprits = tuple(Culprit(**culprit) for culprit in value["culprits"])
        return cls(**{**value, "culprits": culprits})
