"""Connections to servers, shared by the stores of a process.

There is a native client for each `UcxConfig`, and in it a connection for each server and secret.
Both are made when they are first needed. A connection that was lost is made again. So is one that
was closed since nobody used it for a while. A forked child starts with none of its parent's.
"""

import os
import time
import weakref
from collections.abc import Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from typing import TYPE_CHECKING, NamedTuple

from ucxstore.base import logs, process
from ucxstore.base.address import HostPort
from ucxstore.base.errors import (
    ConnectError,
    RequestTimeoutError,
    ResourceError,
    ServerLostError,
    UcxStoreError,
    without_frames,
)
from ucxstore.base.options import ClientOptions, Local, Network, UcxConfig, without_tcp
from ucxstore.base.rdma import has_rdma
from ucxstore.base.secret import Secret
from ucxstore.client import idle
from ucxstore.client.connect import Greeting
from ucxstore.protocol.frames import Welcome
from ucxstore.protocol.handshake import ConnectAnewError

if TYPE_CHECKING:
    from ucxstore._core import Client, Connection, LocalClient

# Seconds for each client to end its requests when the interpreter exits.
_EXIT_TIMEOUT = 2.0


# How often to connect anew: a server asks for it once, as it becomes one of a set.
_MOST_ANEW = 3

# Of the time to connect, for UCX where both hosts have RDMA, before plain TCP is used.
_RDMA_SHARE = 0.5

# How often UCX may fail to reach a server, which may have ended the session as it became one of a
# set. And how long the next try must have for that.
_MOST_UNMET = 1
_LEAST_SECONDS = 1.0


class _Key(NamedTuple):
    """What two stores must have in common to share a connection."""

    server: HostPort
    ucx: UcxConfig
    secret: Secret | None
    local: Local
    network: Network
    prefers_ucx: bool  # where the server offers it: what UCX_TLS says is for all programs
    integrity: bool | None
    encrypt: bool | None


class ServerConnection(NamedTuple):
    """A connection to a server, with the server's welcome from the handshake.

    Parameters
    ----------
    native : Connection
        The core's.
    welcome : Welcome
    is_local : bool
        Whether it is over the local plane, where the client may hold memory of the server's.
    """

    native: "Connection"
    welcome: Welcome
    is_local: bool


class _Slot:
    """Hold a connector's connection, and close it when the connector is collected."""

    __slots__ = ("connection",)

    def __init__(self) -> None:
        self.connection: ServerConnection | None = None

    def close(self) -> None:
        """Close the connection without blocking: the collector calls this, on any thread."""
        connection, self.connection = self.connection, None
        if connection is not None:
            connection.native.close()

    def replace(self, connection: ServerConnection | None) -> None:
        """Put a new connection in place of one that was lost, or whose server ends.

        The latter has requests under way perhaps, and closes itself after them. It stays until
        there is a new one, since it tells that the server may come back.
        """
        last = self.connection
        if last is None or not last.native.leaving:
            self.close()
            self.connection = connection
        elif connection is not None:
            self.connection = connection


