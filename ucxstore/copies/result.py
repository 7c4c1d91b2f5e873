"""What a case has found, in memory and as JSON."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, Self


@dataclass(frozen=True, slots=True)
class Culprit:
    """Who allocated some of the extra memory.

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


@dataclass(frozen=True, slots=True, kw_only=True)
class CaseResult:
    """One case: a store's row on one workload, at one side.

    Attributes
    ----------
    store, pipeline, transport, side : str
        The row, as `ucxstore.copies.stores` names it, and ``"client"`` or ``"server"``.
    direction, codec, layout : str
        The workload, as `ucxstore.copies.workloads` names it.
    nbytes, chunk_nbytes, stored_nbytes : int
        Bytes of the array, of one chunk, and of all chunks as they are stored.
    counts : Counts or None
        None where the case failed.
    capture : str
        The file that memray wrote; ``""`` where it was not kept.
    error : str
        One line, where the case failed or cannot be.
    """

    store: str
    pipeline: str
    transport: str = ""
    side: str = "client"
    direction: str
    codec: str
    layout: str
    nbytes: int
    chunk_nbytes: int
    stored_nbytes: int
    counts: Counts | None
    capture: str = ""
    versions: dict[str, str] = field(default_factory=dict)
    note: str = ""
    seconds: float = 0.0
    error: str = ""

    def to_json(self) -> dict[str, Any]:
        """Return it as what JSON can hold."""
        return asdict(self)

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> Self:
        """Return what `to_json` made.

        Raises
        ------
        ValueError
            If it is not.
        """
        try:
            counts = value["counts"]
            return cls(**{**value, "counts": None if counts is None else Counts.from_json(counts)})
        except (KeyError, TypeError) as error:
            raise ValueError(f"not a result of a case: {error}") from error
