"""What may listen at a server's port and is none, or does not stay one."""

import socket
import threading
from collections.abc import Callable
from contextlib import suppress
from types import TracebackType
from typing import Self

from ucxstore.base.errors import UcxStoreError
from ucxstore.protocol.driver import carry_out, without_waiting
from ucxstore.protocol.frames import Attach, Welcome
from ucxstore.protocol.handshake import Send, ServerHandshake, Steps

WELCOME = Welcome(b"t" * 16, b"i" * 16, read_only=False, offers_ucx=True)

type Behaviour = Callable[[socket.socket], None]


class FakeServer:
    """A listening socket that behaves so to each connection, one after another."""

    def __init__(self, behave: Behaviour) -> None:
        self._behave = behave
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._open: list[socket.socket] = []
        self.place = "{}:{}".format(*self._listener.getsockname())
        self.address = f"ucx://{self.place}"
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        with suppress(OSError):  # the end
            while True:
                sock, _ = self._listener.accept()
                self._open.append(sock)
                with suppress(OSError):
                    self._behave(sock)

    def hang_up(self) -> None:
        """End every connection."""
        for sock in self._open:
            with suppress(OSError):
                sock.shutdown(socket.SHUT_RDWR)
            sock.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        with suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self.hang_up()
        self._thread.join(20)
        assert not self._thread.is_alive()


def silent(sock: socket.socket) -> None:
    """Take what comes, and say nothing."""


def says(data: bytes) -> Behaviour:
    """Say this to everybody, and no more."""

    def behave(sock: socket.socket) -> None:
        sock.sendall(data)

    return behave


def closes(after: int) -> Behaviour:
    """Read so many bytes, and hang up."""

    def behave(sock: socket.socket) -> None:
        if after:
            sock.recv(after, socket.MSG_WAITALL)
        sock.shutdown(socket.SHUT_RDWR)
        sock.close()

    return behave


def welcomes(
    address: bytes,
    *,
    stays: bool,
    secret: bytes = b"",
    welcome: Welcome = WELCOME,
    attached: Callable[[bytes], None] = lambda _: None,
) -> Behaviour:
    """Shake hands as a server does that can be reached at a UCX address, and do nothing more."""

    def steps() -> Steps[None]:
        handshake = ServerHandshake(secret, "the client")
        yield from handshake.authenticate()
        yield from handshake.welcome(welcome)
        asked = yield from handshake.asked()
        assert isinstance(asked, Attach)
        attached(asked.address)
        yield Send(handshake.ready(address))

    def behave(sock: socket.socket) -> None:
        try:
            take(steps(), sock)
        except UcxStoreError:
            sock.close()
            return
        if not stays:
            sock.shutdown(socket.SHUT_RDWR)
            sock.close()

    return behave


def take[T](steps: Steps[T], sock: socket.socket) -> T:
    """Take the steps of a handshake by blocking calls; return its result."""

    async def send(data: bytes) -> None:
        sock.sendall(data)

    async def receive(size: int) -> bytes:
        return sock.recv(size)

    return without_waiting(carry_out(steps, send, receive))


def relays_to(
    place: str, to_server: bytearray | None = None, to_client: bytearray | None = None
) -> Behaviour:
    """Pass everything on to a server, and back: a man in the middle.

    Parameters
    ----------
    place : str
    to_server, to_client : bytearray or None
        What gets all bytes, before they are passed on.
    """
    host, port = place.split(":")

    def pass_on(source: socket.socket, target: socket.socket, record: bytearray | None) -> None:
        with suppress(OSError):
            while data := source.recv(4096):
                if record is not None:
                    record += data
                target.sendall(data)
        with suppress(OSError):
            target.shutdown(socket.SHUT_RDWR)

    def both_ways(sock: socket.socket) -> None:
        with socket.create_connection((host, int(port))) as server:
            back = threading.Thread(target=pass_on, args=(server, sock, to_client))
            back.start()
            pass_on(sock, server, to_server)
            back.join()

    def behave(sock: socket.socket) -> None:
        threading.Thread(target=both_ways, args=(sock,), daemon=True).start()

    return behave
