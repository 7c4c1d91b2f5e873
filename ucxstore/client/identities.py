"""`Identities`: the storages behind its servers that a store relies on.

Each storage has an identity, which its server sends when a client connects. That of a directory
stays; memory has a new one whenever its server starts. Where a server has another identity than
before, its keys would be missing, and zarr would read fill values. So a store remembers which
identities it has met, and takes them along when it is pickled.

A new store of one server knows nothing from before. One of several servers reads which identities
belong together from the servers' record: see `ucxstore.client.record`.
"""

from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import NamedTuple

from ucxstore.base.address import HostPort
from ucxstore.base.errors import ConnectError, ServerLostError, ServerRestartedError, UcxStoreError
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
        """The identities that are known, of any of the servers."""
        return frozenset({*self._told.values(), *self._met.values()})

    @property
    def need_record(self) -> bool:
        """Whether the servers' own record must tell which of them belong together."""
        return not (self.scratch or self._told.keys() >= self.servers)

    def know(self, server: HostPort) -> bool:
        """Return whether the server's identity is known, and so it was there."""
        return server in self._told or server in self._met

    def meet(self, server: HostPort, welcome: Welcome) -> bool:
        """Return whether a server has its old identity, or is met for the first time."""
        before = self._told.get(server)
        if before is None:
            before = self._met.setdefault(server, welcome.identity)
        return before == welcome.identity

    def check(self, server: HostPort, welcome: Welcome) -> None:
        """Do as `meet`, but raise.

        Raises
        ------
        ServerRestartedError
            If it has another identity.
        """
        if not self.meet(server, welcome):
            expected = self._told.get(server) or self._met[server]
            raise other_storage(server, welcome, expected)

    def accept(self, server: HostPort, welcome: Welcome) -> None:
        """Rely on the identity that the server has now."""
        known = self._told if server in self._told else self._met
        known[server] = welcome.identity

    def rely_on(self, server: HostPort, identity: bytes) -> None:
        """Rely on this identity from now on, whatever others are known."""
        self._told[server] = identity

    def lost(self, server: HostPort, error: UcxStoreError) -> UcxStoreError:
        """Return the error of a server that cannot be reached: it is lost if it is known.

        A server that was reached and cannot be used is not lost, and says why itself.
        """
        known = server in self._told or server in self._met
        if known and isinstance(error, ConnectError) and not error.reached:
            return ServerLostError(f"{server}: the server is lost: {error}")
        return error


def other_storage(server: HostPort, welcome: Welcome, expected: bytes) -> ServerRestartedError:
    """Return the error of a server that has another storage than `expected`."""
    how = (
        "has restarted, and has lost what it held in memory"
        if welcome.volatile
        else "has restarted with another storage (is a directory not mounted?)"
    )
    return ServerRestartedError(
        f"{server}: the server {how}: expected the storage {expected.hex()}, found "
        f"{welcome.identity.hex()} (store.accept_restarted_sync() goes on without the old values)"
    )
