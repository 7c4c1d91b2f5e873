"""`CaseResult`: the result of a case, and its JSON."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, Self

from ucxstore.copies import Counts


@dataclass(frozen=True, slots=True, kw_only=True)
class CaseResult:
    """The result of a case: a row on one workload, at the client or the server.

    Attributes
    ----------
    store, pipeline, transport, side : str
        The row's names in `profiles.stores`, and ``"client"`` or ``"server"``.
    direction, codec, layout : str
        The workload, as in `Workload`.
    nbytes, chunk_nbytes, stored_nbytes : int
        Bytes of the array, of one chunk, and of all chunks as they are stored.
    counts : Counts or None
        None if the case failed.
    ways : dict of int
        At a client of ours, how many chunks went each way, by the names of `UcxStore.stats`, and
        how many values the server took over as they were (``"adopted"``).
    capture : str
        The file of memray's capture; ``""`` if it was not kept.
    error : str
        One line, if the case failed or is not possible.
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
    ways: dict[str, int] = field(default_factory=dict)
    capture: str = ""
    versions: dict[str, str] = field(default_factory=dict)
    note: str = ""
    seconds: float = 0.0
    error: str = ""

    def to_json(self) -> dict[str, Any]:
        """Return a dict that can be written as JSON."""
        return asdict(self)

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> Self:
        """Return the result from the dict of `to_json`.

        Raises
        ------
        ValueError
            If it is not such a dict.
        """
        try:
            counts = value["counts"]
            return cls(**{**value, "counts": None if counts is None else Counts.from_json(counts)})
        except (KeyError, TypeError) as error:
            raise ValueError(f"not a result of a case: {error}") from error
