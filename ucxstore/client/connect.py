"""Connect to a server: resolve its name, connect and shake hands, within one deadline."""

import queue
import socket
import threading
import time

from ucxstore.address import HostPort
from ucxstore.errors import AuthenticationError, ConnectError
from ucxstore.protocol.frames import Welcome
from ucxstore.protocol.handshake import Receive, Received, Send, Steps, client_handshake
from ucxstore.protocol.sockets import SocketAddress, tune
from ucxstore.secret import Secret

type _Resolved = tuple[int, SocketAddress]


class _Deadline:
    """A deadline, made from a number of seconds."""

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        self._end = time.monotonic() + seconds

    def left(self) -> float:
        """Return the seconds left, always above 0: a time-out of 0 makes a socket non-blocking."""
        return max(self._end - time.monotonic(), 1e-6)

    def __str__(self) -> str:
        return f"within {round(self.seconds, 1) or self.seconds:g} s"  # a remainder, so rounded


def handshake_socket(
    server: HostPort, secret: Secret | None, worker_address: bytes, timeout: float
) -> tuple[int, Welcome]:
    """Connect to a server and authenticate both sides.

    Parameters
    ----------
    server : HostPort
        Where it listens; the host is a name, an IPv4 or an IPv6 address.
    secret : Secret or None
        What both sides must know.
    worker_address : bytes
        The UCX address of this client's worker, shown to the server once it has proved itself.
    timeout : float
        Seconds for all of it, the look-up of the name included.

    Returns
    -------
    fd : int
        The connection. The caller must close it. It does not block, is closed on exec, and has no
        unread data.
    welcome : Welcome
        What the server grants.

    Raises
    ------
    ConnectError
        Or one of its subclasses; the message names the server and the cause.
    """
    deadline = _Deadline(timeout)
    key = _reveal(secret, server)
    sock = _connect(server, deadline)
    try:
        tune(sock)
        welcome = _run(client_handshake(key, worker_address, str(server)), sock, deadline)
        sock.setblocking(False)
        return sock.detach(), welcome
    except OSError as error:
        sock.close()
        if isinstance(error, ConnectError):
            raise
        raise ConnectError(f"cannot shake hands with {server}: {error}") from error
    except BaseException:
        sock.close()
        raise


def _reveal(secret: Secret | None, server: HostPort) -> bytes:
    try:
        return b"" if secret is None else secret.reveal()
    except AuthenticationError as error:
        raise AuthenticationError(f"cannot connect to {server}: {error}") from None


def _connect(server: HostPort, deadline: _Deadline) -> socket.socket:
    """Connect to the first of the host's addresses that answers."""
    resolved = _resolve(server, deadline)
    problems: dict[str, None] = {}
    for index, (family, address) in enumerate(resolved):
        # An address that does not answer leaves time for the others.
        share = deadline.left() / (len(resolved) - index)
        try:
            return _connect_one(family, address, share)
        except TimeoutError:
            problems[f"no answer {deadline}"] = None
        except OSError as error:
            problems[str(error)] = None
    raise ConnectError(f"cannot connect to {server}: {'; '.join(problems)}")


def _connect_one(family: int, address: SocketAddress, timeout: float) -> socket.socket:
    sock = socket.socket(family, socket.SOCK_STREAM)
    try:
        sock.settimeout(timeout)
        sock.connect(address)
    except BaseException:
        sock.close()
        raise
    return sock


def _resolve(server: HostPort, deadline: _Deadline) -> list[_Resolved]:
    """Look up the host. A name is looked up in a thread, since that call has no time-out."""
    try:
        return _getaddrinfo(server, socket.AI_NUMERICHOST)
    except (OSError, UnicodeError):
        pass  # a name; the second look-up reports names that are not valid
    results: queue.SimpleQueue[list[_Resolved] | OSError | UnicodeError] = queue.SimpleQueue()

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
        raise ConnectError(f"cannot connect to {server}: {result}") from result
    return result


def _getaddrinfo(server: HostPort, flags: int) -> list[_Resolved]:
    host, port = server.host, server.port
    found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=flags)
    return [(family, address) for family, _, _, _, address in found]  # type: ignore[misc]


def _run[T](steps: Steps[T], sock: socket.socket, deadline: _Deadline) -> T:
    """Send and receive what the handshake yields, and return its result."""
    try:
        request = next(steps)
        while True:
            if isinstance(request, Send):
                _send(sock, request, deadline)
                received = Received()
            else:
                received = _receive(sock, request, deadline)
            request = steps.send(received)
    except StopIteration as stop:
        result: T = stop.value
        return result


def _send(sock: socket.socket, request: Send, deadline: _Deadline) -> None:
    try:
        sock.settimeout(deadline.left())
        sock.sendall(request.data)
    except (BrokenPipeError, ConnectionResetError):
        pass  # the peer may have sent a REJECT before it closed: read that next


def _receive(sock: socket.socket, request: Receive, deadline: _Deadline) -> Received:
    data = b""
    try:
        while len(data) < request.size:
            sock.settimeout(deadline.left())
            part = sock.recv(request.size - len(data))
            if not part:
                return Received(data, "closed the connection")
            data += part
    except TimeoutError:
        return Received(data, f"sent no more {deadline}" if data else f"sent nothing {deadline}")
    except ConnectionError:
        return Received(data, "reset the connection")
    return Received(data)
