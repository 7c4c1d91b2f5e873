"""Accept connections, authenticate them, and hand them to the native server.

One thread with its own event loop runs all handshakes at once. So a peer that is slow, silent or
hostile does not delay the others.
"""

import asyncio
import itertools
import logging
import os
import secrets
import socket
import threading
from collections.abc import Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, ExitStack, nullcontext, suppress
from dataclasses import dataclass
from functools import partial
from typing import Protocol

from ucxstore.base import logs, process
from ucxstore.base.errors import (
    AuthenticationError,
    ConnectError,
    ProtocolVersionError,
    ResourceError,
    UcxStoreError,
)
from ucxstore.base.grants import ALL, Bounds, Role
from ucxstore.base.native import core
from ucxstore.protocol.driver import carry_out
from ucxstore.protocol.frames import (
    TOKEN_BYTES,
    Attach,
    RejectCode,
    Welcome,
    encode_reject,
)
from ucxstore.protocol.handshake import (
    Keep,
    PeerWish,
    ServerHandshake,
    Steps,
    join_again,
    joined,
    server_join,
)
from ucxstore.protocol.session_keys import KeyAgreement, SessionKeys
from ucxstore.protocol.sockets import name_of, tune
from ucxstore.server.accepting.data_ports import DataPorts
from ucxstore.server.accepting.guests import Guest, Guests
from ucxstore.server.accepting.joining import Joining, Offer, let_pass_descriptors
from ucxstore.server.accepting.shortage import (
    RESERVED_FILES,
    RESERVED_FROM_LOCAL,
    UNACCEPTED_FILES,
    Spare,
    shortage_of_files,
)
from ucxstore.server.accepting.users import Admit, admit_all
from ucxstore.server.identity import Identity

HANDSHAKE_SECONDS = 30.0

# Seconds that clients may take to finish what they have begun, and connect anew.
_RENEW_SECONDS = 5.0

# To a client that was welcomed before that.
_UNTOLD = "the server has become one of a set meanwhile"

MAX_HANDSHAKES = 256  # at once; each holds a descriptor and at most 64 KiB

# How long a peer whose handshake was refused may take to read the reason.
_LINGER_SECONDS = 1.0

# How often to look whether there is room for a session, and for how long where none can end: most
# clients have something under way for a moment only.
_ROOM_SECONDS = 0.01
_NO_ROOM_SECONDS = 2.0

# Of the accepting thread, above that of sessions. With an equal share of a processor, whoever
# knocks at the port all the time has each session wait for milliseconds.
_NICENESS = 10

# How long to wait after a failed accept. The usual cause is that no descriptor is free.
_RETRY_SECONDS = 0.05


class Port(Protocol):
    """A UCX worker of the native server, made for one client."""

    @property
    def address(self) -> bytes:
        """Its UCX address."""

    def attach(
        self,
        fd: int,
        token: bytes,
        address: bytes,
        peer: str,
        bounds: Bounds,
        origin: str,
        keys: SessionKeys | None = None,
    ) -> None:
        """Take over `fd`, also on failure. On return, the endpoint to `address` exists."""


class Sessions(Protocol):
    """The part of the native server that makes sessions for authenticated clients."""

    def open(self, thread: int, fd: int, shares_memory: bool) -> Port:
        """Make a UCX worker for the client of a connection on one of the server's threads."""

    def join(
        self,
        thread: int,
        fd: int,
        token: bytes,
        peer: str,
        bounds: Bounds,
        origin: str,
        answer: bytes,
    ) -> None:
        """Begin a session on a connected Unix socket; takes over `fd`, also on failure.

        `answer` is the first that it sends there.
        """

    def tell(self, name: str, count: core.Counter) -> None:
        """Tell a counter with the server's own ones."""

    def renew_sessions(self, timeout: float) -> None:
        """Have all clients that are connected connect anew; end what is left after `timeout`."""

    def make_room(self, origin: str, waiting: int, is_short: bool) -> bool:
        """Return whether there is room for a session; let others end for it.

        If descriptors are short, there is none, and only sessions of other origins end.

        Raises
        ------
        ResourceError
            If there will be none; the message names the limit.
        """


