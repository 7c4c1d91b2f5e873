"""Faults, drawn at random: each has a target, begins, and ends after a while."""

import heapq
import itertools
import random
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass

from tests.eventually import nothing_happens


@dataclass(frozen=True, slots=True)
class Fault:
    """A fault that may happen again and again.

    Attributes
    ----------
    name : str
        As it is counted.
    target : str
        What it befalls: one fault at a time.
    begin, end : callable
    seconds : tuple of float
        The shortest and the longest time from `begin` to `end`.
    weight : float
        How often it is drawn.
    alone : bool
        Whether there may be no other meanwhile.
    possible : callable
        Whether it can happen now: nobody stops a server that has not started yet.
    also : tuple of str
        What else it befalls.
    """

    name: str
    target: str
    begin: Callable[[], object]
    end: Callable[[], object]
    seconds: tuple[float, float] = (0.5, 5.0)
    weight: float = 1.0
    alone: bool = False
    possible: Callable[[], bool] = lambda: True
    also: tuple[str, ...] = ()

    @property
    def targets(self) -> set[str]:
        """All that it befalls."""
        return {self.target, *self.also}


class Plague:
    """Begins faults and ends them.

    Parameters
    ----------
    faults : list of Fault
    seed : int
    most : int
        How many there may be at once.
    """

    def __init__(self, faults: list[Fault], seed: int, most: int = 3) -> None:
        self._faults = faults
        self._random = random.Random(seed)
        self._most = most
        self._order = itertools.count()
        self._ends: list[tuple[float, int, Fault]] = []
        self.counts: Counter[str] = Counter()
        self.log: list[str] = []

    def rage(self, seconds: float, watch: Callable[[], object]) -> None:
        """Go on for so long, and then end all faults; call `watch` all the time."""
        until = time.monotonic() + seconds
        next_one = time.monotonic() + 1.0
        while (now := time.monotonic()) < until:
            watch()
            while self._ends and self._ends[0][0] <= now:
                self._end(heapq.heappop(self._ends)[2])
            if now >= next_one:
                self._begin()
                next_one = time.monotonic() + self._random.expovariate(1.0)
            nothing_happens(0.05)
        self.cease()

    def cease(self) -> None:
        """End all faults now."""
        while self._ends:
            self._end(heapq.heappop(self._ends)[2])

    def _begin(self) -> None:
        if len(self._ends) >= self._most:
            return
        befallen = {target for _, _, fault in self._ends for target in fault.targets}
        possible = [one for one in self._faults if not one.targets & befallen and one.possible()]
        if not possible:
            return
        weights = [fault.weight for fault in possible]
        fault = self._random.choices(possible, weights)[0]
        if fault.alone:
            self.cease()
        elif any(one.alone for _, _, one in self._ends):
            return
        self._note("begins", fault)
        fault.begin()
        self.counts[fault.name] += 1
        end = time.monotonic() + self._random.uniform(*fault.seconds)
        if fault.alone:
            nothing_happens(max(0.0, end - time.monotonic()))
            self._end(fault)
        else:
            heapq.heappush(self._ends, (end, next(self._order), fault))

    def _end(self, fault: Fault) -> None:
        fault.end()
        self._note("ended", fault)

    def _note(self, what: str, fault: Fault) -> None:
        self.log.append(f"{time.monotonic():.4f} {fault.name} of {fault.target} {what}")
