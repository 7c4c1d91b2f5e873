"""The server of a store that has one, which must not come back without what it held."""

import asyncio
from typing import TYPE_CHECKING

from ucxstore.address import HostPort
from ucxstore.client.runtime import Link, Session
from ucxstore.cluster.incarnations import Incarnations

if TYPE_CHECKING:
    from ucxstore._core import Connection


class Alone:
    """A `ucxstore.client.runtime.Link` that hands out connections only to the server that was met.

    Parameters
    ----------
    place : HostPort
    link : Link
        The way to it.
    incarnations : Incarnations
        Which of its starts the store relies on.
    """

    def __init__(self, place: HostPort, link: Link, incarnations: Incarnations) -> None:
        self._place = place
        self._link = link
        self._incarnations = incarnations
        self._checked = b""  # the token of a session

    def current(self) -> "Connection | None":
        """Return the connection if there is one and it is alive; never blocks.

        Raises
        ------
        ServerRestartedError
            If the server has lost what it held in the meantime.
        """
        session = self._link.session()
        return None if session is None else self._check(session)

    async def connect(self, timeout: float) -> "Connection":
        """Do as `connect_sync`, in a thread."""
        return await asyncio.to_thread(self.connect_sync, timeout)

    def connect_sync(self, timeout: float) -> "Connection":
        """Return the connection, making it if there is none.

        Raises
        ------
        ConnectError
            If the server could not be reached or used.
        ServerRestartedError
            If it has lost what it held in the meantime.
        """
        return self._check(self._link.connect_sync(timeout))

    @property
    def lanes(self) -> list[str]:
        """What UCX chose for the connection, if there is one."""
        session = self._link.session()
        return [] if session is None else session.connection.lanes

    def accept_restarted(self) -> None:
        """Rely on the server as it is now."""
        session = self._link.session()
        if session is not None:
            self._incarnations.accept(self._place, session.welcome)

    def _check(self, session: Session) -> "Connection":
        welcome = session.welcome
        if welcome.token != self._checked:
            self._incarnations.check(self._place, welcome)
            self._checked = welcome.token
        return session.connection