@dataclass(frozen=True, slots=True, kw_only=True)
class Terms:
    """The properties of a server that its `Welcome` sends to clients."""

    identity: Identity
    read_only: bool = False
    shared: bool = False
    volatile: bool = False
    shares_memory: bool = False


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
    admit : callable
        Raises `AuthenticationError` for the user of a peer that must not be served, whatever it
        knows.
    data_ports : DataPorts or None
        The ports at which UCX may listen; ``None`` for any.
    make_agreement : callable or None
        Makes what keys are agreed on with; ``None`` if nothing is encrypted.
    """

    def __init__(
        self,
        listener: socket.socket,
        sessions: Sessions,
        threads: int,
        secret: bytes,
        terms: Terms,
        joining: Joining | None = None,
        admit: Admit = admit_all,
        data_ports: DataPorts | None = None,
        make_agreement: Callable[[], KeyAgreement] | None = None,
    ) -> None:
        self.turned_away = core.Counter()  # connections whose handshake failed
        self.probes = core.Counter()  # connections that only looked, as health checks do
        sessions.tell("turned_away", self.turned_away)
        sessions.tell("probes", self.probes)
        self._listener = listener
        self._listener.setblocking(False)
        self._joining = joining
        self._sessions = sessions
        self._turns = itertools.cycle(range(threads))
        self._secret = secret
        self._terms = terms
        self.identity = terms.identity.value
        self._guests = Guests(MAX_HANDSHAKES)
        self._waiting = 0  # those that wait for others to end
        self._admit = admit
        self._data_ports = data_ports
        self._make_agreement = make_agreement
        self._spare = Spare()
        # Takes a connection of another server of the same source; None where there are none.
        self.on_peer: Callable[[socket.socket, SessionKeys | None], None] | None = None
        self._stopping = False
        self._renewed: asyncio.Future[bytes] | None = None  # once a client has sent a record
        self._loop = asyncio.SelectorEventLoop()
        self._task = self._loop.create_task(self._accept())
        # With the priority of sessions. UCX's threads get that of the thread that makes them; and
        # the longer a data port waits for its client, the longer strangers can connect to it.
        self._attacher = ThreadPoolExecutor(1, "ucxstore-attach")
        self._thread = threading.Thread(target=self._run_below, name="ucxstore-accept", daemon=True)
        try:
            self._attacher.submit(int).result()
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

    def change_secret(self, secret: bytes) -> None:
        """Ask for another secret in handshakes that begin from now on.

        Raises
        ------
        ValueError
            If there was none: whoever was let in without one would be so no more.
        """
        if not self._secret:
            raise ValueError("secret: the server was started without one")
        self._secret = secret

    def stop(self, timeout: float) -> None:
        """Accept no more connections, end the handshakes under way, and wait for the thread."""
        self._stopping = True
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
        self._attacher.shutdown(wait=False)
        # This object and the frames of the task refer to each other, so only the garbage collector
        # frees them. Without this line, the values in the server's memory would stay until then.
        del self._sessions

    async def _accept(self) -> None:
        with ExitStack() as sockets:
            sockets.callback(self._spare.close)
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
        serve: Callable[[Guest], Coroutine[None, None, None]],
        tasks: asyncio.TaskGroup,
    ) -> None:
        while True:
            sock = await self._next_connection(listener)
            try:
                guest = Guest.at(sock)
            except OSError:  # it has gone
                sock.close()
                self.probes.add()
                continue
            self._turn_away(
                self._guests.add(guest), f"{MAX_HANDSHAKES} clients are connecting at once"
            )
            task = tasks.create_task(serve(guest))
            # Also if it is cancelled before its first step.
            task.add_done_callback(partial(_close, sock))
            guest.leave = task.cancel

    def _turn_away(self, guest: Guest | None, why: str) -> None:
        """End a handshake in favour of others."""
        if guest is None:
            return
        _refuse(guest.sock, RejectCode.BUSY, f"{why}, and this one has been silent for longest")
        guest.leave()
        self._note_refusal(
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
                _refuse(sock, RejectCode.BUSY, shortage)
        self._note_refusal(logging.WARNING, "", "", "turned a client away: %s", shortage)

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

    async def _serve(self, guest: Guest) -> None:
        """Run the handshake of a connection. Raises nothing but its cancellation."""
        sock, peer = guest.sock, guest.name
        try:
            tune(sock)
            handshake = ServerHandshake(self._secret, peer, self._make_agreement)
            token = secrets.token_bytes(TOKEN_BYTES)
            offer: Offer | None = None
            with ExitStack() as offering:
                try:
                    async with asyncio.timeout(HANDSHAKE_SECONDS):
                        bounds = await self._run_steps(handshake.authenticate(), guest)
                        # Not before it has spoken: whoever only looks at the port is not refused.
                        self._check_user(guest, peer)
                        # Whoever knows the record writes to the others of the set.
                        await self._until_renewed()
                        record = self._terms.identity.record
                        offer = offering.enter_context(
                            self._offer(guest, token, peer, bounds, record)
                        )
                        welcome = self._welcome(token, offer, bounds, record)
                        await self._run_steps(handshake.welcome(welcome), guest)
                        guest.welcomed = True
                        asked = await self._run_steps(handshake.asked(), guest)
                        if isinstance(asked, Keep):
                            await self._keep(sock, handshake, asked, bounds)
                            return
                        if isinstance(asked, PeerWish):
                            await self._pass_on(sock, handshake, bounds)
                            return
                        try:
                            await self._find_room(guest.owner, RESERVED_FILES)
                        except ResourceError as error:
                            _refuse(sock, RejectCode.BUSY, str(error))
                            raise
                except (ConnectError, TimeoutError) as error:
                    if offer is not None and offer.joined:
                        return  # its session is on the Unix socket
                    if isinstance(error, ConnectError):
                        raise
                    raise ConnectError(
                        f"{peer}: no handshake within {HANDSHAKE_SECONDS:g} s"
                    ) from None
            if not self._was_told(record):
                _refuse(sock, RejectCode.AGAIN, _UNTOLD)
                raise ConnectError(f"{peer}: {_UNTOLD}")
            self._attacher.submit(
                self._attach, guest, handshake, token, asked, peer, bounds
            ).result()
        except (AuthenticationError, ProtocolVersionError) as error:
            self._note_refusal(
                logging.WARNING, guest.origin, peer, "turned a client away: %s", error
            )
            await self._linger(sock)
        except ResourceError as error:
            self._note_refusal(
                logging.WARNING, guest.origin, peer, "turned %s away: %s", peer, error
            )
        except (UcxStoreError, OSError) as error:
            self._note_end(guest, peer, "a handshake was not completed", error)
        except Exception:
            self._note_refusal(
                logging.ERROR, guest.origin, peer, "a handshake failed", exc_info=True
            )
        finally:
            self._guests.remove(guest)
            sock.close()  # does nothing once the native server has taken the socket over

    async def _keep(
        self, sock: socket.socket, handshake: ServerHandshake, asked: Keep, bounds: Bounds
    ) -> None:
        """Keep the record of the set of servers, and tell the client which one is kept."""
        if not bounds.opens_all:  # all keys, and who may write, depend on the record
            reason = f"its grant, which opens {bounds}, does not open the record of the servers"
            _refuse(sock, RejectCode.AUTHENTICATION, reason)
            raise AuthenticationError(f"{name_of(sock.getpeername())}: {reason}")
        try:
            kept = await self._keep_record(asked)
        except OSError as error:
            _refuse(sock, RejectCode.FAILED, f"the record of the servers was not kept: {error}")
            raise
        await self._loop.sock_sendall(sock, handshake.kept(kept))

    async def _keep_record(self, asked: Keep) -> bytes:
        """Keep a record, if it follows the one until now; return the one that is kept.

        A client without a record takes this server for all that its store has. Once there is a
        record, no such client may go on, or it would take chunks of the others for missing. So each
        connects anew, and learns of the set, before anybody is told that the record is kept.
        """
        await self._until_renewed()
        identity, sessions = self._terms.identity, self._sessions

        def keep() -> bytes:
            before = identity.record
            kept = identity.keep(asked.digest, asked.record)
            if kept and not before:
                sessions.renew_sessions(_RENEW_SECONDS)
            return kept

        # It goes on if the client that has asked for it is given up.
        self._renewed = self._loop.run_in_executor(None, keep)
        return await asyncio.shield(self._renewed)

    async def _until_renewed(self) -> None:
        """Wait while a record is being kept."""
        while self._renewed is not None and not self._renewed.done():
            await asyncio.wait([self._renewed])

    def _was_told(self, record: bytes) -> bool:
        """Whether a client was told of a set, if there is one by now."""
        return bool(record) or not self._terms.identity.record

    async def _pass_on(
        self, sock: socket.socket, handshake: ServerHandshake, bounds: Bounds
    ) -> None:
        """Let another server of the same source talk to this one."""
        if bounds != ALL:
            reason = f"its grant, which opens {bounds}, does not make it a server"
            _refuse(sock, RejectCode.AUTHENTICATION, reason)
            raise AuthenticationError(f"{name_of(sock.getpeername())}: {reason}")
        if self.on_peer is None:
            _refuse(sock, RejectCode.FAILED, "this server has no others of its source")
            return
        await self._loop.sock_sendall(sock, handshake.peered())
        self.on_peer(socket.socket(fileno=sock.detach()), handshake.keys)

    async def _serve_local(self, guest: Guest) -> None:
        """Let a client of this host join its session. Raises nothing but its cancellation."""
        sock, peer = guest.sock, "a client of this host"
        assert self._joining is not None
        try:
            async with asyncio.timeout(HANDSHAKE_SECONDS):
                mac = await self._run_steps(server_join(), guest)
            self._admit(guest.user)
            offer = self._joining.take(mac)
            if offer is None:
                raise AuthenticationError(f"{peer} was not told that it may join")
            peer = offer.peer
            # It goes on with UCX where there is none, and is then told so.
            async with asyncio.timeout(HANDSHAKE_SECONDS):
                await self._find_room(offer.origin, RESERVED_FROM_LOCAL)
            if not self._was_told(offer.record):
                _send_now(sock, join_again(offer.token))
                raise ConnectError(f"{peer}: {_UNTOLD}")
            let_pass_descriptors(sock, allowed=True)
            self._sessions.join(
                next(self._turns),
                sock.detach(),
                offer.token,
                peer,
                offer.bounds,
                offer.origin,
                joined(offer.token),
            )
        except (UcxStoreError, OSError) as error:
            self._note_end(guest, peer, "a client could not join", error)
        except Exception:
            self._note_refusal(
                logging.ERROR, guest.origin, peer, "a client could not join", exc_info=True
            )
        finally:
            self._guests.remove(guest)
            sock.close()

    def _note_end(self, guest: Guest, peer: str, what: str, error: Exception) -> None:
        """Note a handshake that did not come to its end, or that was only a probe of the port."""
        if guest.was_a_probe:
            self.probes.add()
            logs.refusals.log(
                logging.DEBUG,
                "probes of the port",
                guest.origin,
                "%s has closed its connection and asked for nothing",
                peer,
                extra={"event": "probed", "peer": peer},
            )
        else:
            self._note_refusal(logging.INFO, guest.origin, peer, "%s: %s", what, error)

    def _note_refusal(
        self,
        level: int,
        origin: str,
        peer: str,
        message: str,
        *arguments: object,
        exc_info: bool = False,
    ) -> None:
        """Count a handshake that failed, and log it, unless there are many."""
        self.turned_away.add()
        extra = {"event": "handshake_refused", "peer": peer}
        logs.refusals.log(
            level, "refused handshakes", origin, message, *arguments, extra=extra, exc_info=exc_info
        )

    def _check_user(self, guest: Guest, peer: str) -> None:
        """Turn a peer away that must not be served, and tell it why."""
        try:
            self._admit(guest.user)
        except AuthenticationError as error:
            _refuse(guest.sock, RejectCode.AUTHENTICATION, str(error))
            raise AuthenticationError(f"{peer}: {error}") from None

    async def _find_room(self, origin: str, files: int) -> None:
        """Wait until there is room for a session, and so many descriptors are left.

        Begin it at once then: others wait, too.

        Raises
        ------
        ResourceError
            If there is none; the message names the limit.
        """
        give_up_at = self._loop.time() + _NO_ROOM_SECONDS
        self._waiting += 1
        try:
            while True:
                shortage = shortage_of_files(files)
                try:
                    if self._sessions.make_room(origin, self._waiting, shortage is not None):
                        return
                except ResourceError as error:
                    if self._loop.time() >= give_up_at:
                        raise ResourceError(shortage or str(error)) from None
                await asyncio.sleep(_ROOM_SECONDS)
        finally:
            self._waiting -= 1

    def _rights(self, guest: Guest, bounds: Bounds) -> Bounds:
        """Return what a client may do: who has the server's secret, and no grant, may operate it.

        Without a secret, the server's own user may, and nobody else whom an open server lets in.
        """
        is_owner = bounds == ALL and (bool(self._secret) or guest.user == os.geteuid())
        return bounds._replace(role=Role.OWNER) if is_owner else bounds

    def _offer(
        self, guest: Guest, token: bytes, peer: str, bounds: Bounds, record: bytes
    ) -> AbstractContextManager[Offer | None]:
        """Return the offer to join on the Unix socket, if the client may reach that."""
        if self._joining is None or not self._joining.offers_to(guest.sock):
            return nullcontext()
        rights = self._rights(guest, bounds)
        return Offer(self._joining, token, peer, rights, guest.owner, record)

    def _welcome(self, token: bytes, offer: Offer | None, bounds: Bounds, record: bytes) -> Welcome:
        return Welcome(
            token,
            self._terms.identity.value,
            self._terms.read_only or bounds.read_only,
            self._terms.shared,
            self._terms.volatile,
            b"" if offer is None else offer.joining.name,
            record,
            self._terms.shares_memory,
        )

    async def _run_steps[T](self, steps: Steps[T], guest: Guest) -> T:
        """Send and receive what a handshake yields, and return its result."""

        async def receive(size: int) -> bytes:
            try:
                return await self._loop.sock_recv(guest.sock, size)
            except asyncio.CancelledError:
                if self._stopping:  # else it was the deadline
                    _refuse(guest.sock, RejectCode.DRAINING, "the server is shutting down")
                raise

        send = partial(self._loop.sock_sendall, guest.sock)
        return await carry_out(steps, send, receive, heard=guest.hear)

    def _attach(
        self,
        guest: Guest,
        handshake: ServerHandshake,
        token: bytes,
        asked: Attach,
        peer: str,
        bounds: Bounds,
    ) -> None:
        """Make a worker for the client, hand the connection to the native server, send READY.

        The endpoint must exist by then. Nothing in here waits, so it is not cancelled half-way.
        """
        sock = guest.sock
        try:
            # Without descriptors, UCX ends the process instead of failing.
            if (shortage := shortage_of_files()) is not None:
                raise ResourceError(shortage)
            # And without a port, it would look for one for ever.
            if self._data_ports is not None and (shortage := self._data_ports.shortage()):
                raise ResourceError(shortage)
            shares_memory = asked.shares_memory and self._terms.shares_memory
            port = self._sessions.open(next(self._turns), sock.fileno(), shares_memory)
        except Exception as error:
            reason = f"the server could not start UCX for this client: {error}"
            _refuse(sock, RejectCode.FAILED, reason)
            raise ResourceError(reason) from error
        ready = handshake.ready(port.address)
        try:
            answer = sock.dup()  # `sock` itself is handed over
        except OSError as error:
            _refuse(sock, RejectCode.FAILED, f"the server has no descriptor left: {error}")
            raise
        with answer:
            try:
                keys = handshake.keys
                rights = self._rights(guest, bounds)
                port.attach(sock.detach(), token, asked.address, peer, rights, guest.owner, keys)
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


def _refuse(sock: socket.socket, code: RejectCode, reason: str) -> None:
    _send_now(sock, encode_reject(code, reason))


def _close(sock: socket.socket, _: object) -> None:
    sock.close()


def _send_now(sock: socket.socket, data: bytes) -> int:
    """Send as much as fits without waiting; return how many bytes that was."""
    try:
        return sock.send(data)
    except OSError:
        return 0
