"""Which starts of volatile servers a store relies on.

A server that holds values in memory has lost them when it comes back under another incarnation.
Its keys would then be missing, which zarr reads as fill values; so a store of several servers
remembers whom it has met. New stores of the same servers in a process start with those whom others
have met first, and a pickle takes along whom its store has.
"""

from collections.abc import Iterable, Mapping

from ucxstore.address import HostPort

# By stores of all of these servers, in this process; or accepted since.
_first_met: dict[frozenset[HostPort], dict[HostPort, bytes]] = {}


class Incarnations:
    """The incarnations that one store, and its copies by ``with_read_only``, rely on.

    Parameters
    ----------
    servers : iterable of HostPort
        All servers of the store.
    known : mapping, optional
        From another process.
    """

    def __init__(
        self, servers: Iterable[HostPort], known: Mapping[HostPort, bytes] | None = None
    ) -> None:
        self.known = dict(known or {})
        self._servers = frozenset(servers)

    def is_the_one(self, server: HostPort, incarnation: bytes) -> bool:
        """Tell whether a server is still the one that it was, or was met for the first time."""
        known = self.known.get(server)
        if known is None:
            first_met = _first_met.setdefault(self._servers, {})
            known = self.known.setdefault(server, first_met.setdefault(server, incarnation))
        return known == incarnation

    def accept(self, server: HostPort, incarnation: bytes) -> None:
        """Rely on this one from now on."""
        self.known[server] = incarnation
        _first_met.setdefault(self._servers, {})[server] = incarnation
