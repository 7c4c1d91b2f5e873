"""What a store counts while it reads and writes, and the sums over all stores of a process."""

import weakref
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, TypedDict, Unpack, cast

from ucxstore.base import process

if TYPE_CHECKING:
    from ucxstore.base.stats import StoreStats


class Counted(TypedDict, total=False):
    """The counters that `Counters.add` takes: the fields of `ucxstore.base.stats.ChunkStats`."""

    direct: int
    decoded: int
    decode: int
    decode_in_place: int
    encode: int
    fallback: int
    mapped: int
    bytes_read: int
    bytes_written: int
    staged_bytes: int


class Counters:
    """The counters of one store; every thread may add to them."""

    def __init__(self) -> None:
        self._lock = process.lock()
        self._counted: dict[str, int] = dict.fromkeys(Counted.__annotations__, 0)
        self._servers: dict[str, dict[str, int]] = {}
        if _totals is not None:
            _totals.add(self)

    def add(self, **counts: Unpack[Counted]) -> None:
        """Add to counters. Call it once for a batch, not for each chunk."""
        with self._lock:
            for name, count in cast("dict[str, int]", counts).items():
                self._counted[name] += count

    def add_server(self, server: str, *, requests: int = 0, failovers: int = 0) -> None:
        """Add to the counters of one of several servers."""
        with self._lock:
            member = self._servers.setdefault(server, {"requests": 0, "failovers": 0})
            member["requests"] += requests
            member["failovers"] += failovers

    def snapshot(
        self, lanes: list[str], *, integrity: bool = False, encrypted: bool = False
    ) -> "StoreStats":
        """Return all counters as they are at one moment."""
        # Imported for those who look: to make its classes takes milliseconds of a process's start.
        from ucxstore.base.stats import MemberStats, StoreStats

        with self._lock:
            servers = {server: MemberStats(**member) for server, member in self._servers.items()}
            counted: dict[str, Any] = {**self._counted}
        return StoreStats(
            **counted, lanes=lanes, integrity=integrity, encrypted=encrypted, servers=servers
        )


class Totals:
    """What all counters of a process have counted together, those that are gone, too."""

    def __init__(self) -> None:
        self._lock = process.lock()
        self._gone: dict[str, int] = dict.fromkeys(Counted.__annotations__, 0)
        self._live: list[tuple[weakref.ref[Counters], dict[str, int]]] = []
        self._most = _FEW_COUNTERS

    def add(self, counters: Counters) -> None:
        """Count in what these count."""
        with self._lock:
            self._live.append((weakref.ref(counters), counters._counted))
            if len(self._live) > self._most:
                self._drop_gone()
                self._most = max(2 * len(self._live), _FEW_COUNTERS)

    def read(self) -> dict[str, int]:
        """Return the sums."""
        with self._lock:
            self._drop_gone()
            sums = dict(self._gone)
            for _, counted in self._live:
                _add(sums, counted)
            return sums

    def _drop_gone(self) -> None:
        """Keep but the sums of counters that are gone."""
        live = []
        for owner, counted in self._live:
            if owner() is None:
                _add(self._gone, counted)
            else:
                live.append((owner, counted))
        self._live = live


def _add(sums: dict[str, int], counted: Mapping[str, int]) -> None:
    for name, count in counted.items():
        sums[name] += count


# With so many, those that are gone are not looked for.
_FEW_COUNTERS = 64

_totals: Totals | None = None
_totals_lock = process.lock()


def keep_totals() -> Totals:
    """Keep the sums of all counters that are made from now on; return them, as each call does."""
    global _totals
    with _totals_lock:
        if _totals is None:
            _totals = Totals()
        return _totals


def _start_again() -> None:
    """In a forked child, what was counted is the parent's."""
    global _totals
    _totals = None if _totals is None else Totals()


process.in_child(_start_again)
