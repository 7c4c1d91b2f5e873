"""The ways that chunks have gone in a case, as its store counts them, and those they must go."""

from typing import Any

from profiles.stores import Row
from ucxstore import UcxStore
from ucxstore.base.zarr_compat import sync

_COUNTERS = ("direct", "decode", "encode", "fallback", "mapped")

# The server's count of values that it has taken over from `UcxStore.allocate`, without a copy.
ADOPTED = "adopted"


class Ways:
    """Count the ways that chunks go between two moments.

    Parameters
    ----------
    store : zarr.abc.store.Store
        Only stores of ours count.
    """

    def __init__(self, store: Any) -> None:
        self._store = store
        self._before = self._counted()

    def since(self) -> dict[str, int]:
        """Return how many chunks went each way since this was made, without those that none did."""
        now = self._counted()
        return {way: now[way] - count for way, count in self._before.items() if now[way] != count}

    def _counted(self) -> dict[str, int]:
        if not isinstance(self._store, UcxStore):
            return {}
        stats: Any = self._store.stats()
        counted = {way: int(stats[way]) for way in _COUNTERS}
        return counted | {ADOPTED: sync(self._store.server_stats())["adopted"]}


def check_ways(row: Row, ways: dict[str, int]) -> None:
    """Check that a row's chunk went the way that the row promises.

    Raises
    ------
    AssertionError
        If it went another: its figures would be taken for those of that way.
    """
    if row.way and ways != {row.way: 1}:
        raise AssertionError(f"the chunk should have gone {row.way!r}; the ways were {ways}")
