"""Which incarnations of volatile servers a store relies on.

A server that holds values in memory has lost them when it comes back under another incarnation.
Its keys would then be missing, which zarr reads as fill values; so a store remembers whom it has
met, and a pickle takes that along. Stores of the same several servers share what their process has
seen of each, met itself or found noted by others (`ucxstore.cluster.notes`): the metadata that
still lets their arrays open is with all of them. A new store of one server opens only what that
has.
"""

from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import NamedTuple

from ucxstore.address import HostPort
from ucxstore.errors import ServerRestartedError
from ucxstore.protocol.frames import Welcome

type _Seen = dict[HostPort, dict[bytes, None]]

# By stores of all of these servers, in this process: the first one first.
_seen: dict[frozenset[HostPort], _Seen] = {}

_NOTHING: Mapping[HostPort, bytes] = MappingProxyType({})


class Known(NamedTuple):
    """What a store knows of its servers' incarnations, for a copy of it in any process.

    Parameters
    ----------
    told : mapping
        By whoever started the servers, or accepted them as they are.
    met : mapping
        Those that it has met, or that were there before these.
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
        From another process.
    scratch : bool
        Whether the store is in a scratch space, which a server loses whatever else it serves.

    Attributes
    ----------
    servers : frozenset of HostPort
    scratch : bool
    need_notes : bool
        Whether others may know of incarnations that the store was not told of.
    """

    def __init__(
        self, servers: Iterable[HostPort], known: Known | None = None, *, scratch: bool = False
    ) -> None:
        self.servers = frozenset(servers)
        self.scratch = scratch
        self._told, self._met = map(dict, known or Known())
        # A space that has ended says so, and its owner tells whoever uses it of the servers.
        shared = len(self.servers) > 1 and not scratch
        self._seen = _seen.setdefault(self.servers, {}) if shared else {}
        self.need_notes = shared and not self._told.keys() >= self.servers

    @property
    def known(self) -> Known:
        """What goes along to copies of the store."""
        return Known(dict(self._told), dict(self._met))

    def meet(self, server: HostPort, welcome: Welcome) -> bool:
        """Tell whether a server is still the one that it was, or was met for the first time."""
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
            If it is another one.
        """
        if not self.meet(server, welcome):
            raise ServerRestartedError(
                f"{server}: the server has restarted, and has lost what it held in memory "
                "(store.accept_restarted() goes on without it)"
            )

    def see(self, server: HostPort, incarnation: bytes) -> None:
        """Remember, for all stores of these servers, what one of them is or has been."""
        self._seen.setdefault(server, {}).setdefault(incarnation)

    def seen(self, server: HostPort) -> Sequence[bytes]:
        """Return what it was seen as, the first one first: one that has restarted, as several."""
        return tuple(self._seen.get(server, ()))

    def accept(self, server: HostPort, welcome: Welcome) -> None:
        """Rely on the server as it is now, in stores that are made from now on, too."""
        if welcome.volatile or self.scratch:
            self.rely_on(server, welcome.incarnation)
            self._seen[server] = {welcome.incarnation: None}

    def rely_on(self, server: HostPort, incarnation: bytes) -> None:
        """Rely on this one from now on, whatever else is known."""
        self._told[server] = incarnation
        if self._told.keys() >= self.servers:
            self.need_notes = False
