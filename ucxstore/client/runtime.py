"""What the stores of a process share: a native client, and a connection to each server.

A client is made for each way that UCX is set up, a connection for each server and secret. Both
are made when they are first needed; a connection that was lost is made again. A forked child
starts with none of its parent's.
"""

import threading
import time
import weakref
from concurrent.futures import Future
from typing import TYPE_CHECKING, NamedTuple

from ucxstore import process
from ucxstore.address import HostPort
from ucxstore.client.connect import handshake_socket
from ucxstore.errors import (
    ConnectError,
    RequestTimeoutError,
    ServerLostError,
    without_frames,
)
from ucxstore.options import UcxConfig
from ucxstore.protocol.frames import Welcome
from ucxstore.secret import Secret

if TYPE_CHECKING:
    from ucxstore._core import Client, Connection

# Seconds for each client to end its requests when the interpreter exits.
_EXIT_TIMEOUT = 2.0


class _Key(NamedTuple):
    """What two stores must have in common to share a connection."""

    server: HostPort
    ucx: UcxConfig
    secret: Secret | None


class Session(NamedTuple):
    """A connection, and what the server has granted for it.

    Parameters
    ----------
    connection : Connection
    welcome : Welcome
    noted : set of str
        About which sets of servers notes were exchanged: see `ucxstore.cluster.agreement`.
    """

    connection: "Connection"
    welcome: Welcome
    noted: set[str]


class _Slot:
    """Where a link's connection is, apart from the link, so that it can be closed after it."""

    __slots__ = ("session",)

    def __init__(self) -> None:
        self.session: Session | None = None

    def close(self) -> None:
        """Close the connection without blocking: the collector calls this, on any thread."""
        session, self.session = self.session, None
        if session is not None:
            session.connection.close()


class Link:
    """The way to one server, shared by the stores that use it and closed after the last."""

    def __init__(self, key: _Key) -> None:
        self._key = key
        self._slot = _Slot()
        self._lock = threading.Lock()
        self._attempt: Future[Session] | None = None
        weakref.finalize(self, self._slot.close).atexit = False

    def session(self) -> Session | None:
        """Return the connection and its server's welcome if it is alive; never blocks."""
        session = self._slot.session
        return session if session is not None and session.connection.alive else None

    def connect_sync(self, timeout: float) -> Session:
        """Return the connection and its server's welcome, making it if there is none.

        Threads that ask at the same time share one attempt.

        Parameters
        ----------
        timeout : float
            Seconds, both for an attempt and for waiting for another thread's.

        Raises
        ------
        ConnectError
            If the server could not be reached or used; the attempt of another thread counts.
        """
        deadline = time.monotonic() + timeout
        while True:
            with self._lock:  # never held while anything blocks
                session = self.session()
                if session is not None:
                    return session
                attempt = self._attempt
                if attempt is None:
                    mine = self._attempt = Future()
            if attempt is None:
                return self._try(mine, deadline)
            shared = self._await(attempt, deadline)
            if shared is not None:
                return shared

    def close(self) -> None:
        """Close the connection, if there is one."""
        self._slot.close()

    def reset_in_child(self) -> None:
        """Forget the parent's connection, its locks and whoever held them."""
        self._slot.session = None
        self._lock = threading.Lock()
        self._attempt = None

    def _try(self, attempt: Future[Session], deadline: float) -> Session:
        try:
            session = self._open(deadline)
        except BaseException as error:
            self._end(None)
            # A copy: the error itself holds this frame, and with it the attempt and whoever asked.
            attempt.set_exception(without_frames(error))
            raise
        self._end(session)
        attempt.set_result(session)
        return session

    def _await(self, attempt: Future[Session], deadline: float) -> Session | None:
        """Wait for another thread's attempt; ``None`` where it was abandoned, not failed."""
        try:
            error = attempt.exception(deadline - time.monotonic())
        except TimeoutError:
            raise ConnectError(
                f"cannot connect to {self._key.server}: still waiting for the attempt of another "
                "thread"
            ) from None
        if isinstance(error, Exception):
            raise error
        return attempt.result() if error is None else None  # say, KeyboardInterrupt over there

    def _end(self, session: Session | None) -> None:
        with self._lock:
            self._attempt = None
            self._slot.close()  # the one before it, which was lost
            self._slot.session = session

    def _open(self, deadline: float) -> Session:
        server, ucx, secret = self._key
        port = _clients.of(ucx, deadline).open()
        fd, welcome = handshake_socket(
            server.host, server.port, secret, port.address, _left(deadline)
        )
        try:
            connection = port.attach(
                fd, welcome.token, welcome.address, str(server), _left(deadline)
            )
        except (RequestTimeoutError, ServerLostError) as error:
            raise ConnectError(
                f"{server}: the handshake went well, but the server does not answer over UCX "
                "(is one of its transports reachable from here?)"
            ) from error
        except ConnectError as error:
            raise ConnectError(f"{server}: {error}") from error
        return Session(connection, welcome, set())


class _Clients:
    """The native clients of this process."""

    def __init__(self) -> None:
        self._clients: dict[UcxConfig, Client] = {}
        self._lock = threading.Lock()
        self._closed = False

    def of(self, ucx: UcxConfig, deadline: float) -> "Client":
        """Return the client for one way to set UCX up, making it if there is none."""
        from ucxstore._native import core  # not before it is needed

        if not self._lock.acquire(timeout=_left(deadline)):
            raise ConnectError("cannot connect: still waiting for another thread to start UCX")
        try:
            if self._closed:
                raise ConnectError("cannot connect: the interpreter is exiting")
            client = self._clients.get(ucx)
            if client is None:
                client = self._clients[ucx] = core.Client(dict(ucx.options), ucx.polling)
            return client
        finally:
            self._lock.release()

    def close(self) -> None:
        """Close all, within a deadline, and make no more."""
        self._closed = True
        while self._clients:
            _, client = self._clients.popitem()
            client.close(_EXIT_TIMEOUT)

    def abandon(self) -> None:
        """Drop all without touching UCX: they are the parent's."""
        for client in self._clients.values():
            client.abandon()


_clients = _Clients()
_links: weakref.WeakValueDictionary[_Key, Link] = weakref.WeakValueDictionary()
_links_lock = threading.Lock()


def link_to(server: HostPort, ucx: UcxConfig, secret: Secret | None) -> Link:
    """Return the way to a server; nothing is connected yet."""
    key = _Key(server, ucx, secret)
    with _links_lock:
        link = _links.get(key)
        if link is None:
            link = _links[key] = Link(key)
        return link


def _left(deadline: float) -> float:
    return max(deadline - time.monotonic(), 1e-3)


def _start_anew_in_child() -> None:
    global _clients, _links_lock
    _clients.abandon()
    _clients = _Clients()
    _links_lock = threading.Lock()
    for link in list(_links.values()):
        link.reset_in_child()


def _close_at_exit() -> None:
    for link in list(_links.values()):
        link.close()
    _clients.close()


process.in_child(_start_anew_in_child)
process.at_exit(process.Exit.CONNECTIONS, _close_at_exit)
