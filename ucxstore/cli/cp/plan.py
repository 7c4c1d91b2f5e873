"""The plan of a copy: which values move, and in which order. No I/O."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from math import floor

from ucxstore.base.keys import find_problem, is_metadata

# The most bytes and values that are copied in one request, if both sides support that.
GROUP_BYTES = 4 << 20
GROUP_KEYS = 256


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
        The entity tag, if there is one.
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
        Metadata is copied last: without it, an array or group is not visible.
    present : int
        The number of values that the destination has already.
    target : str or None
        The key of the only value at the destination; ``None`` where all keep their keys.
    """

    chunks: list[Entry]
    metadata: list[Entry]
    present: int
    target: str | None = None

    @property
    def keys(self) -> int:
        """The number of values to copy."""
        return len(self.chunks) + len(self.metadata)

    @property
    def nbytes(self) -> int:
        """The bytes of the values to copy."""
        return sum(entry.size for entry in (*self.chunks, *self.metadata))

    def target_of(self, entry: Entry) -> Entry:
        """Return what an entry of the source becomes at the destination."""
        return entry if self.target is None else replace(entry, key=self.target)


def plan_copy(source: Sequence[Entry], there: Mapping[str, Entry]) -> CopyPlan:
    """Plan to copy the values of `source` that are not `there` yet.

    Raises
    ------
    ValueError
        If a key cannot be written: it would lead out of the tree, or could not be read.
    """
    chunks: list[Entry] = []
    metadata: list[Entry] = []
    present = 0
    for entry in source:
        _check(entry.key)
        found = there.get(entry.key)
        if found is not None and is_same(entry, found):
            present += 1
        elif is_metadata(entry.key):
            metadata.append(entry)
        else:
            chunks.append(entry)
    return CopyPlan(chunks, metadata, present)


def plan_one(entry: Entry, target: str) -> CopyPlan:
    """Plan to copy one value to a key, whatever is there.

    Raises
    ------
    ValueError
        If the key cannot be written.
    """
    _check(target)
    return CopyPlan([entry], [], 0, target)


def _check(key: str) -> None:
    problem = find_problem(key)
    if problem is not None:
        raise ValueError(f"key {key!r} is refused: {problem}")


def is_same(source: Entry, found: Entry) -> bool:
    """Tell whether `found` is a copy: it has the same size, and has the same tag or is not older.

    ucxstore servers have no tags and no times. With them, only the size counts.
    """
    if source.size != found.size:
        return False
    if source.etag is not None and source.etag == found.etag:
        return True
    if source.modified is None or found.modified is None:
        return True
    # Some object stores, such as S3, only keep whole seconds.
    whole = found.modified.is_integer()
    return found.modified >= (floor(source.modified) if whole else source.modified)


def groups(entries: Sequence[Entry], max_keys: int) -> Iterator[list[Entry]]:
    """Split entries into groups of at most `max_keys` and `GROUP_BYTES`, or of one larger value."""
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
