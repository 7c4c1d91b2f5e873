"""`OneServer`: the channel of a store with one server."""

import time
from typing import TYPE_CHECKING, Any

from ucxstore.base.errors import ClusterError, ConnectError, ServerLostError, UcxStoreError
from ucxstore.base.options import ClientOptions
from ucxstore.client.channel import Channel
from ucxstore.client.connections import ServerConnection
from ucxstore.client.identities import Identities
from ucxstore.client.loops import Operation, Queue
from ucxstore.client.patience import Patience
from ucxstore.client.requests import Request
from ucxstore.cluster.member import Member
from ucxstore.cluster.record import Record
from ucxstore.protocol.frames import Welcome

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    from ucxstore._core import Allocation, Connection

# How long a server that restarts may be away.
_RESTART_SECONDS = 10.0


class OneServer(Channel):
    """A channel to one server, as long as its identity is the one that the store relies on.

    Parameters
    ----------
    member : Member
    identities : Identities
        Which identities the store relies on.
    options : ClientOptions
    """

    def __init__(self, member: Member, identities: Identities, options: ClientOptions) -> None:
        super().__init__(options)
        self._member = member
        self._connector = member.connector
        self._connector.keep_open()  # the core's operations do not say here when they end
        self._identities = identities
        self._checked = b""  # the token of the last connection that was checked
        self._away_until: float | None = None  # when a server that ended should be back

    @property
    def opened(self) -> bool:
        connection = self._connector.current()
        if connection is None:
            return False
        if connection.welcome.token == self._checked:
            return True
        self._member.check(connection.welcome)
        return self._is_whole(connection.welcome)

    def open_sync(self, timeout: float | None = None) -> None:
        seconds = timeout or self.connect_timeout
        patience = Patience(seconds)
        while True:
            self.check_open()
            try:
                welcome = self._member.connect(patience.left()).welcome
                break
            except ConnectError as error:
                until = self._tried_until(patience.deadline)
                if until is None or not patience.wait(error, until):
                    raise self._member.lost(error) from error.__cause__
        self._away_until = None
        self._member.check(welcome)
        if not self._is_whole(welcome):
            with self._connector.greet(seconds) as greeting:  # it may have left the set since
                self._connector.remember(greeting.welcome)

    def _tried_until(self, deadline: float) -> float | None:
        """Return until when to try again; ``None`` if a later try cannot succeed either."""
        if not self._connector.may_come_back:
            return deadline if self._member.may_come else None
        if self._away_until is None:  # to wait for a restart takes long only once
            self._away_until = min(deadline, time.monotonic() + _RESTART_SECONDS)
        return self._away_until

    def begin(self, request: Request[Any], queue: Queue | None) -> Operation:
        # A connection that was lost raises why.
        connection = self._check(self._connector.last, of_server=request.kind.of_server)
        return request.start(connection, self.timeout, None if queue is None else queue.native)

    def see(self, key: str, out: object) -> int | None:
        native = self._checked_before()
        return None if native is None else native.see(key, out)

    def see_value(self, key: str) -> bytearray | None:
        native = self._checked_before()
        return None if native is None or self._closed else native.see_value(key)

    def hold(self, key: str) -> "npt.NDArray[np.uint8] | None":
        native = self._checked_before()
        return None if native is None else native.hold(key)

    def map_file(self, key: str, *, waits: bool) -> "npt.NDArray[np.uint8] | None":
        native = self._checked_before()
        return None if native is None else native.map_file(key, waits)

    def allocate(self, key: str, nbytes: int) -> "Allocation | None":
        return self._check(self._connector.last).allocate(key, nbytes)

    def ask_each_sync(
        self, request: Request[None], timeout: float | None = None
    ) -> list[UcxStoreError | None]:
        try:
            connection = self._check(self._connector.current(), of_server=request.kind.of_server)
            request.start(connection, timeout or self.timeout, None).wait()
        except UcxStoreError as error:
            return [error]
        return [None]

    @property
    def decodes(self) -> bool:
        connection = self._connector.last
        return connection is not None and connection.welcome.decodes

    def accept_restarted(self) -> None:
        self._member.accept()

    def _checked_before(self) -> "Connection | None":
        """Return the connection if it was checked; never blocks."""
        connection = self._connector.last
        if connection is None or connection.welcome.token != self._checked:
            return None
        return connection.native

    def _check(
        self, connection: ServerConnection | None, *, of_server: bool = False
    ) -> "Connection":
        if connection is None:
            raise ServerLostError(f"{self._member.server}: the connection is closed")
        welcome = connection.welcome
        if welcome.token != self._checked:
            self._member.check(welcome)
            if not of_server:
                self._check_whole(welcome)
                self._checked = welcome.token
        return connection.native

    def _is_whole(self, welcome: Welcome) -> bool:
        try:
            self._check_whole(welcome)
        except ClusterError:
            return False
        return True

    def _check_whole(self, welcome: Welcome) -> None:
        """Raise `ClusterError` if the server has but a part of the values of a set."""
        if welcome.record and not welcome.shared and self._identities.need_record:
            record = Record.decode(welcome.record)
            assert record is not None
            record.bind({self._member.server: welcome.identity})
