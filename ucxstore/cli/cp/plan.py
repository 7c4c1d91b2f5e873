"""The plan of a copy: which values move, and in which order. No I/O."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import floor

from ucxstore.keys import find_problem

# Values that move together, where both sides take many in one request.
GROUP_BYTES = 4 << 20
GROUP_KEYS = 256

# Without these nobody sees the array or the group, so they come after all chunks.
_METADATA = frozenset({"zarr.json", ".zarray", ".zgroup", ".zattrs", ".zmetadata"})


@dataclass(frozen=True, slots=True)
class Entry:
    """A value in a listing.

    Parameters
    ----------
    size : int
        Bytes.
    modified : float or None
        The time of the write, in seconds since 1970; ``None`` where it is unknown.
    etag : str or None
        The entity tag, where there is one.
    """

    key: str
    size: int
    modified: float | None = None
    etag: str | None = None


@dataclass(frozen=True, slots=True)
class CopyPlan:
    """The values to copy.

    Parameters
    ----------
    chunks, metadata : list of Entry
        Metadata is copied last.
    present : int
        The number of values that are at the destination already.
    """

    chunks: list[Entry]
    metadata: list[Entry]
    present: int

    @property
    def keys(self) -> int:
        """The number of values to copy."""
        return len(self.chunks) + len(self.metadata)

    @property
    def nbytes(self) -> int:
        """The bytes of the values to copy."""
        return sum(entry.size for entry in (*self.chunks, *self.metadata))


def plan_copy(source: Sequence[Entry], there: Mapping[str, Entry]) -> CopyPlan:
    """Plan to copy the values of `source` that are not `there` yet.

    Raises
    ------
    ValueError
        If a key cannot be written: it would leave the tree, or nobody could read it.
    """
    plan = CopyPlan([], [], 0)
    present = 0
    for entry in source:
        problem = find_problem(entry.key)
        if problem is not None:
            raise ValueError(f"key {entry.key!r} is refused: {problem}")
        found = there.get(entry.key)
        if found is not None and is_same(entry, found):
            present += 1
        elif entry.key.rpartition("/")[2] in _METADATA:
            plan.metadata.append(entry)
        else:
            plan.chunks.append(entry)
    return CopyPlan(plan.chunks, plan.metadata, present)


def is_same(source: Entry, found: Entry) -> bool:
    """Tell whether `found` is a copy: of the same size, and of the same tag or not older.

    Our servers tell neither tags nor times; with them, the size alone counts.
    """
    if source.size != found.size:
        return False
    if source.etag is not None and source.etag == found.etag:
        return True
    if source.modified is None or found.modified is None:
        return True
    # Some object stores, S3 among them, keep whole seconds.
    whole = found.modified.is_integer()
    return found.modified >= (floor(source.modified) if whole else source.modified)


def groups(entries: Sequence[Entry], max_keys: int) -> Iterator[list[Entry]]:
    """Cut a list into groups of at most `max_keys` and `GROUP_BYTES`, or of one larger value."""
    group: list[Entry] = []
    nbytes = 0
    for entry in entries:
        if group and (len(group) == max_keys or nbytes + entry.size > GROUP_BYTES):
            yield group
            group, nbytes = [], 0
        group.append(entry)
        nbytes += entry.size
    if group:
        yield group
