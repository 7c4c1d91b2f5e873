"""Connect to a server: resolve its name, connect and shake hands, within one deadline."""

import errno
import queue
import socket
import threading
import time
from collections.abc import Sequence
from contextlib import suppress
from typing import Self

from ucxstore.base.address import HostPort
from ucxstore.base.errors import AuthenticationError, ConnectError, not_yet
from ucxstore.base.secret import Secret
from ucxstore.protocol.driver import carry_out, without_waiting
from ucxstore.protocol.handshake import (
    ClientHandshake,
    ConnectAnewError,
    Steps,
    client_join,
)
from ucxstore.protocol.session_keys import SessionKeys
from ucxstore.protocol.sockets import SocketAddress, tune

# In one try. A host that is there answers sooner, however busy it is: its kernel does. What its
# server and this process do after that waits for processors.
_REACH_SECONDS = 5.0

# What comes of a server, or of its host, that has not started yet. Others, such as no descriptor
# left, are of this process.
_NOT_THERE = frozenset(
    {
        errno.ECONNREFUSED,
        errno.ECONNRESET,
        errno.EHOSTDOWN,
        errno.EHOSTUNREACH,
        errno.ENETUNREACH,
        errno.ETIMEDOUT,
    }
)

type Resolved = tuple[int, SocketAddress]


class Deadline:
    """A deadline, made from a number of seconds."""

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        self._end = time.monotonic() + seconds

    def left(self) -> float:
        """Return the seconds left, always above 0: a time-out of 0 makes a socket non-blocking."""
        return max(self._end - time.monotonic(), 1e-6)

    def is_over(self) -> bool:
        return time.monotonic() >= self._end

    def __str__(self) -> str:
        return f"within {round(self.seconds, 1) or self.seconds:g} s"  # a remainder, so rounded


class Greeting:
    """A connection to a server, after both sides have authenticated each other.

    It is a context manager, which closes the connection unless `attach` has given it away.

    Parameters
    ----------
    server : HostPort
        Where it listens; the host is a name, an IPv4 or an IPv6 address.
    secret : Secret or None
        What both sides must know.
    timeout : float
        Seconds for all of it, the look-up of the name and what follows included. The host must
        answer within 5 of them.
    encrypt : bool or None
        Whether the server must encrypt what goes over a network, or must not.

    Attributes
    ----------
    welcome : Welcome
        What the server grants.

    Raises
    ------
    ConnectError
        Or one of its subclasses; the message names the server and the cause. Its methods raise it,
        too.
    """

    def __init__(
        self,
        server: HostPort,
        secret: Secret | None,
        timeout: float,
        encrypt: bool | None = None,
    ) -> None:
        self._server = server
        self._deadline = Deadline(timeout)
        self._handshake = ClientHandshake(_reveal(secret, server), str(server), encrypt)
        try:
            self._sock = dial(server, resolve(server, self._deadline), self._deadline)
        except ConnectError as error:
            error.reached = False
            raise
        try:
            tune(self._sock)
            self.welcome = self._run(self._handshake.greet())
        except BaseException:
            self._sock.close()
            raise

    def is_local(self) -> bool:
        """Tell whether the server is on this host, as far as its address says."""
        return bool(self._sock.getpeername()[0] == self._sock.getsockname()[0])

    @property
    def encrypts(self) -> bool:
        """Whether the server encrypts what goes over a network."""
        return self._handshake.encrypts

    def fileno(self) -> int:
        """Return the descriptor of the connection."""
        return self._sock.fileno()

    def join(self) -> int | None:
        """Join the session on the server's Unix socket, if that can be reached.

        Returns
        -------
        fd : int or None
            The connected socket, as that of `attach`. ``None`` where the server is on another
            host, or has no such socket here.

        Raises
        ------
        ConnectAnewError
            If the server asks for it.
        ConnectError
            If nothing came from it in time.
        """
        if not self.welcome.socket:
            return None
        try:
            with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as sock:
                sock.settimeout(self._deadline.left())
                sock.connect(self.welcome.socket)
                if _run(client_join(self.welcome.token), sock, self._deadline):
                    sock.setblocking(False)
                    return sock.detach()
        except ConnectAnewError:
            raise
        except OSError:  # there is no such socket here, or no descriptor for it
            pass
        if self._deadline.is_over():  # for all other ways, too
            raise ConnectError(
                f"cannot connect to {self._server}: its Unix socket does not answer "
                f"{self._deadline}"
            )
        return None

    def agree(self) -> SessionKeys | None:
        """Agree on the keys of the session; ``None`` if the server does not encrypt."""
        if not self._handshake.encrypts:
            return None
        from ucxstore.base.native import core  # not before it is needed

        try:
            agreement = core.Agreement()
        except ConnectError as error:  # without OpenSSL
            raise ConnectError(f"cannot connect to {self._server}: {error}") from error
        return self._run(self._handshake.agree(agreement))

    def attach(self, worker_address: bytes, *, shares_memory: bool = False) -> tuple[int, bytes]:
        """Exchange UCX addresses with the server.

        Parameters
        ----------
        worker_address : bytes
            That of this client's worker.
        shares_memory : bool
            Whether to use UCX's shared memory, as the `welcome` says that it may be.

        Returns
        -------
        fd : int
            The connection. The caller must close it. It does not block, is closed on exec, and has
            no unread data.
        address : bytes
            That of the server's worker.
        """
        steps = self._handshake.attach(worker_address, shares_memory=shares_memory)
        address = self._run(steps)
        self._sock.setblocking(False)
        return self._sock.detach(), address

    def stay(self, *, checked: bool) -> int:
        """Go on over this connection; return it as `attach` does.

        Raises
        ------
        ConnectError
            If the server does not let clients stay.
        """
        self._run(self._handshake.stay(checked=checked))
        self._sock.setblocking(False)
        return self._sock.detach()

    def keep(self, expected: bytes, record: bytes) -> bytes:
        """Let the server keep another record of its set, if it has `expected` now.

        Returns
        -------
        bytes
            The record that it keeps after that.
        """
        return self._run(self._handshake.keep(expected, record))

    def _run[T](self, steps: Steps[T]) -> T:
        try:
            return _run(steps, self._sock, self._deadline)
        except ConnectError:
            raise
        except OSError as error:
            why = error.strerror or error
            raise ConnectError(f"cannot shake hands with {self._server}: {why}") from error

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._sock.close()


