"""What the nodes of the model read, and where it is."""

from dataclasses import dataclass
from functools import cache

import numpy as np
import numpy.typing as npt

from ucxstore.cluster.placement import Placement

# Keys that are placed at a time: a weight for each and each server.
_PLACED = 2000


@dataclass(frozen=True, slots=True, kw_only=True)
class Load:
    """Nodes that read values, each one after the other in a few lanes.

    Parameters
    ----------
    nodes, keys, nbytes : int
        How many; the bytes of each value.
    exponent : float
        Of Zipf's law: the key of rank r is wanted r**exponent times less than the first. With 0,
        all are wanted alike.
    requests : int
        Of each node.
    at_once : int
        Requests that a node has under way.
    """

    nodes: int = 1000
    keys: int = 100_000
    nbytes: int = 1 << 20
    exponent: float = 1.0
    requests: int = 50
    at_once: int = 8

    def __post_init__(self) -> None:
        for name in ("nodes", "keys", "nbytes", "requests", "at_once"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} must be at least 1, not {getattr(self, name)}")

    def shares(self) -> npt.NDArray[np.float64]:
        """Return the part of the requests that each key has, the most wanted one first."""
        weights = np.arange(1, self.keys + 1, dtype=float) ** -self.exponent
        return weights / weights.sum()

    def draw(self, seed: int) -> npt.NDArray[np.int64]:
        """Return the keys that each node reads, a row for each."""
        points = np.random.default_rng(seed).random((self.nodes, self.requests))
        return np.searchsorted(np.cumsum(self.shares())[:-1], points, side="right")


@cache
def places(nodes: int, keys: int) -> tuple[int, ...]:
    """Return the node of each key, as clients place keys."""
    placement = Placement([f"node-{node}:7437" for node in range(nodes)])
    found: list[int] = []
    for first in range(0, keys, _PLACED):
        some = range(first, min(first + _PLACED, keys))
        found += placement.servers_of([f"array/c/{key}" for key in some])
    return tuple(found)
