"""Which starts of volatile servers a store relies on.

A server that holds values in memory has lost them when it comes back under another incarnation.
Its keys would then be missing, which zarr reads as fill values; so a store of several servers
remembers whom it has met. New stores of a process start with what the others have met first, and
a pickle takes along what its store has.
"""

from collections.abc import Mapping

from ucxstore.address import HostPort

_first_met: dict[HostPort, bytes] = {}  # by any store of this process, or accepted since


class Incarnations:
    """The incarnations that one store, and its copies by ``with_read_only``, rely on.

    Parameters
    ----------
    known : mapping, optional
        From another process.
    """

    def __init__(self, known: Mapping[HostPort, bytes] | None = None) -> None:
        self.known = dict(known or {})

    def is_the_one(self, server: HostPort, incarnation: bytes) -> bool:
        """Tell whether a server is still the one that it was, or was met for the first time."""
        known = self.known.get(server)
        if known is None:
            known = _first_met.setdefault(server, incarnation)
            known = self.known.setdefault(server, known)
        return known == incarnation

    def accept(self, server: HostPort, incarnation: bytes) -> None:
        """Rely on this one from now on."""
        self.known[server] = _first_met[server] = incarnation