def _reveal(secret: Secret | None, server: HostPort) -> bytes:
    try:
        return b"" if secret is None else secret.reveal()
    except AuthenticationError as error:
        raise AuthenticationError(f"cannot connect to {server}: {error}") from None


def dial(server: HostPort, resolved: Sequence[Resolved], deadline: Deadline) -> socket.socket:
    """Connect to the first of a host's addresses that answers.

    Raises
    ------
    ConnectError
        If none does; its cause is the last address's.
    """
    reach = Deadline(min(deadline.left(), _REACH_SECONDS))
    problems: dict[str, None] = {}
    may_come = True
    last: OSError | None = None
    for index, (family, address) in enumerate(resolved):
        # An address that does not answer leaves time for the others.
        share = reach.left() / (len(resolved) - index)
        try:
            return _connect_one(family, address, share)
        except TimeoutError as error:
            problems[f"nothing came {reach}"] = None
            last = error
        except OSError as error:
            problems[error.strerror or str(error)] = None
            last = error
            may_come = may_come and error.errno in _NOT_THERE
    fail = not_yet if may_come else ConnectError
    text = f"cannot connect to {server}: it does not answer: {'; '.join(problems)}"
    try:
        raise fail(text) from last
    finally:
        del last  # avoid a cycle: its traceback refers to this frame


def _connect_one(family: int, address: SocketAddress, timeout: float) -> socket.socket:
    sock = socket.socket(family, socket.SOCK_STREAM)
    try:
        sock.settimeout(timeout)
        sock.connect(address)
    except BaseException:
        sock.close()
        raise
    return sock


def resolve(server: HostPort, deadline: Deadline) -> list[Resolved]:
    """Look up the host. A name is looked up in a thread, since that call has no time-out."""
    try:
        return _getaddrinfo(server, socket.AI_NUMERICHOST)
    except (OSError, UnicodeError):
        pass  # a name; the second look-up reports names that are not valid
    results: queue.SimpleQueue[list[Resolved] | OSError | UnicodeError] = queue.SimpleQueue()

    def look_up() -> None:
        try:
            results.put(_getaddrinfo(server, 0))
        except (OSError, UnicodeError) as error:
            results.put(error)

    threading.Thread(target=look_up, name=f"ucxstore-resolve-{server.host}", daemon=True).start()
    try:
        result = results.get(timeout=deadline.left())
    except queue.Empty:
        raise ConnectError(f"cannot connect to {server}: no address found {deadline}") from None
    if isinstance(result, Exception):
        # A name may not be known yet. Others are not names, or no descriptor is left to ask.
        fail = not_yet if isinstance(result, socket.gaierror) else ConnectError
        raise fail(f"cannot connect to {server}: {result}") from result
    return result


def _getaddrinfo(server: HostPort, flags: int) -> list[Resolved]:
    host, port = server.host, server.port
    found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=flags)
    return [(family, address) for family, _, _, _, address in found]  # type: ignore[misc]


def _run[T](steps: Steps[T], sock: socket.socket, deadline: Deadline) -> T:
    """Send and receive what the handshake yields, blocking, and return its result."""

    async def send(data: bytes) -> None:
        sock.settimeout(deadline.left())
        # The peer may have sent a REJECT before it closed: that is read next.
        with suppress(BrokenPipeError, ConnectionResetError):
            sock.sendall(data)

    async def receive(size: int) -> bytes:
        sock.settimeout(deadline.left())
        return sock.recv(size)

    return without_waiting(carry_out(steps, send, receive, late=str(deadline)))
