"""Simulate a load by one of several ways to the values, and find the hottest server."""

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import count

import numpy as np

from benchmarks.model.constants import Constants
from benchmarks.model.engine import Hop, Simulation, Station
from benchmarks.model.load import Load, places

type Then = Callable[[], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Ways:
    """How readers come to values.

    Parameters
    ----------
    threads : int
        Of each server. A client's requests to a server are one thread's.
    parts : int
        Keys, and so servers, that each value is divided over.
    copies : int
        Servers that hold each of the `copied` most wanted keys. A reader asks any of them.
    copied : int
        How many keys have copies.
    group : int
        Nodes that share a cache: one of them fetches a value, and the others get it there. With 1,
        each node keeps what it has read; with 0, none does.
    """

    threads: int = 1
    parts: int = 1
    copies: int = 1
    copied: int = 100
    group: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What a load has taken.

    Parameters
    ----------
    seconds : float
        From the first request to the last answer.
    latencies : array of float
        Seconds of each request.
    sent : int
        Values, or parts of them, that servers have sent.
    hottest : int
        Those that the server with most has sent.
    busy : float
        The part of the time that the busiest thread of a server works.
    """

    seconds: float
    latencies: Sequence[float]
    sent: int
    hottest: int
    busy: float

    def latency(self, part: float) -> float:
        """Return the latency that this part of the requests does not exceed."""
        return float(np.quantile(self.latencies, part))


class _Node:
    """The threads and the network adapter of a node."""

    def __init__(self, threads: int) -> None:
        self.servers = [Station() for _ in range(threads)]
        self.client, self.sends, self.receives = Station(), Station(), Station()


class _Play:
    """One run.

    Parameters
    ----------
    load : Load
    constants : Constants
    ways : Ways
    seed : int
    """

    def __init__(self, load: Load, constants: Constants, ways: Ways, seed: int) -> None:
        self.load, self.constants, self.ways = load, constants, ways
        self.simulation = Simulation()
        self.nodes = [_Node(ways.threads) for _ in range(load.nodes)]
        self.latencies: list[float] = []
        self.sent: Counter[int] = Counter()
        self._places = places(load.nodes, load.keys)
        self._drawn = load.draw(seed).tolist()
        self._turns = count()  # of those who ask for a key with copies
        # By the node that keeps the value, or fetches it now: who waits for it.
        self._waiting: dict[tuple[int, int], list[Then] | None] = {}

    def run(self) -> None:
        for reader, keys in enumerate(self._drawn):
            left = iter(keys)
            for _ in range(self.load.at_once):
                self._next(reader, left)
        self.simulation.run()

    def _next(self, reader: int, left: Iterator[int]) -> None:
        key = next(left, None)
        if key is None:
            return
        begun = self.simulation.now

        def ended() -> None:
            self.latencies.append(self.simulation.now - begun)
            self._next(reader, left)

        if self.ways.group:
            self._get_by_cache(reader, key, ended)
        else:
            self._get(reader, key, ended)

    def _get_by_cache(self, reader: int, key: int, then: Then) -> None:
        size = self.ways.group
        cache = reader - reader % size + key % size
        if cache >= self.load.nodes:  # the last group has fewer
            cache = reader
        there = partial(self._ask, reader, cache, self.load.nbytes, then)
        place = cache, key
        if place not in self._waiting:
            self._waiting[place] = [there]
            self._get(cache, key, partial(self._keep, place))
        elif (waiting := self._waiting[place]) is not None:
            waiting.append(there)
        else:
            there()

    def _keep(self, place: tuple[int, int]) -> None:
        waiting, self._waiting[place] = self._waiting[place], None
        for there in waiting or ():
            there()

    def _get(self, reader: int, key: int, then: Then) -> None:
        """Get a value from where it is placed."""
        nodes, parts = self.load.nodes, self.ways.parts
        left = parts

        def ended() -> None:
            nonlocal left
            left -= 1
            if not left:
                then()

        first = self._places[key]
        if key < self.ways.copied:
            first += next(self._turns) % self.ways.copies
        for part in range(parts):
            # Beside one another in the order of names, which says nothing of how busy they are.
            self._ask(reader, (first + part) % nodes, self.load.nbytes // parts, ended)

    def _ask(self, reader: int, server: int, nbytes: int, then: Then) -> None:
        to, constants = self.nodes[reader], self.constants
        if reader == server:
            self.simulation.travel([Hop(to.client, constants.local_get.of(nbytes))], then)
            return
        self.sent[server] += 1
        of, wire = self.nodes[server], nbytes / constants.bandwidth
        thread = of.servers[reader % len(of.servers)]
        hops = [
            Hop(thread, constants.server_get.of(nbytes)),
            Hop(of.sends, wire, constants.latency),
            Hop(to.receives, wire),
            Hop(to.client, constants.client_get.of(nbytes)),
        ]
        self.simulation.travel(hops, then, constants.latency)


def play(load: Load, constants: Constants, ways: Ways, seed: int = 0) -> Outcome:
    """Simulate a load.

    Parameters
    ----------
    load : Load
    constants : Constants
    ways : Ways
    seed : int
        Of the keys that are drawn.
    """
    run = _Play(load, constants, ways, seed)
    run.run()
    seconds = run.simulation.now
    return Outcome(
        seconds=seconds,
        latencies=run.latencies,
        sent=run.sent.total(),
        hottest=max(run.sent.values(), default=0),
        busy=max(thread.busy for node in run.nodes for thread in node.servers) / seconds,
    )
