"""Cache of shard indexes, kept between reads."""

from collections import OrderedDict
from collections.abc import Iterable
from typing import TYPE_CHECKING

from ucxstore.base import process

if TYPE_CHECKING:
    from ucxstore.pipeline.indexes.index import IndexForm, ShardIndex

# Bytes of indexes that a store keeps: 16 an inner chunk, so those of four million inner chunks.
CACHE_BYTES = 64 << 20

# Bytes of an entry beside its offsets and lengths: the objects around them, and the key.
ENTRY_BYTES = 1024


class ShardCache:
    """Cache of the indexes that were used last, by key. Methods may be called by any thread.

    An entry may be out of date. So a request that relies on one asks for values of its version.

    Parameters
    ----------
    limit : int
        Bytes, at the most.
    """

    def __init__(self, limit: int = CACHE_BYTES) -> None:
        self._limit = limit
        self._lock = process.lock()
        self._start()
        process.in_child(self._start)

    def _start(self) -> None:
        """Start empty; in a forked child, too: a thread of its parent may have been changing it."""
        self._entries: OrderedDict[str, tuple[IndexForm, ShardIndex]] = OrderedDict()
        self._nbytes = 0

    def __len__(self) -> int:
        return len(self._entries)

    @property
    def nbytes(self) -> int:
        """Bytes that are kept now."""
        return self._nbytes

    def get(self, key: str, form: "IndexForm") -> "ShardIndex | None":
        """Return the index of a shard, or ``None`` if none of this form is kept."""
        with self._lock:
            entry = self._entries.get(key)
            if entry is None or entry[0] != form:
                return None
            self._entries.move_to_end(key)
            return entry[1]

    def put(self, key: str, form: "IndexForm", index: "ShardIndex") -> None:
        """Add an index, and drop those that were not used for the longest time to make room."""
        with self._lock:
            self._remove(key)
            self._entries[key] = form, index
            self._nbytes += index.nbytes + ENTRY_BYTES
            while self._nbytes > self._limit:
                self._remove(next(iter(self._entries)))

    def drop(self, keys: Iterable[str]) -> None:
        """Drop indexes that are out of date."""
        with self._lock:
            for key in keys:
                self._remove(key)

    def _remove(self, key: str) -> None:
        entry = self._entries.pop(key, None)
        if entry is not None:
            self._nbytes -= entry[1].nbytes + ENTRY_BYTES
