"""`Reception`: authenticate clients, tell them what the server is, and do what they ask for."""

import asyncio
import logging
import os
import secrets
import socket
from collections.abc import Callable
from contextlib import ExitStack, suppress
from functools import partial
from typing import NoReturn

from ucxstore.base.errors import (
    AuthenticationError,
    ConnectError,
    ProtocolVersionError,
    ResourceError,
    UcxStoreError,
)
from ucxstore.base.grants import ALL, Bounds, Role
from ucxstore.base.rdma import has_rdma
from ucxstore.protocol.driver import carry_out
from ucxstore.protocol.frames import TOKEN_BYTES, Attach, RejectCode, Welcome
from ucxstore.protocol.handshake import (
    Keep,
    PeerWish,
    ServerHandshake,
    Steps,
    join_again,
    server_join,
)
from ucxstore.protocol.session_keys import KeyAgreement, SessionKeys
from ucxstore.protocol.sockets import tune
from ucxstore.server.accepting.guests import Guest
from ucxstore.server.accepting.joining import Client, Joining, Offer, let_pass_descriptors
from ucxstore.server.accepting.refusals import HandshakeRefusals, refuse, send_now
from ucxstore.server.accepting.sessions import NewSessions
from ucxstore.server.accepting.set_record import SetRecord
from ucxstore.server.accepting.shortage import RESERVED_FILES, RESERVED_FROM_LOCAL
from ucxstore.server.accepting.users import Admit, admit_all
from ucxstore.server.identity import Identity

HANDSHAKE_SECONDS = 30.0

# To a client that was welcomed before that.
_UNTOLD = "the server has become one of a set meanwhile"

NO_UCX = 'this server does not offer UCX: start it with network="ucx" (--network ucx)'

# How long a peer whose handshake was refused may take to read the reason.
_LINGER_SECONDS = 1.0


