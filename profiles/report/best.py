"""The fewest copies that a case can be done with, and why no fewer."""

from dataclasses import dataclass

from profiles.result import CaseResult

# Its values live in the process that is measured, so they count there, and need no reading.
_KEEPS_VALUES = "MemoryStore"


@dataclass(frozen=True, slots=True)
class Best:
    """The best achievable figures of a case, in multiples of the array.

    Attributes
    ----------
    peak, total : float
        As `Counts.peak_extra` and `Counts.total`. With several chunks, `peak` is that of one chunk
        at a time; several chunks at once multiply it.
    reason : str
        Why no less will do.
    """

    peak: float
    total: float
    reason: str


def best(case: CaseResult) -> Best:
    """Return the least that a case can cost.

    Raw data needs no memory beyond the user's array and what the store keeps. A compressor needs
    some to write to, since nobody knows beforehand how long its output is, and a decompressor needs
    all of a chunk's bytes to start from.
    """
    if case.side == "server":
        return Best(0, 0, "the stored value is received in place, and sent from where it lies")
    if case.store == _KEEPS_VALUES:
        return _of_values_kept(case)
    if case.codec == "raw":
        return Best(0, 0, "raw bytes move straight between the array and the store")
    stored = _in_arrays(case, case.stored_nbytes)
    at_once = stored * _share_at_once(case)
    what = "encoder's output" if case.direction == "write" else "compressed bytes"
    if at_once == stored:
        return Best(stored, stored, f"the {what}")
    return Best(at_once, stored, f"the {what}; at the peak, of the chunks in flight (here: one)")


def _of_values_kept(case: CaseResult) -> Best:
    if case.direction == "read":
        return Best(0, 0, "the values are in this process already")
    stored = _in_arrays(case, case.stored_nbytes)
    return Best(stored, stored, "the values that the store keeps, in this process")


def _share_at_once(case: CaseResult) -> float:
    """Return the least share of all chunks that has to be in memory at one time."""
    if case.direction == "write" and case.layout == "shard":
        return 1  # stores take a value whole
    return min(1, _in_arrays(case, case.chunk_nbytes))


def _in_arrays(case: CaseResult, nbytes: int) -> float:
    return nbytes / case.nbytes if case.nbytes > 0 else 0  # a case that failed early has no sizes
