"""Which starts of volatile servers a store relies on.

A server that holds values in memory has lost them when it comes back under another incarnation.
Its keys would then be missing, which zarr reads as fill values; so a store remembers whom it has
met, and a pickle takes that along. New stores of several servers start with those whom others in
the process have met first: the metadata that still lets their arrays open is with all of them. A
new store of one server opens only what that has.
"""

from collections.abc import Iterable, Mapping

from ucxstore.address import HostPort
from ucxstore.errors import ServerRestartedError
from ucxstore.frames import Welcome

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
    scratch : bool
        Whether the store is in scratch space, which a server loses whatever else it serves.
    """

    def __init__(
        self,
        servers: Iterable[HostPort],
        known: Mapping[HostPort, bytes] | None = None,
        *,
        scratch: bool = False,
    ) -> None:
        self.known = dict(known or {})
        self._scratch = scratch
        self._servers = frozenset(servers)

    def meet(self, server: HostPort, welcome: Welcome) -> bool:
        """Tell whether a server is still the one that it was, or was met for the first time."""
        if not self._is_volatile(welcome):
            return True
        known = self.known.get(server)
        if known is None:
            met = self._met_here().setdefault(server, welcome.incarnation)
            known = self.known.setdefault(server, met)
        return known == welcome.incarnation

    def check(self, server: HostPort, welcome: Welcome) -> None:
        """Do as `meet`, but raise.

        Raises
        ------
        ServerRestartedError
            If it is another one.
        """
        if not self.meet(server, welcome):
            raise ServerRestartedError(
                f"{server}: the server has restarted, and has lost what it held in memory "
                "(store.accept_restarted() goes on without it)"
            )

    def accept(self, server: HostPort, welcome: Welcome) -> None:
        """Rely on the server as it is now."""
        if self._is_volatile(welcome):
            self.rely_on(server, welcome.incarnation)

    def rely_on(self, server: HostPort, incarnation: bytes) -> None:
        """Rely on this one from now on."""
        self.known[server] = incarnation
        self._met_here()[server] = incarnation

    def _is_volatile(self, welcome: Welcome) -> bool:
        return welcome.volatile or self._scratch

    def _met_here(self) -> dict[HostPort, bytes]:
        return _first_met.setdefault(self._servers, {}) if len(self._servers) > 1 else {}