class Reception:
    """Carry out the handshakes of guests, in the event loop of the accepting thread.

    Parameters
    ----------
    sessions : NewSessions
        Gets the authenticated connections.
    secret : bytes
        The secret that clients must prove to know; empty if none is needed.
    identity : Identity
    terms : Welcome
        What all clients are sent; the rest of it is empty.
    joining : Joining or None
        The Unix socket for clients of this host.
    admit : callable
        Raises `AuthenticationError` for the user of a peer that must not be served, whatever it
        knows.
    make_agreement : callable or None
        Makes what keys are agreed on with; ``None`` if nothing is encrypted.

    Attributes
    ----------
    refusals : HandshakeRefusals
    stopping : bool
        Set before the handshakes under way are cancelled because the server ends.
    on_peer : callable or None
        Takes a connection of another server of the same source; ``None`` where there are none.
    """

    def __init__(
        self,
        sessions: NewSessions,
        secret: bytes,
        identity: Identity,
        terms: Welcome,
        joining: Joining | None = None,
        admit: Admit = admit_all,
        make_agreement: Callable[[], KeyAgreement] | None = None,
    ) -> None:
        self.sessions = sessions
        self.joining = joining
        self.identity = identity
        self.terms = terms
        self.refusals = HandshakeRefusals(sessions.native)
        self.stopping = False
        self.on_peer: Callable[[socket.socket, SessionKeys | None], None] | None = None
        self._secret = secret
        self._admit = admit
        self._make_agreement = make_agreement
        self._record = SetRecord(identity, sessions)

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

    async def serve(self, guest: Guest) -> None:
        """Run the handshake of a connection. Raises nothing but its cancellation."""
        peer, note = guest.name, self.refusals.note
        try:
            tune(guest.sock)
            await self._serve(guest)
        except (AuthenticationError, ProtocolVersionError) as error:
            note(logging.WARNING, guest.origin, peer, "turned a client away: %s", error)
            await _linger(guest.sock)
        except ResourceError as error:
            note(logging.WARNING, guest.origin, peer, "turned %s away: %s", peer, error)
        except (UcxStoreError, OSError) as error:
            self.refusals.note_end(guest, peer, "a handshake was not completed", error)
        except Exception:
            note(logging.ERROR, guest.origin, peer, "a handshake failed", exc_info=True)

    async def _serve(self, guest: Guest) -> None:
        sock, peer = guest.sock, guest.name
        handshake = ServerHandshake(self._secret, peer, self._make_agreement)
        offer: Offer | None = None
        with ExitStack() as offering:
            try:
                async with asyncio.timeout(HANDSHAKE_SECONDS):
                    bounds = await self._run_steps(handshake.authenticate(), guest)
                    # Not before it has spoken: whoever only looks at the port is not refused.
                    self._check_user(guest)
                    # Whoever knows the record writes to the others of the set.
                    record = await self._record.settled()
                    token, rights = secrets.token_bytes(TOKEN_BYTES), self._rights(guest, bounds)
                    client = Client(token, peer, rights, guest.owner, record)
                    if self.joining is not None and self.joining.offers_to(sock):
                        offer = offering.enter_context(Offer(self.joining, client))
                    await self._run_steps(handshake.welcome(self._welcome(client, offer)), guest)
                    guest.welcomed = True
                    asked = await self._run_steps(handshake.asked(), guest)
                    if isinstance(asked, Keep):
                        await self._keep(guest, handshake, asked, bounds)
                        return
                    if isinstance(asked, PeerWish):
                        await self._pass_on(guest, handshake, bounds)
                        return
                    if not asked.stays and not self.terms.offers_ucx:
                        refuse(sock, RejectCode.FAILED, NO_UCX)
                        raise ConnectError(f"{peer}: {NO_UCX}")
                    try:
                        files = RESERVED_FROM_LOCAL if asked.stays else RESERVED_FILES
                        await self.sessions.find_room(guest.owner, files)
                    except ResourceError as error:
                        refuse(sock, RejectCode.BUSY, str(error))
                        raise
            except (ConnectError, TimeoutError) as error:
                if offer is not None and offer.joined:
                    return  # its session is on the Unix socket
                if isinstance(error, ConnectError):
                    raise
                raise ConnectError(f"{peer}: no handshake within {HANDSHAKE_SECONDS:g} s") from None
        if not self._record.was_told(record):
            refuse(sock, RejectCode.AGAIN, _UNTOLD)
            raise ConnectError(f"{peer}: {_UNTOLD}")
        if asked.stays:
            self.sessions.stay(sock, client, asked, handshake)
            return
        shares_memory = asked.shares_memory and self.terms.shares_memory
        self.sessions.attach(sock, client, Attach(asked.address, shares_memory), handshake)

    async def serve_local(self, guest: Guest) -> None:
        """Let a client of this host join its session. Raises nothing but its cancellation."""
        sock, peer = guest.sock, "a client of this host"
        assert self.joining is not None
        try:
            async with asyncio.timeout(HANDSHAKE_SECONDS):
                mac = await self._run_steps(server_join(), guest)
            self._admit(guest.user)
            offer = self.joining.take(mac)
            if offer is None:
                raise AuthenticationError(f"{peer} was not told that it may join")
            client = offer.client
            peer = client.peer
            # It goes on with UCX where there is none, and is then told so.
            async with asyncio.timeout(HANDSHAKE_SECONDS):
                await self.sessions.find_room(client.origin, RESERVED_FROM_LOCAL)
            if not self._record.was_told(client.record):
                send_now(sock, join_again(client.token))
                raise ConnectError(f"{peer}: {_UNTOLD}")
            let_pass_descriptors(sock, allowed=True)
            self.sessions.join(sock, client)
        except (UcxStoreError, OSError) as error:
            self.refusals.note_end(guest, peer, "a client could not join", error)
        except Exception:
            self.refusals.note(
                logging.ERROR, guest.origin, peer, "a client could not join", exc_info=True
            )

    async def _keep(
        self, guest: Guest, handshake: ServerHandshake, asked: Keep, bounds: Bounds
    ) -> None:
        """Keep the record of the set of servers, and tell the client which one is kept."""
        if not bounds.opens_all:  # all keys, and who may write, depend on the record
            reason = f"its grant, which opens {bounds}, does not open the record of the servers"
            _deny(guest, reason)
        try:
            kept = await self._record.keep(asked)
        except OSError as error:
            refuse(
                guest.sock, RejectCode.FAILED, f"the record of the servers was not kept: {error}"
            )
            raise
        await asyncio.get_running_loop().sock_sendall(guest.sock, handshake.kept(kept))

    async def _pass_on(self, guest: Guest, handshake: ServerHandshake, bounds: Bounds) -> None:
        """Let another server of the same source talk to this one."""
        sock = guest.sock
        if bounds != ALL:
            _deny(guest, f"its grant, which opens {bounds}, does not make it a server")
        if self.on_peer is None:
            refuse(sock, RejectCode.FAILED, "this server has no others of its source")
            return
        await asyncio.get_running_loop().sock_sendall(sock, handshake.peered())
        self.on_peer(socket.socket(fileno=sock.detach()), handshake.keys)

    def _check_user(self, guest: Guest) -> None:
        """Turn a peer away that must not be served, and tell it why."""
        try:
            self._admit(guest.user)
        except AuthenticationError as error:
            _deny(guest, str(error))

    def _rights(self, guest: Guest, bounds: Bounds) -> Bounds:
        """Return the rights of a client: the server's secret itself, no grant, lets it operate.

        Without a secret, the server's own user may, and nobody else whom an open server lets in.
        """
        is_owner = bounds == ALL and (bool(self._secret) or guest.user == os.geteuid())
        return bounds._replace(role=Role.OWNER) if is_owner else bounds

    def _welcome(self, client: Client, offer: Offer | None) -> Welcome:
        return self.terms._replace(
            token=client.token,
            read_only=self.terms.read_only or client.rights.read_only,
            socket=b"" if offer is None else offer.joining.name,
            record=client.record,
            rdma=has_rdma(),
        )

    async def _run_steps[T](self, steps: Steps[T], guest: Guest) -> T:
        """Send and receive what a handshake yields, and return its result."""
        loop = asyncio.get_running_loop()

        async def receive(size: int) -> bytes:
            try:
                return await loop.sock_recv(guest.sock, size)
            except asyncio.CancelledError:
                if self.stopping:  # else it was the deadline
                    refuse(guest.sock, RejectCode.DRAINING, "the server is shutting down")
                raise

        send = partial(loop.sock_sendall, guest.sock)
        return await carry_out(steps, send, receive, heard=guest.hear)


def _deny(guest: Guest, reason: str) -> NoReturn:
    """Tell a peer why it may not do what it asks for."""
    refuse(guest.sock, RejectCode.AUTHENTICATION, reason)
    raise AuthenticationError(f"{guest.name}: {reason}") from None


async def _linger(sock: socket.socket) -> None:
    """Wait until the peer has read its REJECT.

    To close a socket with unread input resets the connection, and the peer would lose it.
    """
    loop = asyncio.get_running_loop()
    with suppress(OSError, TimeoutError):
        sock.shutdown(socket.SHUT_WR)
        async with asyncio.timeout(_LINGER_SECONDS):
            while await loop.sock_recv(sock, 4096):
                pass
