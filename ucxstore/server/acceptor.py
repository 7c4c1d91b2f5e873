"""Accept connections, authenticate them, and hand them to the native server.

One thread with its own event loop runs all handshakes at once. So a peer that is slow, silent or
hostile does not delay the others.
"""

import asyncio
import itertools
import secrets
import socket
import threading
from collections.abc import Callable, Coroutine
from contextlib import AbstractContextManager, ExitStack, nullcontext, suppress
from dataclasses import dataclass
from typing import Protocol

from ucxstore import logs, process
from ucxstore.errors import (
    AuthenticationError,
    ConnectError,
    ProtocolVersionError,
    UcxStoreError,
)
from ucxstore.protocol.frames import (
    INCARNATION_BYTES,
    TOKEN_BYTES,
    RejectCode,
    Welcome,
    encode_reject,
)
from ucxstore.protocol.handshake import (
    Received,
    Send,
    ServerHandshake,
    Steps,
    joined,
    server_join,
)
from ucxstore.protocol.sockets import name_of, tune
from ucxstore.server.joining import Joining, Offer

HANDSHAKE_SECONDS = 10.0
MAX_HANDSHAKES = 256  # at once; each holds a descriptor and at most 64 KiB

# How long a peer whose handshake was refused may take to read the reason.
_LINGER_SECONDS = 1.0

# How long to wait after a failed accept. The usual cause is that no descriptor is free.
_RETRY_SECONDS = 0.05


class Port(Protocol):
    """A UCX worker of the native server, made for one client."""

    @property
    def address(self) -> bytes:
        """Its UCX address."""

    def attach(self, fd: int, token: bytes, address: bytes, peer: str) -> None:
        """Take over `fd`, also on failure. On return, the endpoint to `address` exists."""


