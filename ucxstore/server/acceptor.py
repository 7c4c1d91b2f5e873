"""Accept connections, authenticate them, and hand them to the native server.

One thread with an event loop of its own runs every handshake, so that a peer that is slow, silent
or hostile keeps nobody else waiting.
"""

import asyncio
import itertools
import secrets
import socket
import threading
from contextlib import suppress
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
    Kind,
    RejectCode,
    Welcome,
    encode,
    encode_reject,
)
from ucxstore.protocol.handshake import Attach, Received, Send, Steps, server_handshake
from ucxstore.protocol.sockets import name_of, tune

HANDSHAKE_SECONDS = 10.0
MAX_HANDSHAKES = 256  # at once; each holds a descriptor and at most 64 KiB

# How long a peer that was turned away may take to read why.
_LINGER_SECONDS = 1.0

# How long to wait before accepting again where that failed: mostly for want of descriptors.
_RETRY_SECONDS = 0.05


class Port(Protocol):
    """A UCX worker of the native server, made for one client."""

    @property
    def address(self) -> bytes:
        """Its UCX address."""

    def attach(self, fd: int, token: bytes, address: bytes, peer: str) -> None:
        """Take `fd` over, also on failure; the endpoint to `address` exists on return."""


class Sessions(Protocol):
    """What the native server does for a client that has proved who it is."""

    def open(self, thread: int) -> Port:
        """Make a worker for it on one of the server's threads."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Terms:
    """What a server tells its clients of itself; see `Welcome`."""

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
        Where authenticated connections go.
    threads : int
        How many threads the server has; they take turns.
    secret : bytes
        What clients must know; empty for nothing.
    terms : Terms
        What clients are told.
    """

    def __init__(
        self,
        listener: socket.socket,
        sessions: Sessions,
        threads: int,
        secret: bytes,
        terms: Terms,
    ) -> None:
        self.turned_away = 0  # connections that did not get through the handshake
        self._listener = listener
        self._listener.setblocking(False)
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
        """Accept no more, turn away who is in the handshake, and wait for the thread."""
        self._stopping = True
        with suppress(RuntimeError):  # the loop has ended
            self._loop.call_soon_threadsafe(self._task.cancel)
        self._thread.join(timeout)

    def _abandon(self) -> None:
        """In a forked child: close what it inherited, which would keep peers waiting."""
        for sock in (self._listener, *self._connections):
            sock.close()

    def _run(self) -> None:
        with suppress(asyncio.CancelledError):
            self._loop.run_until_complete(self._task)
        self._loop.close()
        # The frames of the task are in a ring with this object, and the collector may come late.
        # Until then, nothing that lies in the server's memory would be freed.
        del self._sessions

    async def _accept(self) -> None:
        with self._listener:
            async with asyncio.TaskGroup() as handshakes:
                while True:
                    sock = await self._next_connection()
                    if len(self._connections) < MAX_HANDSHAKES:
                        self._connections.add(sock)
                        handshakes.create_task(self._serve(sock))
                    else:
                        _refuse(sock, RejectCode.BUSY, "too many clients are connecting at once")
                        sock.close()
                        self.turned_away += 1
                        logs.server.warning(
                            "turned a client away: %d are connecting at once",
                            MAX_HANDSHAKES,
                            extra=_refused(""),
                        )

    async def _next_connection(self) -> socket.socket:
        while True:
            try:
                sock, _ = await self._loop.sock_accept(self._listener)
            except OSError as error:
                logs.server.warning("cannot accept a connection: %s", error)
                await asyncio.sleep(_RETRY_SECONDS)
            else:
                return sock

    async def _serve(self, sock: socket.socket) -> None:
        """Bring one connection through the handshake. Raises nothing but its cancellation."""
        peer = ""
        try:
            peer = name_of(sock.getpeername())
            tune(sock)
            ports: list[Port] = []
            try:
                async with asyncio.timeout(HANDSHAKE_SECONDS):
                    attach = await self._shake_hands(sock, peer, ports)
            except TimeoutError:
                raise ConnectError(f"{peer}: no handshake within {HANDSHAKE_SECONDS:g} s") from None
            self._attach(sock, attach, ports.pop(), peer)
        except (AuthenticationError, ProtocolVersionError) as error:
            self.turned_away += 1
            logs.server.warning("turned a client away: %s", error, extra=_refused(peer))
            await self._linger(sock)
        except (UcxStoreError, OSError) as error:
            self.turned_away += 1
            logs.server.info("a connection came to nothing: %s", error, extra=_refused(peer))
        except Exception:
            self.turned_away += 1
            logs.server.exception("a handshake failed", extra=_refused(peer))
        finally:
            self._connections.discard(sock)
            sock.close()  # nothing, once the native server has it

    async def _shake_hands(self, sock: socket.socket, peer: str, ports: list[Port]) -> Attach:
        """Run the handshake; the port that the client is granted is left in `ports`."""

        def grant() -> Welcome:
            try:
                port = self._sessions.open(next(self._turns))
            except Exception as error:
                reason = f"the server could not start UCX for this client: {error}"
                logs.server.warning("%s: %s", peer, reason, extra=_refused(peer))
                _refuse(sock, RejectCode.FAILED, reason)
                raise ConnectError(f"{peer}: {reason}") from error
            ports.append(port)
            token = secrets.token_bytes(TOKEN_BYTES)
            return Welcome(
                token,
                self.incarnation,
                self._terms.read_only,
                port.address,
                self._terms.shared,
                self._terms.volatile,
            )

        steps: Steps[Attach] = server_handshake(self._secret, grant, peer)
        received = Received()
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
            attach: Attach = stop.value
            return attach

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

    def _attach(self, sock: socket.socket, attach: Attach, port: Port, peer: str) -> None:
        """Hand the connection over, then say READY: the endpoint must exist by then.

        Nothing in here waits, so it is not cancelled half-way.
        """
        welcome = attach.welcome
        with sock.dup() as answer:  # `sock` itself is gone with the hand-over
            try:
                port.attach(sock.detach(), welcome.token, attach.address, peer)
            except Exception as error:
                _refuse(answer, RejectCode.FAILED, f"the server could not reach back: {error}")
                raise ConnectError(f"cannot attach {peer}: {error}") from error
            ready = encode(Kind.READY)
            # It fits: the client has read everything before it. If the client is gone, or this
            # fails all the same, the end of the connection is the end of the session.
            if _send_now(answer, ready) != len(ready):
                with suppress(OSError):
                    answer.shutdown(socket.SHUT_RDWR)

    async def _linger(self, sock: socket.socket) -> None:
        """Let the peer read its REJECT: a close with something unread would reset it away."""
        with suppress(OSError, TimeoutError):
            sock.shutdown(socket.SHUT_WR)
            async with asyncio.timeout(_LINGER_SECONDS):
                while await self._loop.sock_recv(sock, 4096):
                    pass


def _refused(peer: str) -> dict[str, str]:
    """Return the fields of a log record about a handshake that came to nothing."""
    return {"event": "handshake_refused", "peer": peer}


def _refuse(sock: socket.socket, code: RejectCode, reason: str) -> None:
    _send_now(sock, encode_reject(code, reason))


def _send_now(sock: socket.socket, data: bytes) -> int:
    """Send without waiting, as much as goes."""
    try:
        return sock.send(data)
    except OSError:
        return 0
