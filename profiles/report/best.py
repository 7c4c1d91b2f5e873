"""The least copies that a case can have, and the reason."""

from dataclasses import dataclass

from profiles.result import CaseResult

# This store keeps values in the measured process: they count there, and a read is free.
_KEEPS_VALUES = "MemoryStore"

# A client over this transport sees the values of the server.
_SEEN = "local"


@dataclass(frozen=True, slots=True)
class Best:
    """The best achievable figures of a case, in multiples of the array.

    Attributes
    ----------
    peak, total : float
        As `Counts.peak_extra` and `Counts.total`. With several chunks, `peak` is for one chunk at a
        time; several chunks at once need more.
    reason : str
        Why it cannot be less.
    """

    peak: float
    total: float
    reason: str


def best(case: CaseResult) -> Best:
    """Return the best achievable figures of a case.

    Raw data needs no memory beyond the user's array and what the store keeps. A compressor needs a
    buffer, since the size of its output is not known before. A decompressor needs all bytes of a
    chunk, in memory of its own unless it sees them at the server.
    """
    if case.side == "server":
        return Best(0, 0, "the stored value is received in place, and sent from where it lies")
    if case.store == _KEEPS_VALUES:
        return _of_kept_values(case)
    if case.codec == "raw":
        return Best(0, 0, "raw bytes move straight between the array and the store")
    if case.transport == _SEEN and case.direction == "read":
        return Best(0, 0, "the compressed bytes are decoded where the server keeps them")
    stored = _in_arrays(case, case.stored_nbytes)
    at_once = stored * _share_at_once(case)
    what = "encoder's output" if case.direction == "write" else "compressed bytes"
    if at_once == stored:
        return Best(stored, stored, f"the {what}")
    return Best(at_once, stored, f"the {what}; at the peak, of the chunks in flight (here: one)")


def _of_kept_values(case: CaseResult) -> Best:
    if case.direction == "read":
        return Best(0, 0, "the values are in this process already")
    stored = _in_arrays(case, case.stored_nbytes)
    return Best(stored, stored, "the values that the store keeps, in this process")


def _share_at_once(case: CaseResult) -> float:
    """Return the least share of all chunks that must be in memory at once."""
    if case.direction == "write" and case.layout == "shard":
        return 1  # stores take a value whole
    return min(1, _in_arrays(case, case.chunk_nbytes))


def _in_arrays(case: CaseResult, nbytes: int) -> float:
    return nbytes / case.nbytes if case.nbytes > 0 else 0  # a case that failed early has no sizes
