"""Accept connections, and let the `Reception` shake hands with whoever is there.

One thread with its own event loop runs all handshakes at once. So a peer that is slow, silent or
hostile does not delay the others.
"""

import asyncio
import logging
import os
import socket
import threading
from collections.abc import Callable, Coroutine
from contextlib import ExitStack, suppress
from functools import partial

from ucxstore.base import logs, process
from ucxstore.protocol.frames import RejectCode
from ucxstore.server.accepting.guests import Guest, Guests
from ucxstore.server.accepting.reception import Reception
from ucxstore.server.accepting.refusals import refuse
from ucxstore.server.accepting.shortage import UNACCEPTED_FILES, Spare, shortage_of_files

MAX_HANDSHAKES = 256  # at once; each holds a descriptor and at most 64 KiB

# Of the accepting thread, above that of sessions. With an equal share of a processor, whoever
# knocks at the port all the time has each session wait for milliseconds.
_NICENESS = 10

# How long to wait after a failed accept. The usual cause is that no descriptor is free.
_RETRY_SECONDS = 0.05


class Acceptor:
    """The accepting thread of a server. It owns the sockets at which clients come.

    Parameters
    ----------
    listener : socket.socket
        Bound and listening.
    reception : Reception
        Carries out the handshakes.
    """

    def __init__(self, listener: socket.socket, reception: Reception) -> None:
        self.reception = reception
        self._listener = listener
        self._listener.setblocking(False)
        self._joining = reception.joining
        self._refusals = reception.refusals
        self._guests = Guests(MAX_HANDSHAKES)
        self._spare = Spare()
        self._loop = asyncio.SelectorEventLoop()
        self._task = self._loop.create_task(self._accept())
        self._thread = threading.Thread(target=self._run_below, name="ucxstore-accept", daemon=True)
        try:
            reception.sessions.start()
            self._thread.start()
        except RuntimeError:  # no thread is to be had
            self._task.cancel()
            self._run()
            self._spare.close()  # as the task has not begun
            raise
        process.in_child(self._abandon)

    @property
    def is_current_thread(self) -> bool:
        """Whether the caller runs on the accepting thread."""
        return threading.current_thread() is self._thread

    def ask(self) -> threading.Event | None:
        """Return what the accepting thread sets when it runs next; ``None`` if it has ended."""
        answered = threading.Event()
        try:
            self._loop.call_soon_threadsafe(answered.set)
        except RuntimeError:  # the loop has ended
            return None
        return answered

    def stop(self, timeout: float) -> None:
        """Accept no more connections, end the handshakes under way, and wait for the thread."""
        self.reception.stopping = True
        with suppress(RuntimeError):  # the loop has ended
            self._loop.call_soon_threadsafe(self._task.cancel)
        self._thread.join(timeout)

    def _abandon(self) -> None:
        """Close the inherited sockets in a forked child; peers would not see their end."""
        for sock in (self._listener, *self._guests.sockets):
            sock.close()
        if self._joining is not None:
            self._joining.listener.close()

    def _run_below(self) -> None:
        """Run with a lower priority than sessions: strangers decide how much there is to do."""
        with suppress(OSError):
            os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), os.nice(0) + _NICENESS)
        self._run()

    def _run(self) -> None:
        with suppress(asyncio.CancelledError):
            self._loop.run_until_complete(self._task)
        self._loop.close()
        # This object and the frames of the task refer to each other, so only the garbage collector
        # frees them. Without this line, the values in the server's memory would stay until then.
        self.reception.sessions.end()

    async def _accept(self) -> None:
        with ExitStack() as sockets:
            sockets.callback(self._spare.close)
            sockets.enter_context(self._listener)
            async with asyncio.TaskGroup() as tasks:
                if self._joining is not None:
                    sockets.callback(self._joining.close)
                    serve_local = self.reception.serve_local
                    tasks.create_task(self._accept_from(self._joining.listener, serve_local, tasks))
                await self._accept_from(self._listener, self.reception.serve, tasks)

    async def _accept_from(
        self,
        listener: socket.socket,
        serve: Callable[[Guest], Coroutine[None, None, None]],
        tasks: asyncio.TaskGroup,
    ) -> None:
        while True:
            sock = await self._next_connection(listener)
            try:
                guest = Guest.at(sock)
            except OSError:  # it has gone
                sock.close()
                self._refusals.probes.add()
                continue
            self._turn_away(
                self._guests.add(guest), f"{MAX_HANDSHAKES} clients are connecting at once"
            )
            task = tasks.create_task(serve(guest))
            # Also if it is cancelled before its first step.
            task.add_done_callback(partial(self._see_off, guest))
            guest.leave = task.cancel

    def _see_off(self, guest: Guest, _: object) -> None:
        """Forget a guest whose handshake has ended."""
        self._guests.remove(guest)
        guest.sock.close()  # does nothing once the native server has taken the socket over

    def _turn_away(self, guest: Guest | None, why: str) -> None:
        """End a handshake in favour of others."""
        if guest is None:
            return
        refuse(guest.sock, RejectCode.BUSY, f"{why}, and this one has been silent for longest")
        guest.leave()
        self._refusals.note(
            logging.WARNING,
            guest.origin,
            guest.origin,
            "turned a client of %s away: %s",
            guest.origin,
            why,
        )

    async def _next_connection(self, listener: socket.socket) -> socket.socket:
        while True:
            try:
                await self._readable(listener)
                if (shortage := shortage_of_files(UNACCEPTED_FILES)) is not None:
                    await self._make_room(listener, shortage)
                    continue
                sock, _ = listener.accept()
            except BlockingIOError:  # the client has gone again
                continue
            except OSError as error:
                logs.refusals.log(
                    logging.WARNING, "failed accepts", "", "cannot accept a connection: %s", error
                )
                self._turn_away(self._guests.remove_most_silent(), str(error))
                await asyncio.sleep(_RETRY_SECONDS)
            else:
                sock.setblocking(False)
                return sock

    async def _make_room(self, listener: socket.socket, shortage: str) -> None:
        """Turn the most silent guest away, or the newcomer, if there is none."""
        silent = self._guests.remove_most_silent()
        if silent is not None:
            self._turn_away(silent, shortage)
            await asyncio.sleep(_RETRY_SECONDS)
            return
        with self._spare.lent():
            sock, _ = listener.accept()
            with sock:
                sock.setblocking(False)
                with suppress(OSError):  # closed with unread input, it could lose the reason
                    sock.recv(4096)
                refuse(sock, RejectCode.BUSY, shortage)
        self._refusals.note(logging.WARNING, "", "", "turned a client away: %s", shortage)

    async def _readable(self, listener: socket.socket) -> None:
        """Wait for a connection, without accepting it.

        `sock_accept` may accept one as it is cancelled, and then fails in a callback of asyncio's.
        """
        came = self._loop.create_future()

        def note() -> None:
            if not came.done():
                came.set_result(None)

        self._loop.add_reader(listener, note)
        try:
            await came
        finally:
            self._loop.remove_reader(listener)