class Sessions(Protocol):
    """The part of the native server that makes sessions for authenticated clients."""

    def open(self, thread: int) -> Port:
        """Make a UCX worker for a client on one of the server's threads."""

    def join(self, thread: int, fd: int, token: bytes, peer: str) -> None:
        """Begin a session on a connected Unix socket; takes over `fd`, also on failure."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Terms:
    """The properties of a server that its `Welcome` sends to clients."""

    read_only: bool = False
    shared: bool = False
    volatile: bool = False


class Acceptor:
    """The accepting thread of a server. It owns the listening socket.

    Parameters
    ----------
    listener : socket.socket
        Bound and listening.
    sessions : Sessions
        Gets the authenticated connections.
    threads : int
        How many threads the server has. Clients are given to them in turn.
    secret : bytes
        The secret that clients must prove to know; empty if none is needed.
    terms : Terms
        The properties of the server that clients are sent.
    joining : Joining or None
        The Unix socket for clients of this host, which the acceptor owns, too.
    """

    def __init__(
        self,
        listener: socket.socket,
        sessions: Sessions,
        threads: int,
        secret: bytes,
        terms: Terms,
        joining: Joining | None = None,
    ) -> None:
        self.turned_away = 0  # connections whose handshake failed
        self._listener = listener
        self._listener.setblocking(False)
        self._joining = joining
        self._sessions = sessions
        self._turns = itertools.cycle(range(threads))
        self._secret = secret
        self._terms = terms
        self.incarnation = secrets.token_bytes(INCARNATION_BYTES)
        self._connections: set[socket.socket] = set()  # in the handshake
        self._stopping = False
        self._loop = asyncio.SelectorEventLoop()
        self._task = self._loop.create_task(self._accept())
        self._thread = threading.Thread(target=self._run, name="ucxstore-accept", daemon=True)
        self._thread.start()
        process.in_child(self._abandon)

    @property
    def is_current_thread(self) -> bool:
        """Whether the caller runs on the accepting thread."""
        return threading.current_thread() is self._thread

    def stop(self, timeout: float) -> None:
        """Accept no more connections, end the handshakes under way, and wait for the thread."""
        self._stopping = True
        with suppress(RuntimeError):  # the loop has ended
            self._loop.call_soon_threadsafe(self._task.cancel)
        self._thread.join(timeout)

    def _abandon(self) -> None:
        """Close the inherited sockets in a forked child; peers would not see their end."""
        for sock in (self._listener, *self._connections):
            sock.close()
        if self._joining is not None:
            self._joining.listener.close()

    def _run(self) -> None:
        with suppress(asyncio.CancelledError):
            self._loop.run_until_complete(self._task)
        self._loop.close()
        # This object and the frames of the task refer to each other, so only the garbage collector
        # frees them. Without this line, the values in the server's memory would stay until then.
        del self._sessions

    async def _accept(self) -> None:
        with ExitStack() as sockets:
            sockets.enter_context(self._listener)
            async with asyncio.TaskGroup() as tasks:
                if self._joining is not None:
                    sockets.callback(self._joining.close)
                    tasks.create_task(
                        self._accept_from(self._joining.listener, self._serve_local, tasks)
                    )
                await self._accept_from(self._listener, self._serve, tasks)

    async def _accept_from(
        self,
        listener: socket.socket,
        serve: Callable[[socket.socket], Coroutine[None, None, None]],
        tasks: asyncio.TaskGroup,
    ) -> None:
        while True:
            sock = await self._next_connection(listener)
            if len(self._connections) < MAX_HANDSHAKES:
                self._connections.add(sock)
                tasks.create_task(serve(sock))
            else:
                _refuse(sock, RejectCode.BUSY, "too many clients are connecting at once")
                sock.close()
                self.turned_away += 1
                logs.server.warning(
                    "turned a client away: %d are connecting at once",
                    MAX_HANDSHAKES,
                    extra=_refused(""),
                )

    async def _next_connection(self, listener: socket.socket) -> socket.socket:
        while True:
            try:
                sock, _ = await self._loop.sock_accept(listener)
            except OSError as error:
                logs.server.warning("cannot accept a connection: %s", error)
                await asyncio.sleep(_RETRY_SECONDS)
            else:
                return sock

    async def _serve(self, sock: socket.socket) -> None:
        """Run the handshake of a connection. Raises nothing but its cancellation."""
        peer = ""
        try:
            peer = name_of(sock.getpeername())
            tune(sock)
            handshake = ServerHandshake(self._secret, peer)
            token = secrets.token_bytes(TOKEN_BYTES)
            with self._offer(sock, token, peer) as offer:
                try:
                    async with asyncio.timeout(HANDSHAKE_SECONDS):
                        await self._run_steps(handshake.greet(self._welcome(token, offer)), sock)
                        address = await self._run_steps(handshake.attach(), sock)
                except (ConnectError, TimeoutError) as error:
                    if offer is not None and offer.joined:
                        return  # its session is on the Unix socket
                    if isinstance(error, ConnectError):
                        raise
                    raise ConnectError(
                        f"{peer}: no handshake within {HANDSHAKE_SECONDS:g} s"
                    ) from None
            self._attach(sock, handshake, token, address, peer)
        except (AuthenticationError, ProtocolVersionError) as error:
            self.turned_away += 1
            logs.server.warning("turned a client away: %s", error, extra=_refused(peer))
            await self._linger(sock)
        except (UcxStoreError, OSError) as error:
            self.turned_away += 1
            logs.server.info("a handshake was not completed: %s", error, extra=_refused(peer))
        except Exception:
            self.turned_away += 1
            logs.server.exception("a handshake failed", extra=_refused(peer))
        finally:
            self._connections.discard(sock)
            sock.close()  # does nothing once the native server has taken the socket over

    async def _serve_local(self, sock: socket.socket) -> None:
        """Let a client of this host join its session. Raises nothing but its cancellation."""
        peer = "a client of this host"
        assert self._joining is not None
        try:
            async with asyncio.timeout(HANDSHAKE_SECONDS):
                mac = await self._run_steps(server_join(), sock)
            offer = self._joining.take(mac)
            if offer is None:
                raise AuthenticationError(f"{peer} was not told that it may join")
            peer = offer.peer
            with sock.dup() as answer:  # `sock` itself is handed over
                self._sessions.join(next(self._turns), sock.detach(), offer.token, peer)
                _send_now(answer, joined(offer.token))
        except (UcxStoreError, OSError) as error:
            self.turned_away += 1
            logs.server.info("a client could not join: %s", error, extra=_refused(peer))
        except Exception:
            self.turned_away += 1
            logs.server.exception("a client could not join", extra=_refused(peer))
        finally:
            self._connections.discard(sock)
            sock.close()

    def _offer(
        self, sock: socket.socket, token: bytes, peer: str
    ) -> AbstractContextManager[Offer | None]:
        """Return the offer to join on the Unix socket, if the client may reach that."""
        if self._joining is None or not self._joining.offers_to(sock):
            return nullcontext()
        return Offer(self._joining, token, peer)

    def _welcome(self, token: bytes, offer: Offer | None) -> Welcome:
        return Welcome(
            token,
            self.incarnation,
            self._terms.read_only,
            self._terms.shared,
            self._terms.volatile,
            b"" if offer is None else offer.joining.name,
        )

    async def _run_steps[T](self, steps: Steps[T], sock: socket.socket) -> T:
        """Send and receive what a handshake yields, and return its result."""
        try:
            request = next(steps)
            while True:
                if isinstance(request, Send):
                    await self._loop.sock_sendall(sock, request.data)
                    received = Received()
                else:
                    received = await self._receive(sock, request.size)
                request = steps.send(received)
        except StopIteration as stop:
            result: T = stop.value
            return result

    async def _receive(self, sock: socket.socket, size: int) -> Received:
        data = b""
        try:
            while len(data) < size:
                part = await self._loop.sock_recv(sock, size - len(data))
                if not part:
                    return Received(data, "closed the connection")
                data += part
        except ConnectionError:
            return Received(data, "reset the connection")
        except asyncio.CancelledError:
            if self._stopping:  # else it was the deadline
                _refuse(sock, RejectCode.DRAINING, "the server is shutting down")
            raise
        return Received(data)

    def _attach(
        self,
        sock: socket.socket,
        handshake: ServerHandshake,
        token: bytes,
        address: bytes,
        peer: str,
    ) -> None:
        """Make a worker for the client, hand the connection to the native server, send READY.

        The endpoint must exist by then. Nothing in here waits, so it is not cancelled half-way.
        """
        try:
            port = self._sessions.open(next(self._turns))
        except Exception as error:
            reason = f"the server could not start UCX for this client: {error}"
            logs.server.warning("%s: %s", peer, reason, extra=_refused(peer))
            _refuse(sock, RejectCode.FAILED, reason)
            raise ConnectError(f"{peer}: {reason}") from error
        ready = handshake.ready(port.address)
        with sock.dup() as answer:  # `sock` itself is handed over
            try:
                port.attach(sock.detach(), token, address, peer)
            except Exception as error:
                _refuse(answer, RejectCode.FAILED, f"the server could not connect back: {error}")
                raise ConnectError(f"cannot attach {peer}: {error}") from error
            # There is room to send it, since the client has read everything before it. If sending
            # fails all the same, close the connection; this ends the session.
            if _send_now(answer, ready) != len(ready):
                with suppress(OSError):
                    answer.shutdown(socket.SHUT_RDWR)

    async def _linger(self, sock: socket.socket) -> None:
        """Wait until the peer has read its REJECT.

        To close a socket with unread input resets the connection, and the peer would lose it.
        """
        with suppress(OSError, TimeoutError):
            sock.shutdown(socket.SHUT_WR)
            async with asyncio.timeout(_LINGER_SECONDS):
                while await self._loop.sock_recv(sock, 4096):
                    pass


def _refused(peer: str) -> dict[str, str]:
    """Return the fields of a log record about a failed handshake."""
    return {"event": "handshake_refused", "peer": peer}


def _refuse(sock: socket.socket, code: RejectCode, reason: str) -> None:
    _send_now(sock, encode_reject(code, reason))


def _send_now(sock: socket.socket, data: bytes) -> int:
    """Send as much as fits without waiting; return how many bytes that was."""
    try:
        return sock.send(data)
    except OSError:
        return 0
