"""`OneServer`: the channel of a store with one server."""

from typing import TYPE_CHECKING, Any

from ucxstore.address import HostPort
from ucxstore.client.channel import Channel
from ucxstore.client.connections import Connector, ServerConnection
from ucxstore.client.incarnations import Incarnations
from ucxstore.client.loops import Operation, Queue
from ucxstore.client.requests import Request
from ucxstore.errors import ServerLostError, UcxStoreError
from ucxstore.options import ClientOptions

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    from ucxstore._core import Allocation, Connection


class OneServer(Channel):
    """A channel to one server, as long as its incarnation is the one that the store relies on.

    Parameters
    ----------
    server : HostPort
    connector : Connector
        Connects to it.
    incarnations : Incarnations
        Which of its incarnations the store relies on.
    options : ClientOptions
    """

    def __init__(
        self,
        server: HostPort,
        connector: Connector,
        incarnations: Incarnations,
        options: ClientOptions,
    ) -> None:
        super().__init__(options)
        self._server = server
        self._connector = connector
        self._incarnations = incarnations
        self._checked = b""  # the token of the last connection that was checked

    @property
    def opened(self) -> bool:
        connection = self._connector.current()
        return connection is not None and self._check(connection) is not None

    def open_sync(self, timeout: float | None = None) -> None:
        self._check(self._connector.connect(timeout or self.connect_timeout))

    def begin(self, request: Request[Any], queue: Queue | None) -> Operation:
        # A connection that was lost raises why.
        connection = self._check(self._connector.last)
        return request.start(connection, self.timeout, None if queue is None else queue.native)

    def see(self, key: str, out: object) -> int | None:
        connection = self._connector.last
        if connection is None or connection.welcome.token != self._checked:
            return None
        return connection.native.see(key, out)

    def hold(self, key: str) -> "npt.NDArray[np.uint8] | None":
        connection = self._connector.last
        if connection is None or connection.welcome.token != self._checked:
            return None
        return connection.native.hold(key)

    def map_file(self, key: str, *, waits: bool) -> "npt.NDArray[np.uint8] | None":
        connection = self._connector.last
        if connection is None or connection.welcome.token != self._checked:
            return None
        return connection.native.map_file(key, waits)

    def allocate(self, key: str, nbytes: int) -> "Allocation | None":
        return self._check(self._connector.last).allocate(key, nbytes)

    def ask_each_sync(
        self, request: Request[None], timeout: float | None = None
    ) -> list[UcxStoreError | None]:
        try:
            connection = self._check(self._connector.current())
            request.start(connection, timeout or self.timeout, None).wait()
        except UcxStoreError as error:
            return [error]
        return [None]

    @property
    def lanes(self) -> list[str]:
        connection = self._connector.current()
        return [] if connection is None else connection.native.lanes

    def accept_restarted(self) -> None:
        connection = self._connector.current()
        if connection is not None:
            self._incarnations.accept(self._server, connection.welcome)

    def _check(self, connection: ServerConnection | None) -> "Connection":
        if connection is None:
            raise ServerLostError(f"{self._server}: the connection is closed")
        welcome = connection.welcome
        if welcome.token != self._checked:
            self._incarnations.check(self._server, welcome)
            self._checked = welcome.token
        return connection.native
