"""One of several servers of a store: whether it can be asked, and why not."""

import threading
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from ucxstore.address import HostPort
from ucxstore.client.runtime import Link, Session
from ucxstore.cluster.incarnations import Incarnations
from ucxstore.cluster.notes import folder_of
from ucxstore.errors import ServerLostError, UcxStoreError, without_frames
from ucxstore.stats import Counters

if TYPE_CHECKING:
    from ucxstore._core import Connection

# Seconds between attempts to reach a server that did not answer. A refusal costs a server
# nothing, and whoever starts one again does not want to wait.
RETRY_SECONDS = 2.0


class Member:
    """A server of a store that has several.

    Parameters
    ----------
    place : HostPort
    link : Link
        The way to it.
    incarnations : Incarnations
        Which of its starts the store relies on.
    counters : Counters
        Where its requests are counted.
    scratch : bool
        Whether the store is over a scratch space: whatever else the server serves, that is its own,
        and ends with its process.
    """

    def __init__(
        self,
        place: HostPort,
        link: Link,
        incarnations: Incarnations,
        counters: Counters,
        *,
        scratch: bool = False,
    ) -> None:
        self.place = place
        self._link = link
        self._incarnations = incarnations
        self._counters = counters
        self._scratch = scratch
        self._notes = folder_of(incarnations.servers)
        self._problem: UcxStoreError | None = None  # of the last attempt, if it failed
        self._was_met = False
        self._retry_at = 0.0
        self._retrying: threading.Thread | None = None

    @property
    def is_connected(self) -> bool:
        """Whether there is a connection that may be used."""
        return self._session() is not None

    @property
    def has_failed(self) -> bool:
        """Whether the last attempt to connect to it, or to exchange notes with it, failed."""
        return self._problem is not None

    @property
    def was_met(self) -> bool:
        """Whether it was ever connected."""
        return self._was_met

    def meet(self) -> bool | None:
        """Take note of its incarnation, and return whether it says that others serve its values.

        ``None`` while it is not connected.
        """
        session = self._session()
        if session is None:
            return None
        self._was_met = True
        self._incarnations.meet(self.place, session.welcome)
        return session.welcome.shared and not self._scratch

    @property
    def lanes(self) -> list[str]:
        """What UCX chose for the connection, if there is one."""
        session = self._link.session()
        return [] if session is None else session.connection.lanes

    def connection(self) -> "Connection":
        """Return the connection; never blocks.

        Raises
        ------
        ServerLostError, ConnectError
            If there is none.
        ServerRestartedError
            If it has lost what it held in the meantime.
        """
        session = self._session()
        if session is None:
            if self._problem is not None:
                raise without_frames(self._problem)
            raise ServerLostError(f"{self.place}: the server is gone")
        self._incarnations.check(self.place, session.welcome)
        return session.connection

    def session_to_note(self) -> Session | None:
        """Return the connection, if there may be notes about the server's starts, or with it."""
        session = self._link.session()
        no_notes = session is None or session.welcome.shared or self._scratch
        return None if no_notes else session

    def noted(self, session: Session, problem: UcxStoreError | None) -> None:
        """Take note that notes were exchanged over a connection, or why they could not be."""
        if problem is None:
            session.noted.add(self._notes)
            self._problem = None
        else:
            self._fail(problem)

    def accept_restarted(self) -> None:
        """Rely on the server as it is now."""
        session = self._session()
        if session is not None:
            self._incarnations.accept(self.place, session.welcome)

    def connect(self, timeout: float) -> None:
        """Try to connect, blocking; what fails is told by `connection`."""
        try:
            self._link.connect_sync(timeout)
        except UcxStoreError as error:
            self._fail(without_frames(error))
        else:
            if self.is_connected:
                self._problem = None

    def retry(self, timeout: float, then: Callable[[], None] | None = None) -> None:
        """Try again in a thread, unless one does, or the last attempt was a moment ago.

        Parameters
        ----------
        timeout : float
            Seconds that connecting may take.
        then : callable, optional
            What else is to be done there once there is a connection.
        """
        running = self._retrying is not None and self._retrying.is_alive()
        if not running and time.monotonic() >= self._retry_at:
            self._retrying = threading.Thread(
                target=self._try_again,
                args=(timeout, then),
                name=f"ucxstore-{self.place}",
                daemon=True,
            )
            self._retrying.start()

    def count_request(self) -> None:
        """Take note of a request to it."""
        self._counters.add_server(str(self.place), requests=1)

    def count_failover(self) -> None:
        """Take note of a request that others had to answer in its place."""
        self._counters.add_server(str(self.place), failovers=1)

    def _session(self) -> Session | None:
        """Return the connection if it may be used: as soon as it is known what others know."""
        session = self._link.session()
        if session is None or self._notes in session.noted or session.welcome.shared:
            return session
        return None if self._incarnations.need_notes else session

    def _try_again(self, timeout: float, then: Callable[[], None] | None) -> None:
        self.connect(timeout)
        if then is not None and self._link.session() is not None:
            then()

    def _fail(self, problem: UcxStoreError) -> None:
        self._problem = problem
        self._retry_at = time.monotonic() + RETRY_SECONDS