class Connector:
    """Connect to one server, for all stores that use it; close the connection after the last."""

    def __init__(self, key: _Key) -> None:
        self._key = key
        self._slot = _Slot()
        self._lock = process.lock()
        self._attempt: Future[ServerConnection] | None = None
        self._rdma_failed = False
        self._stays = False
        self._uses = 0
        self._used_at = 0.0
        weakref.finalize(self, self._slot.close).atexit = False

    @property
    def last(self) -> ServerConnection | None:
        """The newest connection, also if it was lost; ``None`` if it was closed as idle."""
        return self._slot.connection

    @property
    def may_come_back(self) -> bool:
        """Whether the server has said that it ends, and its values are kept if it starts again."""
        last = self._slot.connection
        return last is not None and last.native.leaving and not last.welcome.volatile

    def current(self) -> ServerConnection | None:
        """Return the connection if it is alive; never blocks."""
        connection = self._slot.connection
        return connection if connection is not None and connection.native.alive else None

    def take(self) -> ServerConnection | None:
        """Return `last`, and do not close it as idle until `put_back`; never blocks.

        ``None`` is no use, so nothing is to be put back then.
        """
        with self._lock:  # `close_if_idle` decides under it, too: before this, or after `put_back`
            connection = self._slot.connection
            if connection is not None:
                self._uses += 1
        return connection

    def put_back(self) -> None:
        """End one use of the connection; it need not be there any more."""
        with self._lock:
            self._used_at = time.monotonic()
            self._uses = max(self._uses - 1, 0)  # in a forked child, the use is the parent's

    @contextmanager
    def kept_open(self) -> Iterator[None]:
        """Do not close a connection as idle, also one that is made meanwhile."""
        with self._lock:
            self._uses += 1
        try:
            yield
        finally:
            self.put_back()

    def keep_open(self) -> None:
        """Never close the connection as idle: its uses are not counted."""
        self._stays = True

    def close_if_idle(self, now: float) -> float | None:
        """Close the connection if it has been idle for long.

        Only one over a network: over the local plane, views and mapped results hold the server's
        memory, which it may use again when the session ends.

        Parameters
        ----------
        now : float
            By the monotonic clock.

        Returns
        -------
        float or None
            When it may be idle for long; ``None`` if there is nothing to close.
        """
        with self._lock:
            connection = self.current()
            if connection is None or connection.is_local or self._stays:
                return None
            due = (now if self._uses else self._used_at) + idle.IDLE_SECONDS
            if due > now:
                return due
            self._slot.connection = None  # whoever takes one from now on connects
        connection.native.close()
        return None

    def connect(self, timeout: float) -> ServerConnection:
        """Return the connection; make it if there is none.

        Threads that ask at the same time share one attempt.

        Parameters
        ----------
        timeout : float
            Seconds, for an attempt of this thread and for waiting for another thread's.

        Raises
        ------
        ConnectError
            If the server could not be reached or used, in this thread or in one it waited for.
        """
        deadline = time.monotonic() + timeout
        while True:
            with self._lock:  # never held while anything blocks
                connection = self.current()
                if connection is not None:
                    return connection
                attempt = self._attempt
                if attempt is None:
                    mine = self._attempt = Future()
            if attempt is None:
                return self._try(mine, deadline)
            shared = self._await(attempt, deadline)
            if shared is not None:
                return shared

    def remember(self, welcome: Welcome) -> None:
        """Give the connection the record of the set that a later welcome has."""
        with self._lock:
            connection = self._slot.connection
            if connection is not None and connection.welcome.identity == welcome.identity:
                now = connection.welcome._replace(record=welcome.record)
                self._slot.connection = connection._replace(welcome=now)

    def greet(self, timeout: float) -> Greeting:
        """Shake hands once more, beside the connection; the caller closes it.

        Raises
        ------
        ConnectError
            If the server could not be reached or used.
        """
        return Greeting(self._key.server, self._key.secret, timeout, self._key.encrypt)

    def close(self) -> None:
        """Close the connection, if there is one."""
        self._slot.close()

    def reset_in_child(self) -> None:
        """Forget the parent's connection, its uses, and its attempt at one."""
        self._slot.connection = None
        self._attempt = None
        self._uses = 0

    def _try(self, attempt: Future[ServerConnection], deadline: float) -> ServerConnection:
        try:
            connection = self._connect(deadline)
        except BaseException as error:
            self._end(None)
            # A copy: the error refers to this frame, and so to the attempt and to the callers.
            attempt.set_exception(without_frames(error))
            raise
        self._end(connection)
        attempt.set_result(connection)
        return connection

    def _await(self, attempt: Future[ServerConnection], deadline: float) -> ServerConnection | None:
        """Wait for another thread's attempt; ``None`` if it was interrupted."""
        try:
            error = attempt.exception(deadline - time.monotonic())
        except TimeoutError:
            raise ConnectError(
                f"cannot connect to {self._key.server}: still waiting for the attempt of another "
                "thread"
            ) from None
        if isinstance(error, Exception):
            raise error
        return attempt.result() if error is None else None  # such as a KeyboardInterrupt

    def _end(self, connection: ServerConnection | None) -> None:
        with self._lock:
            self._attempt = None
            self._slot.replace(connection)
            self._used_at = time.monotonic()
        if connection is not None and not connection.is_local:
            idle_watch.start()

    def _connect(self, deadline: float) -> ServerConnection:
        logs.refresh()
        anew = unmet = 0
        while True:
            try:
                return self._connect_once(deadline)
            except ConnectAnewError as error:
                anew += 1
                unmet += error.over_ucx
                over = unmet > _MOST_UNMET or (unmet and _left(deadline) < _LEAST_SECONDS)
                if anew > _MOST_ANEW or over:
                    failed = ConnectError(str(error))
                    failed.over_ucx = error.over_ucx
                    raise failed from error.__cause__

    def _connect_once(self, deadline: float) -> ServerConnection:
        key = self._key
        with Greeting(key.server, key.secret, _left(deadline), key.encrypt) as greeting:
            native = self._join(greeting, deadline) if key.local == "auto" else None
            is_local = native is not None
            if native is None:
                native = self._reach(greeting, deadline)
            return ServerConnection(native, greeting.welcome, is_local)

    def _reach(self, greeting: Greeting, deadline: float) -> "Connection":
        """Use the way over a network that is asked for, or else the best one."""
        key, welcome = self._key, greeting.welcome
        asks = _asks_for_ucx(key)
        if greeting.encrypts:
            if asks:
                raise ConnectError(
                    f"{key.server}: the server encrypts (encrypt=True), and {asks} was given here, "
                    'but UCX encrypts nothing: use network="tcp"'
                )
            return self._stay(greeting, deadline)
        if asks and not welcome.offers_ucx:
            raise ConnectError(
                f"{key.server}: {asks} was given here, and the server does not offer UCX: start it "
                'with network="ucx" (--network ucx)'
            )
        if asks or (key.prefers_ucx and welcome.offers_ucx):
            return self._attach(greeting, key.ucx, deadline)
        both_have_rdma = welcome.offers_ucx and welcome.rdma and has_rdma()
        if key.network == "tcp" or self._rdma_failed or not both_have_rdma:
            return self._stay(greeting, deadline)
        try:
            # UCX over TCP is not for networks that are not trusted.
            soon = time.monotonic() + _left(deadline) * _RDMA_SHARE
            return self._attach(greeting, without_tcp(key.ucx), soon)
        except ConnectError as error:
            if isinstance(error, ConnectAnewError) and not error.over_ucx:
                raise
            self._rdma_failed = True
            logs.client.warning(
                "%s: both hosts have RDMA, but UCX does not connect them, so plain TCP is used "
                '(network="tcp" tries no other): %s',
                key.server,
                error,
            )
            raise ConnectAnewError(str(error)) from error

    def _join(self, greeting: Greeting, deadline: float) -> "Connection | None":
        """Use the server's local plane; ``None`` if it has none for this process."""
        if not greeting.welcome.socket:
            return None
        client = _clients.local(deadline)  # may fail, so before there is a descriptor to close
        fd = greeting.join()
        if fd is None:
            return None
        try:
            return client.attach(fd, greeting.welcome.token, str(self._key.server))
        except (ConnectError, ResourceError) as error:
            raise ConnectError(f"{self._key.server}: {error}") from error

    def _stay(self, greeting: Greeting, deadline: float) -> "Connection":
        """Go on over the connection of the handshake."""
        client = _clients.local(deadline)  # may fail, so before there is a descriptor to close
        integrity = self._key.integrity
        checked = not greeting.is_local() if integrity is None else integrity
        keys = greeting.agree()
        fd = greeting.stay(checked=checked)
        try:
            token = greeting.welcome.token
            return client.attach_remote(fd, token, str(self._key.server), checked, keys)
        except (ConnectError, ResourceError) as error:
            raise ConnectError(f"{self._key.server}: {error}") from error

    def _attach(self, greeting: Greeting, ucx: UcxConfig, deadline: float) -> "Connection":
        """Connect over UCX; through its shared memory only if both sides ask for that."""
        server = self._key.server
        shares_memory = self._key.local == "ucx" and greeting.welcome.shares_memory
        try:
            client = _clients.of(ucx, deadline)
            port = client.open(greeting.fileno(), self._key.integrity, shares_memory)
        except ResourceError as error:
            raise ConnectError(f"cannot connect to {server}: {error}") from error
        fd, address = greeting.attach(port.address, shares_memory=shares_memory)
        try:
            token = greeting.welcome.token
            return port.attach(fd, token, address, str(server), _left(deadline))
        except ResourceError as error:
            raise ConnectError(f"{server}: {error}") from error
        except (ConnectError, RequestTimeoutError, ServerLostError) as error:
            raise _unanswered(server, error) from error


