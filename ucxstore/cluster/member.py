"""`Member`: one of several servers of a store, and the state of its connection."""

import threading
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from ucxstore import logs
from ucxstore.address import HostPort
from ucxstore.client.connections import Connector, ServerConnection
from ucxstore.client.incarnations import Incarnations
from ucxstore.cluster.notes import folder_of
from ucxstore.errors import ServerLostError, UcxStoreError, without_frames
from ucxstore.stats import Counters

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    from ucxstore._core import Connection

# Seconds between attempts to reach a server that did not answer. Attempts cost little, and a server
# that is started again should be used soon.
RETRY_SECONDS = 2.0


class Member:
    """A server of a store that has several.

    Parameters
    ----------
    server : HostPort
    connector : Connector
        Connects to it.
    incarnations : Incarnations
        Which incarnations the store relies on.
    counters : Counters
        Where requests to it are counted.
    """

    def __init__(
        self,
        server: HostPort,
        connector: Connector,
        incarnations: Incarnations,
        counters: Counters,
    ) -> None:
        self.server = server
        self._connector = connector
        self._incarnations = incarnations
        self._counters = counters
        self._notes = folder_of(incarnations.servers)
        self._problem: UcxStoreError | None = None  # of the last attempt, if it failed
        self._was_met = False
        self._retry_at = 0.0
        self._retrying: threading.Thread | None = None

    @property
    def is_connected(self) -> bool:
        """Whether there is a connection that may be used."""
        return self._usable() is not None

    @property
    def has_failed(self) -> bool:
        """Whether the last attempt to connect to it, or to exchange notes with it, failed."""
        return self._problem is not None

    @property
    def was_met(self) -> bool:
        """Whether it was ever connected."""
        return self._was_met

    @property
    def lanes(self) -> list[str]:
        """The transports that UCX chose for the connection, if there is one."""
        connection = self._connector.current()
        return [] if connection is None else connection.native.lanes

    # ---- requests ----

    def connection(self) -> "Connection":
        """Return the connection; never blocks.

        Raises
        ------
        ServerLostError, ConnectError
            If there is none.
        ServerRestartedError
            If it has lost what it held in the meantime.
        """
        connection = self._usable()
        if connection is None:
            if self._problem is not None:
                raise without_frames(self._problem)
            raise ServerLostError(f"{self.server}: the server is gone")
        self._incarnations.check(self.server, connection.welcome)
        return connection.native

    def hold(self, key: str) -> "npt.NDArray[np.uint8] | None":
        """Return a whole value where it lies, as `Channel.hold` does."""
        connection = self._usable()
        if connection is None or not self._incarnations.meet(self.server, connection.welcome):
            return None
        return connection.native.hold(key)

    def map_file(self, key: str, *, waits: bool) -> "npt.NDArray[np.uint8] | None":
        """Return a whole value as a mapping of its file, as `Channel.map_file` does."""
        connection = self._usable()
        if connection is None or not self._incarnations.meet(self.server, connection.welcome):
            return None
        return connection.native.map_file(key, waits)

    def count_request(self) -> None:
        """Count a request to it."""
        self._counters.add_server(str(self.server), requests=1)

    def count_failover(self) -> None:
        """Count and log a request that goes to others in its place."""
        self._counters.add_server(str(self.server), failovers=1)
        fields = {"event": "failover", "peer": str(self.server)}
        logs.cluster.warning("others answer in place of %s", self.server, extra=fields)

    # ---- connecting ----

    def connect(self, timeout: float) -> None:
        """Try to connect, blocking; after a failure, `connection` raises it."""
        try:
            self._connector.connect(timeout)
        except UcxStoreError as error:
            self._fail(without_frames(error))
        else:
            if self.is_connected:
                self._problem = None

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
                name=f"ucxstore-{self.server}",
                daemon=True,
            )
            thread.start()

    # ---- incarnations and notes ----

    def meet(self) -> bool | None:
        """Remember its incarnation, and return whether it shares its values with others.

        Return ``None`` while it is not connected.
        """
        connection = self._usable()
        if connection is None:
            return None
        self._was_met = True
        self._incarnations.meet(self.server, connection.welcome)
        return connection.welcome.shared and not self._incarnations.scratch

    def accept_restarted(self) -> None:
        """Rely on the server as it is now."""
        connection = self._usable()
        if connection is not None:
            self._incarnations.accept(self.server, connection.welcome)

    def connection_for_notes(self) -> ServerConnection | None:
        """Return the connection, if notes are exchanged over it."""
        connection = self._connector.current()
        if connection is None or connection.welcome.shared or self._incarnations.scratch:
            return None
        return connection

    def noted(self, connection: ServerConnection, problem: UcxStoreError | None) -> None:
        """Remember that notes were exchanged over a connection, or why they could not be."""
        if problem is None:
            connection.noted.add(self._notes)
            self._problem = None
        else:
            self._fail(problem)

    def _usable(self) -> ServerConnection | None:
        """Return the connection, unless notes must be exchanged first."""
        connection = self._connector.current()
        if connection is None or self._notes in connection.noted or connection.welcome.shared:
            return connection
        return None if self._incarnations.need_notes else connection

    def _try_again(self, timeout: float, then: Callable[[], None]) -> None:
        self.connect(timeout)
        if self._connector.current() is not None:
            then()

    def _fail(self, problem: UcxStoreError) -> None:
        self._problem = problem
        self._retry_at = time.monotonic() + RETRY_SECONDS
