"""Ways to a server's values that go past `UcxStore`, so that tests can check it against them."""

from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Protocol, Self

import numpy as np
import obstore
from obstore.store import ObjectStore
from zarr.abc.store import Store

from ucxstore import UcxStore
from ucxstore.base.address import Address
from ucxstore.base.native import core
from ucxstore.base.options import ClientOptions
from ucxstore.client.connect import Greeting
from ucxstore.client.memory import readable_view
from ucxstore.server import Server
from ucxstore.server.accepting.acceptor import Acceptor
from ucxstore.server.source_thread.carrier import Carrier

TIMEOUT = 10.0


def threads_of(server: Server) -> Any:
    """Return what runs a server until it is closed."""
    return server._threads


def acceptor_of(server: Server) -> Acceptor:
    """Return what accepts a server's clients."""
    acceptor: Acceptor = threads_of(server).acceptor
    return acceptor


def carrier_of(server: Server) -> Carrier:
    """Return what asks a server's source."""
    carrier: Carrier | None = threads_of(server).carrier
    assert carrier is not None
    return carrier


def believes(server: Server, key: str) -> bool:
    """Tell whether a server answers from its cache without asking its source."""
    return carrier_of(server)._storage.believes(key)


def options_of(store: UcxStore) -> ClientOptions:
    """Return the options that a store was made with."""
    return store._options


def is_open(store: Store) -> bool:
    """Tell whether zarr takes a store for open."""
    return store._is_open


class Backdoor(Protocol):
    """Read and change values past the store, by full keys: with the store's prefix."""

    def set(self, key: str, value: bytes) -> None: ...

    def get(self, key: str) -> bytes | None: ...


class DirectoryBackdoor:
    """The files that a directory storage keeps."""

    def __init__(self, root: Path) -> None:
        self.root = root

    def set(self, key: str, value: bytes) -> None:
        path = self.root / key
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(value)

    def get(self, key: str) -> bytes | None:
        path = self.root / key
        return path.read_bytes() if path.is_file() else None


class ObjectBackdoor:
    """The objects behind a server's cache."""

    def __init__(self, store: ObjectStore) -> None:
        self.store = store

    def set(self, key: str, value: bytes) -> None:
        obstore.put(self.store, key, value)

    def get(self, key: str) -> bytes | None:
        try:
            return bytes(obstore.get(self.store, key).bytes())
        except FileNotFoundError:
            return None


class MemoryBackdoor:
    """A connection of the native core, by a client that nothing else uses.

    Parameters
    ----------
    address : str
    ucx : mapping or None
        Options of UCX, to go over it; ``None`` for plain TCP.
    """

    def __init__(self, address: str, ucx: Mapping[str, str] | None = None) -> None:
        (self._server,) = Address.parse(address).servers
        self._plain = core.LocalClient()
        self._ucx = None if ucx is None else core.Client(ucx, False)
        self._connection = self._connect()

    def _connect(self) -> core.Connection:
        with Greeting(self._server, None, TIMEOUT) as greeting:
            token = greeting.welcome.token
            if self._ucx is None:
                fd = greeting.stay(checked=False)
                return self._plain.attach_remote(fd, token, str(self._server), checked=False)
            port = self._ucx.open()
            fd, remote = greeting.attach(port.address)
        return port.attach(fd, token, remote, str(self._server), TIMEOUT)

    @property
    def connection(self) -> core.Connection:
        """A connection; another one if the server has asked for that, as it became one of a set."""
        if not self._connection.alive:
            self._connection = self._connect()
        return self._connection

    def set(self, key: str, value: bytes) -> None:
        memory = readable_view(np.frombuffer(value, "u1"))
        call = [key], [memory.layout], [memory.owner], TIMEOUT, None
        self.connection.set(*call).wait()

    def get(self, key: str) -> bytes | None:
        (found,) = self.connection.get([key], [[]], TIMEOUT, None).wait()
        return None if found is None else found[0].tobytes()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._connection.close()
        self._plain.close()
        if self._ucx is not None:
            self._ucx.close(TIMEOUT)
        # pytest may hold this until the interpreter ends, and the core would report a leak.
        del self._connection, self._plain, self._ucx
