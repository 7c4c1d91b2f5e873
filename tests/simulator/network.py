"""The model of a network between servers: links that keep order, and break; partitions.

What is cut holds messages back, as TCP does, until it is whole again or the link is closed. Each
direction is cut alone; the way to the source is another one.
"""

from collections import deque
from collections.abc import Hashable
from typing import Any


class Link:
    """A connection between two processes.

    Attributes
    ----------
    ends : list of int
        The processes: who has dialled, and who has accepted.
    queues : list of deque
        What is on its way to each end. ``None`` tells the end of the connection.
    open : list of bool
        Whether each end still uses it.
    """

    __slots__ = ("ends", "open", "queues")

    def __init__(self, dialler: int, accepter: int) -> None:
        self.ends = (dialler, accepter)
        self.queues: list[deque[Any]] = [deque(), deque()]
        self.open = [True, True]

    def copy(self) -> "Link":
        other = Link.__new__(Link)
        other.ends = self.ends
        other.queues = [deque(one) for one in self.queues]
        other.open = list(self.open)
        return other

    def key(self) -> Hashable:
        return self.ends, tuple(map(tuple, self.queues)), tuple(self.open)


class Network:
    """All links, and what is cut.

    Attributes
    ----------
    cut : set of (int, int)
        Directions in which nothing goes, from server to server. `SOURCE` is the source.
    """

    __slots__ = ("cut", "links")

    def __init__(self) -> None:
        self.cut: set[tuple[int, int]] = set()
        self.links: dict[int, Link] = {}

    def copy(self) -> "Network":
        other = Network.__new__(Network)
        other.cut = set(self.cut)
        other.links = {at: one.copy() for at, one in self.links.items()}
        return other

    def connect(self, dialler: int, dial: int, accepter: int) -> int:
        """Make a link; return its number. Those of a process do not depend on others."""
        number = dialler * _MOST_DIALS + dial
        self.links[number] = Link(dialler, accepter)
        return number

    def key(self) -> Hashable:
        """Return what tells it from others."""
        links = frozenset((at, one.key()) for at, one in self.links.items())
        return links, frozenset(self.cut)


# Of one process.
_MOST_DIALS = 1_000_000

# In the place of a server's number.
SOURCE = -1