def _unanswered(server: HostPort, error: UcxStoreError) -> ConnectError:
    """Return the error of a server whose UCX does not answer."""
    cause = f" ({error})" if isinstance(error, ConnectError) else ""
    kind = ConnectAnewError if isinstance(error, ServerLostError) else ConnectError
    failed = kind(
        f"{server}: the handshake went well, but the server does not answer over UCX{cause}: is "
        "one of its transports reachable from here, and does a firewall let its ports through? "
        "'ucxstore serve --data-ports 7500-7599' chooses those of TCP"
    )
    failed.over_ucx = True
    return failed


class NativeClients:
    """The native clients of this process."""

    def __init__(self) -> None:
        self._clients: dict[UcxConfig, Client] = {}
        self._local: LocalClient | None = None
        self._lock = process.lock()
        self._closed = False

    def of(self, ucx: UcxConfig, deadline: float) -> "Client":
        """Return the client for these settings of UCX; make it if there is none."""
        from ucxstore.base.native import core  # not before it is needed

        with self._locked(deadline):
            client = self._clients.get(ucx)
            if client is None:
                client = self._clients[ucx] = core.Client(dict(ucx.options), ucx.polling)
            return client

    def local(self, deadline: float) -> "LocalClient":
        """Return the client for servers of this host; make it if there is none."""
        from ucxstore.base.native import core

        with self._locked(deadline):
            if self._local is None:
                self._local = core.LocalClient()
            return self._local

    @contextmanager
    def _locked(self, deadline: float) -> Iterator[None]:
        if not self._lock.acquire(timeout=_left(deadline)):
            raise ConnectError("cannot connect: still waiting for another thread to start UCX")
        try:
            if self._closed:
                raise ConnectError("cannot connect: the interpreter is exiting")
            yield
        finally:
            self._lock.release()

    def close(self) -> None:
        """Close all, each within a time-out, and make no more."""
        self._closed = True
        while self._clients:
            _, client = self._clients.popitem()
            client.close(_EXIT_TIMEOUT)
        if self._local is not None:
            self._local.close()

    def abandon(self) -> None:
        """Drop all without touching UCX: they are the parent's."""
        for client in self._clients.values():
            client.abandon()
        if self._local is not None:
            self._local.abandon()


