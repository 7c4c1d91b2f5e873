"""`Identities`: the storages behind its servers that a store relies on.

Each storage has an identity, which its server sends when a client connects. That of a directory
stays; memory has a new one whenever its server starts. Where a server has another identity than
before, its keys would be missing, and zarr would read fill values. So a store remembers which
identities it has met, and takes them along when it is pickled.

A new store of one server knows nothing from before. One of several servers reads which identities
belong together from the servers' record: see `ucxstore.cluster.record`.
"""

from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import NamedTuple

from ucxstore.base.address import HostPort
from ucxstore.protocol.frames import Welcome

_NOTHING: Mapping[HostPort, bytes] = MappingProxyType({})


class Known(NamedTuple):
    """The identities that a store passes to its copies in any process.

    Parameters
    ----------
    told : mapping
        Those given by whoever started the servers.
    met : mapping
        Those that it has met, or accepted after a restart.
    """

    told: Mapping[HostPort, bytes] = _NOTHING
    met: Mapping[HostPort, bytes] = _NOTHING


class Identities:
    """The identities that one store, and its copies by ``with_read_only``, rely on.

    Parameters
    ----------
    servers : iterable of HostPort
        All servers of the store.
    known : Known
        What another store knew, perhaps in another process.
    scratch : bool
        Whether the store is in a scratch space.

    Attributes
    ----------
    servers : frozenset of HostPort
    scratch : bool
    """

    def __init__(
        self, servers: Iterable[HostPort], known: Known | None = None, *, scratch: bool = False
    ) -> None:
        self.servers = frozenset(servers)
        self.scratch = scratch
        self._told, self._met = map(dict, known or Known())

    @property
    def known(self) -> Known:
        """What copies of the store take along."""
        return Known(dict(self._told), dict(self._met))

    @property
    def all_known(self) -> frozenset[bytes]:
        """The identities that are known, of any of the servers; the told ones if those are all."""
        met = self._met.values() if self.need_record else ()
        return frozenset({*self._told.values(), *met})

    @property
    def need_record(self) -> bool:
        """Whether the servers' own record must tell which of them belong together."""
        return not (self.scratch or self._told.keys() >= self.servers)

    @property
    def are_shared(self) -> bool:
        """Whether the servers share their values, where no record is needed."""
        return not self.scratch and len(self.all_known) == 1

    def know(self, server: HostPort) -> bool:
        """Return whether the server's identity is known, and so it was there."""
        return server in self._told or server in self._met

    def expected(self, server: HostPort, welcome: Welcome) -> bytes:
        """Return the identity that the server had before; the welcome's where it is met first."""
        return self._told.get(server) or self._met.setdefault(server, welcome.identity)

    def accept(self, server: HostPort, welcome: Welcome) -> None:
        """Rely on the identity that the server has now."""
        known = self._told if server in self._told else self._met
        known[server] = welcome.identity

    def rely_on(self, server: HostPort, identity: bytes) -> None:
        """Rely on this identity from now on, whatever others are known."""
        self._told[server] = identity
