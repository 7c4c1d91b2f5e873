"""The result of a case, in memory and as JSON."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, Self

from ucxstore.copies import Counts


@dataclass(frozen=True, slots=True, kw_only=True)
class CaseResult:
    """One case: a store's row on one workload, at one side.

    Attributes
    ----------
    store, pipeline, transport, side : str
        The row, as `profiles.stores` names it, and ``"client"`` or ``"server"``.
    direction, codec, layout : str
        The workload, as `Workload` names it.
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
