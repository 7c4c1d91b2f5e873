"""`Member`: a server of a store, and whether it is the one that the store relies on."""

import threading
import time
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING

from ucxstore.base import logs
from ucxstore.base.address import HostPort
from ucxstore.base.counters import Counters
from ucxstore.base.errors import (
    ConnectError,
    ServerLostError,
    ServerRestartedError,
    UcxStoreError,
    without_frames,
)
from ucxstore.client.connections import Connector, ServerConnection
from ucxstore.client.identities import Identities
from ucxstore.protocol.frames import Welcome

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    from ucxstore._core import Connection

# Seconds between attempts to reach a server that did not answer. Attempts cost little, and a server
# that is started again should be used soon.
RETRY_SECONDS = 2.0


class Member:
    """A server of a store: its connection, and the storage that it should have.

    Parameters
    ----------
    server : HostPort
    connector : Connector
        Connects to it.
    identities : Identities
        Which identities the store relies on.
    counters : Counters
        Where requests to it are counted, if it is one of several.

    Attributes
    ----------
    server : HostPort
    connector : Connector
    expected : bytes or None
        The identity that its place in the set has; ``None`` where any will do.
    """

    def __init__(
        self,
        server: HostPort,
        connector: Connector,
        identities: Identities,
        counters: Counters,
    ) -> None:
        self.server = server
        self.connector = connector
        self._identities = identities
        self._counters = counters
        self.expected: bytes | None = None
        self._problem: UcxStoreError | None = None  # of the last attempt, if it failed
        self._retry_at = 0.0
        self._retrying: threading.Thread | None = None

    @property
    def is_connected(self) -> bool:
        """Whether there is a connection."""
        return self.connector.current() is not None

    @property
    def is_resting(self) -> bool:
        """Whether nobody has wanted a connection to it yet, or for a while."""
        return self.connector.last is None and self._problem is None

    @property
    def is_away(self) -> bool:
        """Whether it is neither connected, nor rests."""
        last = self.connector.last  # looked at once: another thread may connect
        return self._problem is not None if last is None else not last.native.alive

    @property
    def has_failed(self) -> bool:
        """Whether the last attempt to connect to it failed."""
        return self._problem is not None

    @property
    def may_come(self) -> bool:
        """Whether it was not there yet at the last attempt, and is not known from before."""
        is_away = isinstance(self._problem, ConnectError) and self._problem.may_come
        return is_away and not self.was_met and not self._identities.know(self.server)

    @property
    def was_lost(self) -> bool:
        """Whether the last attempt to connect to it did not fail, and the connection has ended."""
        return self.was_met and not self.has_failed and not self.is_connected

    @property
    def was_met(self) -> bool:
        """Whether it was connected, and the connection was not closed as idle."""
        return self.connector.last is not None

    @property
    def welcome(self) -> Welcome | None:
        """The server's welcome, if there is a connection."""
        connection = self.connector.current()
        return None if connection is None else connection.welcome

    # ---- requests ----

    def connection(self) -> "Connection":
        """Return the connection; never blocks.

        Raises
        ------
        ServerLostError, ConnectError
            If there is none.
        ServerRestartedError
            As from `check`.
        """
        connection = self.connector.current()
        if connection is None:
            raise self._why_none()
        self.check(connection.welcome)
        return connection.native

    def take(self) -> "Connection | None":
        """Return the connection, which stays open until `put_back`; ``None`` if the member rests.

        Raises
        ------
        ServerLostError, ConnectError, ServerRestartedError
            As from `connection`.
        """
        connection = self.connector.take()
        if connection is None:
            if self._problem is not None:
                raise without_frames(self._problem)
            return None
        try:
            if not connection.native.alive:
                raise self._why_none()
            self.check(connection.welcome)
        except BaseException:
            self.connector.put_back()
            raise
        self._problem = None  # another store may have connected
        return connection.native

    def put_back(self) -> None:
        """End one use of the connection."""
        self.connector.put_back()

    def hold(self, key: str) -> "npt.NDArray[np.uint8] | None":
        """Return a whole value where it lies, as `Channel.hold` does."""
        connection = self._right()
        return None if connection is None else connection.native.hold(key)

    def map_file(self, key: str, *, waits: bool) -> "npt.NDArray[np.uint8] | None":
        """Return a whole value as a mapping of its file, as `Channel.map_file` does."""
        connection = self._right()
        return None if connection is None else connection.native.map_file(key, waits)

    def count_request(self) -> None:
        """Count a request to it."""
        self._counters.add_server(str(self.server), requests=1)

    def count_failover(self) -> None:
        """Count and log a request that goes to others in its place."""
        self._counters.add_server(str(self.server), failovers=1)
        fields = {"event": "failover", "peer": str(self.server)}
        logs.cluster.warning("others answer in place of %s", self.server, extra=fields)

    # ---- connecting ----

    def connect(self, timeout: float) -> ServerConnection:
        """Return the connection; make it, blocking, if there is none.

        Raises
        ------
        UcxStoreError
            As from `Connector.connect`; `connection` raises it from then on, as `lost` has it.
        """
        try:
            connection = self.connector.connect(timeout)
        except UcxStoreError as error:
            self._problem = without_frames(self.lost(error))
            self._retry_at = time.monotonic() + RETRY_SECONDS
            raise
        self._problem = None
        return connection

    def try_to_connect(self, timeout: float) -> None:
        """Do as `connect`, and leave a failure to `connection`."""
        with suppress(UcxStoreError):
            self.connect(timeout)

    def lost(self, error: UcxStoreError) -> UcxStoreError:
        """Return the error of a server that cannot be reached: it is lost if it is known.

        A server that was reached and cannot be used is not lost, and says why itself.
        """
        is_away = isinstance(error, ConnectError) and not error.reached
        if is_away and self._identities.know(self.server):
            return ServerLostError(f"{self.server}: the server is lost: {error}")
        return error

    def retry(self, timeout: float, then: Callable[[], None]) -> None:
        """Try to connect in a thread, unless one is trying, or the last attempt has just failed.

        Parameters
        ----------
        timeout : float
            Seconds that connecting may take.
        then : callable
            Called in that thread once there is a connection.
        """
        running = self._retrying is not None and self._retrying.is_alive()
        if not running and time.monotonic() >= self._retry_at:
            # Two requests may both come here. Each starts its own thread; they share an attempt.
            thread = self._retrying = threading.Thread(
                target=self._try_again,
                args=(timeout, then),
                name=f"ucxstore-retry-{self.server}",
                daemon=True,
            )
            thread.start()

    # ---- identities ----

    def check(self, welcome: Welcome) -> None:
        """Raise unless the server has the storage that the store relies on.

        Raises
        ------
        ServerRestartedError
            If it has another storage than it had, or than the set's record has in its place.
        """
        expected = self._expected_of(welcome)
        if welcome.identity != expected:
            raise _other_storage(self.server, welcome, expected)

    def place(self, expected: bytes | None) -> None:
        """Expect this identity from now on, and remember it where the server has it."""
        self.expected = expected
        welcome = self.welcome
        if welcome is not None and expected in (None, welcome.identity):
            self._identities.expected(self.server, welcome)

    def accept(self) -> None:
        """Rely on the server as it is now."""
        welcome = self.welcome
        if welcome is not None:
            self._identities.accept(self.server, welcome)

    def _why_none(self) -> UcxStoreError:
        if self._problem is not None:
            return without_frames(self._problem)
        return ServerLostError(f"{self.server}: the server is gone")

    def _right(self) -> ServerConnection | None:
        """Return the connection, if it is to the storage that it should be to."""
        connection = self.connector.current()
        if connection is None:
            return None
        welcome = connection.welcome
        return connection if welcome.identity == self._expected_of(welcome) else None

    def _expected_of(self, welcome: Welcome) -> bytes:
        """Return the identity that it should have: in the set, and as it was met."""
        if self.expected is not None and welcome.identity != self.expected:
            return self.expected
        return self._identities.expected(self.server, welcome)

    def _try_again(self, timeout: float, then: Callable[[], None]) -> None:
        self.try_to_connect(timeout)
        if self.is_connected:
            then()


def _other_storage(server: HostPort, welcome: Welcome, expected: bytes) -> ServerRestartedError:
    how = (
        "has restarted, and has lost what it held in memory"
        if welcome.volatile
        else "has restarted with another storage (is a directory not mounted?)"
    )
    return ServerRestartedError(
        f"{server}: the server {how}: expected the storage {expected.hex()}, found "
        f"{welcome.identity.hex()} (store.accept_restarted_sync() goes on without the old values)"
    )