_clients = NativeClients()
_connectors: weakref.WeakValueDictionary[_Key, Connector] = weakref.WeakValueDictionary()
_connectors_lock = process.lock()


def close_idle(now: float) -> float | None:
    """Close idle connections; return when the next one may be, ``None`` if there is none."""
    found = [connector.close_if_idle(now) for connector in list(_connectors.values())]
    return min((due for due in found if due is not None), default=None)


idle_watch = idle.IdleWatch(close_idle)


def connector_to(server: HostPort, options: ClientOptions) -> Connector:
    """Return the connector to a server; it does not connect yet."""
    secret = options.secret
    key = _Key(
        server,
        options.ucx,
        secret,
        options.local,
        options.network,
        options.network == "auto" and bool(os.environ.get("UCX_TLS")),
        options.integrity,
        options.encrypt,
    )
    with _connectors_lock:
        connector = _connectors.get(key)
        if connector is None:
            connector = _connectors[key] = Connector(key)
    if secret is not None:
        secret.keep(connector)
    return connector


def _asks_for_ucx(key: _Key) -> str:
    """Return the option that asks for UCX; empty if none does."""
    if key.network == "tcp":
        return ""
    if key.network == "ucx":
        return 'network="ucx"'
    if key.local == "ucx":
        return 'local="ucx"'
    return "ucx" if key.ucx.options else ""


def _left(deadline: float) -> float:
    return max(deadline - time.monotonic(), 1e-3)


def _start_anew_in_child() -> None:
    global _clients, idle_watch
    _clients.abandon()
    _clients = NativeClients()
    idle_watch = idle.IdleWatch(close_idle)
    for connector in list(_connectors.values()):
        connector.reset_in_child()


def _close_at_exit() -> None:
    for connector in list(_connectors.values()):
        connector.close()
    _clients.close()


process.in_child(_start_anew_in_child)
process.at_exit(process.Exit.CONNECTIONS, _close_at_exit)
