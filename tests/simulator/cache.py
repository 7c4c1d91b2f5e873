"""The model of a member's cache: `native/cache/` as docs/consistency.md describes it.

A read is answered from it while the lease holds and nobody changes the key; else by a request to
the source. Requests under way are joined, and their answers kept, only if they began late enough.
"""

from collections.abc import Hashable

from tests.simulator.monitor import Value
from ucxstore.server.peers.names import Name, Names


class Flight:
    """A request for a key, and the reads that wait for it."""

    __slots__ = ("key", "stale", "waiting")

    def __init__(self, key: str, *, stale: bool) -> None:
        self.key = key
        self.stale = stale
        self.waiting: list[int] = []

    def copy(self) -> "Flight":
        other = Flight(self.key, stale=self.stale)
        other.waiting = list(self.waiting)
        return other

    def content(self) -> tuple[str, bool, tuple[int, ...]]:
        return self.key, self.stale, tuple(self.waiting)


class Cache:
    """The cache of one process.

    Attributes
    ----------
    until : float
        The end of the lease, on the clock of the server.
    entries : dict
        Values by key; 0 is a value, too: that the key is missing.
    flights : dict
        By number.
    joinable : dict
        The number of the flight that a read of a key may join.
    """

    __slots__ = ("asked", "entries", "flights", "joinable", "last", "until")

    def __init__(self) -> None:
        self.until = 0.0
        self.entries: dict[str, Value] = {}
        self.flights: dict[int, Flight] = {}
        self.joinable: dict[str, int] = {}
        self.asked: set[Name] = set()
        self.last = 0

    def copy(self) -> "Cache":
        other = Cache.__new__(Cache)
        other.until = self.until
        other.entries = dict(self.entries)
        other.flights = {at: one.copy() for at, one in self.flights.items()}
        other.joinable = dict(self.joinable)
        other.asked = set(self.asked)
        other.last = self.last
        return other

    def key(self, now: float) -> Hashable:
        """Return what tells it from others."""
        left = self.until - now
        flights = sorted(
            (*one.content(), self.joinable.get(one.key) == at) for at, one in self.flights.items()
        )
        return (
            round(left, 6) if left > 0 else 0,
            tuple(sorted(self.entries.items())),
            tuple(flights),
            frozenset(self.asked),
        )

    # ---- reads ----

    def asks(self, key: str) -> bool:
        """Tell whether the source is to be asked for a key, since it changes."""
        return any(covers(one, key) for one in self.asked)

    def covers(self, key: str, now: float) -> bool:
        """Tell whether what is there of a key may be believed."""
        return now < self.until and not self.asks(key)

    def find(self, key: str, now: float) -> Value | None:
        """Return a value that may be believed; ``None`` if the source must be asked."""
        return self.entries.get(key) if self.covers(key, now) else None

    def fly(self, key: str, now: float, read: int) -> int:
        """Let a read wait for a request; return the request's number if it is to be sent, or 0."""
        at = self.joinable.get(key, 0)
        if at and self.covers(key, now):
            self.flights[at].waiting.append(read)
            return 0
        if at:
            self.flights[at].stale = True  # nobody grounds it later
        self.last += 1
        flight = self.flights[self.last] = Flight(key, stale=self.asks(key))
        flight.waiting.append(read)
        self.joinable[key] = self.last
        return self.last

    def land(self, at: int, value: Value | None) -> list[int]:
        """Take the answer to a request, ``None`` if it has failed; return the reads that waited."""
        flight = self.flights.pop(at)
        if self.joinable.get(flight.key) == at:
            del self.joinable[flight.key]
        if value and not flight.stale:
            self.entries[flight.key] = value
        return flight.waiting

    # ---- what the machine tells ----

    def ask_for(self, names: Names) -> None:
        for name in names:
            self.asked.add(name)
            self._ground(name)
            for key in [one for one in self.entries if covers(name, one)]:
                del self.entries[key]

    def trust(self, names: Names) -> None:
        for name in names:
            self._ground(name)
            self.asked.discard(name)

    def forget_all(self) -> None:
        self._ground(_ALL)
        self.entries.clear()

    def _ground(self, name: Name) -> None:
        """Let nobody join the requests for these any more, nor keep their answers."""
        for key in [one for one in self.joinable if covers(name, one)]:
            self.flights[self.joinable.pop(key)].stale = True

    # ---- changes through this server ----

    def change(self, key: str, written: Value | None) -> None:
        """End a change; `written` is the value that the key has now, if it may be kept."""
        self._ground((False, key))
        if written:
            self.entries[key] = written
        else:
            self.entries.pop(key, None)


_ALL = (True, "")


def covers(name: Name, key: str) -> bool:
    """Tell whether a key is a name, or below it."""
    is_prefix, text = name
    return key.startswith(text) if is_prefix else key == text
