"""`Incarnations`: the incarnations of volatile servers that a store relies on.

A server that holds values in memory loses them when it restarts, and then has another incarnation.
Its keys are missing then, and zarr would read fill values. So a store remembers which incarnations
it has met, and takes that along when it is pickled.

In a cluster, the other servers still have the metadata that lets arrays open. So all stores of the
same servers in a process share the incarnations that were seen: met by the process itself, or found
in notes of others (`ucxstore.cluster.notes`). With a single server, the metadata is lost too, so a
new store of it starts with nothing.
"""

from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import NamedTuple

from ucxstore.address import HostPort
from ucxstore.errors import ServerRestartedError
from ucxstore.protocol.frames import Welcome

type _Seen = dict[HostPort, dict[bytes, None]]

# By the servers of a cluster: what stores of this process have seen, in order.
_seen: dict[frozenset[HostPort], _Seen] = {}

_NOTHING: Mapping[HostPort, bytes] = MappingProxyType({})


class Known(NamedTuple):
    """The incarnations that a store passes to its copies in any process.

    Parameters
    ----------
    told : mapping
        Those given by whoever started the servers, or accepted them after a restart.
    met : mapping
        Those that it has met; of a server that was seen before, the earlier one.
    """

    told: Mapping[HostPort, bytes] = _NOTHING
    met: Mapping[HostPort, bytes] = _NOTHING


class Incarnations:
    """The incarnations that one store, and its copies by ``with_read_only``, rely on.

    Parameters
    ----------
    servers : iterable of HostPort
        All servers of the store.
    known : Known
        What another store knew, perhaps in another process.
    scratch : bool
        Whether the store is in a scratch space. Every server loses that when it restarts.

    Attributes
    ----------
    servers : frozenset of HostPort
    scratch : bool
    need_notes : bool
        Whether notes of other clients must be read before servers are used.
    """

    def __init__(
        self, servers: Iterable[HostPort], known: Known | None = None, *, scratch: bool = False
    ) -> None:
        self.servers = frozenset(servers)
        self.scratch = scratch
        self._told, self._met = map(dict, known or Known())
        # A scratch space needs no notes: its stores take along what their owner has met.
        shared = len(self.servers) > 1 and not scratch
        self._seen = _seen.setdefault(self.servers, {}) if shared else {}
        self.need_notes = shared and not self._told.keys() >= self.servers

    @property
    def known(self) -> Known:
        """What copies of the store take along."""
        return Known(dict(self._told), dict(self._met))

    def meet(self, server: HostPort, welcome: Welcome) -> bool:
        """Return whether a server has its old incarnation, or is met for the first time."""
        if not (welcome.volatile or self.scratch):
            return True
        now = welcome.incarnation
        told = self._told.get(server)
        if told is not None:
            return told == now
        self.see(server, now)
        before = next((one for one in self.seen(server) if one != now), now)
        return self._met.setdefault(server, before) == now == before

    def check(self, server: HostPort, welcome: Welcome) -> None:
        """Do as `meet`, but raise.

        Raises
        ------
        ServerRestartedError
            If it has another incarnation.
        """
        if not self.meet(server, welcome):
            raise ServerRestartedError(
                f"{server}: the server has restarted, and has lost what it held in memory "
                "(store.accept_restarted() goes on without it)"
            )

    def see(self, server: HostPort, incarnation: bytes) -> None:
        """Remember an incarnation of a server, for all stores of these servers."""
        self._seen.setdefault(server, {}).setdefault(incarnation)

    def seen(self, server: HostPort) -> Sequence[bytes]:
        """Return the incarnations of a server that were seen, in order."""
        return tuple(self._seen.get(server, ()))

    def accept(self, server: HostPort, welcome: Welcome) -> None:
        """Rely on the server's incarnation, in this store and in stores that are made later."""
        if welcome.volatile or self.scratch:
            self.rely_on(server, welcome.incarnation)
            self._seen[server] = {welcome.incarnation: None}

    def rely_on(self, server: HostPort, incarnation: bytes) -> None:
        """Rely on this incarnation from now on, whatever others are known."""
        self._told[server] = incarnation
        if self._told.keys() >= self.servers:
            self.need_notes = False
