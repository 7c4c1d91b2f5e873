"""Events in the order of their times, and queues that are served first come, first served."""

import heapq
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple


class Station:
    """A queue with one server: a thread, or one direction of a network adapter.

    Attributes
    ----------
    busy : float
        Seconds that it has served.
    served : int
        How many have come.
    """

    __slots__ = ("_free", "busy", "served")

    def __init__(self) -> None:
        self.busy = 0.0
        self.served = 0
        self._free = 0.0  # when all that have come so far are served

    def serve(self, now: float, seconds: float) -> float:
        """Add one that comes now and takes so many seconds; return when it is done.

        Calls must come in the order of time.
        """
        self._free = max(self._free, now) + seconds
        self.busy += seconds
        self.served += 1
        return self._free


class Hop(NamedTuple):
    """A station on a way, the seconds of service there, and those until the next one is reached."""

    station: Station
    seconds: float
    delay: float = 0.0


class Simulation:
    """The events that are still to come.

    A library such as simpy has a coroutine for each request. A million requests would take minutes.

    Attributes
    ----------
    now : float
        The time of the present event, in seconds.
    """

    def __init__(self) -> None:
        self.now = 0.0
        self._events: list[tuple[float, int, Callable[..., None], tuple[Any, ...]]] = []
        self._made = 0

    def at(self, time: float, function: Callable[..., None], *arguments: Any) -> None:
        """Call a function at a time; those of one time are called in the order of their making."""
        if time < self.now:
            raise ValueError(f"an event at {time} would be before now, {self.now}")
        self._made += 1
        heapq.heappush(self._events, (time, self._made, function, arguments))

    def travel(self, hops: Sequence[Hop], then: Callable[[], None], delay: float = 0.0) -> None:
        """Pass some stations, one after the other, after a delay; then call a function."""
        self.at(self.now + delay, self._pass, hops, 0, then)

    def run(self) -> None:
        """Call all events, and those that they make."""
        while self._events:
            self.now, _, function, arguments = heapq.heappop(self._events)
            function(*arguments)

    def _pass(self, hops: Sequence[Hop], place: int, then: Callable[[], None]) -> None:
        if place == len(hops):
            then()
            return
        station, seconds, delay = hops[place]
        self.at(station.serve(self.now, seconds) + delay, self._pass, hops, place + 1, then)
