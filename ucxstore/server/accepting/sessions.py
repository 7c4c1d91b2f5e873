"""Begin the sessions of clients on the threads of the native server."""

import asyncio
import itertools
import socket
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress

from ucxstore.base.errors import ConnectError, ResourceError
from ucxstore.base.native import core
from ucxstore.protocol.frames import Attach, RejectCode
from ucxstore.protocol.handshake import ServerHandshake, joined
from ucxstore.server.accepting.data_ports import DataPorts
from ucxstore.server.accepting.joining import Client
from ucxstore.server.accepting.refusals import refuse, send_now
from ucxstore.server.accepting.shortage import shortage_of_files

# How often to look whether there is room for a session, and for how long where none can end: most
# clients have something under way for a moment only.
_ROOM_SECONDS = 0.01
_NO_ROOM_SECONDS = 2.0


class NewSessions:
    """Begin sessions, on one thread of the server after another.

    Parameters
    ----------
    native : core.Server
    threads : int
        How many threads the server has.
    data_ports : DataPorts or None
        The ports at which UCX may listen; ``None`` for any.
    """

    def __init__(
        self, native: core.Server, threads: int, data_ports: DataPorts | None = None
    ) -> None:
        self.native = native
        self._turns = itertools.cycle(range(threads))
        self._data_ports = data_ports
        self._waiting = 0  # those that wait for others to end
        # With the sessions' priority, which UCX's threads inherit from the thread that makes them.
        self._attacher = ThreadPoolExecutor(1, "ucxstore-attach")

    def start(self) -> None:
        """Start the thread that makes them, with the caller's priority.

        Raises
        ------
        RuntimeError
            If no thread is to be had.
        """
        self._attacher.submit(int).result()

    def end(self) -> None:
        """Begin no more, and let go of the native server."""
        self._attacher.shutdown(wait=False)
        del self.native

    async def find_room(self, origin: str, files: int) -> None:
        """Wait until there is room for a session, and so many descriptors are left.

        Begin it at once then: others wait, too.

        Raises
        ------
        ResourceError
            If there is none; the message names the limit.
        """
        loop = asyncio.get_running_loop()
        give_up_at = loop.time() + _NO_ROOM_SECONDS
        self._waiting += 1
        try:
            while True:
                shortage = shortage_of_files(files)
                try:
                    # Lets others end for it; if descriptors are short, only other origins'.
                    if self.native.make_room(origin, self._waiting, shortage is not None):
                        return
                except ResourceError as error:
                    if loop.time() >= give_up_at:
                        raise ResourceError(shortage or str(error)) from None
                await asyncio.sleep(_ROOM_SECONDS)
        finally:
            self._waiting -= 1

    def join(self, sock: socket.socket, client: Client) -> None:
        """Begin a session on a connected Unix socket, which is handed over, also on failure."""
        self.native.join(
            next(self._turns),
            sock.detach(),
            client.token,
            client.peer,
            client.rights,
            client.origin,
            joined(client.token),
        )

    def stay(
        self, sock: socket.socket, client: Client, asked: Attach, handshake: ServerHandshake
    ) -> None:
        """Begin a session on the connection of the handshake, and send READY."""
        self.native.stay(
            next(self._turns),
            sock.detach(),
            client.token,
            client.peer,
            client.rights,
            client.origin,
            handshake.ready(b""),
            asked.checked,
            handshake.keys,
        )

    def attach(
        self, sock: socket.socket, client: Client, asked: Attach, handshake: ServerHandshake
    ) -> None:
        """Make a worker for the client, hand the connection to the native server, send READY.

        The endpoint must exist by then. Nothing in here waits, so it is not cancelled half-way.

        Raises
        ------
        ResourceError, ConnectError, OSError
            If that fails, as the client is told.
        """
        self._attacher.submit(self._attach, sock, client, asked, handshake).result()

    def _attach(
        self, sock: socket.socket, client: Client, asked: Attach, handshake: ServerHandshake
    ) -> None:
        try:
            # Without descriptors, UCX ends the process instead of failing.
            if (shortage := shortage_of_files()) is not None:
                raise ResourceError(shortage)
            # And without a port, it would look for one for ever.
            if self._data_ports is not None and (shortage := self._data_ports.shortage()):
                raise ResourceError(shortage)
            port = self.native.open(next(self._turns), sock.fileno(), asked.shares_memory)
        except Exception as error:
            reason = f"the server could not start UCX for this client: {error}"
            refuse(sock, RejectCode.FAILED, reason)
            raise ResourceError(reason) from error
        ready = handshake.ready(port.address)
        try:
            answer = sock.dup()  # `sock` itself is handed over
        except OSError as error:
            refuse(sock, RejectCode.FAILED, f"the server has no descriptor left: {error}")
            raise
        with answer:
            try:
                # It takes the socket over, also on failure. After it, the endpoint exists.
                port.attach(
                    sock.detach(),
                    client.token,
                    asked.address,
                    client.peer,
                    client.rights,
                    client.origin,
                )
            except Exception as error:
                refuse(answer, RejectCode.FAILED, f"the server could not connect back: {error}")
                raise ConnectError(f"cannot attach {client.peer}: {error}") from error
            # There is room to send it, since the client has read everything before it. If sending
            # fails all the same, close the connection; this ends the session.
            if send_now(answer, ready) != len(ready):
                with suppress(OSError):
                    answer.shutdown(socket.SHUT_RDWR)
