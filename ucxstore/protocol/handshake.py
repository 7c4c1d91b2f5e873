"""The handshake of a client and a server, without any I/O.

::

    client                            server
    HELLO(nonce)              ->
                              <-      CHALLENGE(is a secret required, nonce)
    PROOF(mac)                ->      verifies: the client knows the secret
    verifies: so does         <-      WELCOME(mac, token, incarnation, flags, Unix socket)
    the server
    ATTACH(mac, UCX address)  ->      verifies, makes a worker for this client
    verifies                  <-      READY(mac, UCX address)

At any point, the server may send REJECT(code, reason) instead. No side sends its UCX address before
it has verified the other.

A client of the same host, where the WELCOME names a Unix socket, joins the session there in place
of the last two frames, and then closes the first connection::

    JOIN(mac)                 ->      verifies: a client that it has just welcomed
    verifies                  <-      JOINED(mac)

A MAC is HMAC-SHA256, keyed with the secret (with nothing where there is none), of a label and of
every frame before it, and of the rest of its own frame: versions, flags, nonces, addresses. If one
of these is changed on the way, the next MAC is wrong. A client that has a secret refuses a server
that has none. The MACs of JOIN and JOINED are keyed with the session's token, of labels alone: who
sends them was told the token, or has given it.

Each step of a side is a generator: it yields `Send` and `Receive`, is sent a `Received` for each,
returns its result, and raises one of our exceptions when the handshake fails. It may yield a last
`Send` before it raises.
"""

import hmac
import secrets
from abc import ABC, abstractmethod
from collections.abc import Generator
from typing import NamedTuple

from ucxstore.errors import (
    AuthenticationError,
    ConnectError,
    NotAServerError,
    ProtocolError,
    ProtocolVersionError,
)
from ucxstore.protocol.frames import (
    BODY_BYTES,
    HEADER_BYTES,
    MAC_BYTES,
    NONCE_BYTES,
    PROTOCOL_VERSION,
    Challenge,
    Header,
    Kind,
    RejectCode,
    Welcome,
    decode_challenge,
    decode_header,
    decode_reject,
    decode_welcome,
    encode,
    encode_challenge,
    encode_reject,
    encode_welcome,
)

_CLIENT_LABEL = b"ucxstore client"
_SERVER_LABEL = b"ucxstore server"
_ATTACH_LABEL = b"ucxstore attach"
_READY_LABEL = b"ucxstore ready"
_JOIN_LABEL = b"ucxstore join"
_JOINED_LABEL = b"ucxstore joined"


class Send(NamedTuple):
    """The step to send all of `data`."""

    data: bytes


class Receive(NamedTuple):
    """The step to receive exactly `size` bytes."""

    size: int


class Received(NamedTuple):
    """The result of a step: the bytes that were to be received, or fewer.

    Parameters
    ----------
    data : bytes
        The bytes; none after a `Send`.
    ended : str
        What the peer did if there are fewer: "closed the connection".
    """

    data: bytes = b""
    ended: str = ""


type Steps[T] = Generator[Send | Receive, Received, T]


class ClientHandshake:
    """The client's side.

    Parameters
    ----------
    secret : bytes
        The shared secret; empty for none.
    peer : str
        The server's "host:port", for messages.
    """

    def __init__(self, secret: bytes, peer: str) -> None:
        self._dialogue = _ClientDialogue(secret, peer)

    def greet(self) -> Steps[Welcome]:
        """Authenticate both sides, and return what the server grants.

        Raises
        ------
        NotAServerError, ProtocolVersionError, AuthenticationError, ConnectError
            If the other side is not a ucxstore server, or refuses the client, or stops answering.
        """
        dialogue = self._dialogue
        yield from dialogue.send(Kind.HELLO, secrets.token_bytes(NONCE_BYTES))

        challenge = decode_challenge((yield from dialogue.receive(Kind.CHALLENGE)))
        if challenge.secret_required and not dialogue.has_secret:
            raise AuthenticationError(f"{dialogue.peer} requires a secret, and none was given here")
        if dialogue.has_secret and not challenge.secret_required:
            raise AuthenticationError(
                f"{dialogue.peer} has no secret, and one was given here: refusing it"
            )

        yield from dialogue.send_proven(Kind.PROOF, _CLIENT_LABEL)
        granted = yield from dialogue.receive_from_server(Kind.WELCOME, _SERVER_LABEL)
        return decode_welcome(granted)

    def attach(self, worker_address: bytes) -> Steps[bytes]:
        """Exchange UCX addresses.

        Parameters
        ----------
        worker_address : bytes
            That of the client's worker.

        Returns
        -------
        bytes
            That of the server's worker for this client, whose endpoint exists by now.

        Raises
        ------
        NotAServerError, AuthenticationError, ConnectError
            As for `greet`.
        """
        yield from self._dialogue.send_proven(Kind.ATTACH, _ATTACH_LABEL, worker_address)
        return (yield from self._dialogue.receive_from_server(Kind.READY, _READY_LABEL))


class ServerHandshake:
    """The server's side.

    Parameters
    ----------
    secret : bytes
        The shared secret; empty for none.
    peer : str
        The client's "host:port", for messages.
    """

    def __init__(self, secret: bytes, peer: str) -> None:
        self._dialogue = _ServerDialogue(secret, peer)

    def greet(self, welcome: Welcome) -> Steps[None]:
        """Authenticate both sides, and grant the client this.

        Raises
        ------
        ProtocolError, ProtocolVersionError, AuthenticationError, ConnectError
            If the other side is not a ucxstore client, or does not know the secret, or stops
            answering.
        """
        dialogue = self._dialogue
        yield from dialogue.receive(Kind.HELLO)
        challenge = Challenge(dialogue.has_secret, secrets.token_bytes(NONCE_BYTES))
        yield from dialogue.send(Kind.CHALLENGE, encode_challenge(challenge))

        proven, _ = yield from dialogue.receive_proven(Kind.PROOF, _CLIENT_LABEL)
        if not proven:
            yield from dialogue.refuse_secret()
        yield from dialogue.send_proven(Kind.WELCOME, _SERVER_LABEL, encode_welcome(welcome))

    def attach(self) -> Steps[bytes]:
        """Return the UCX address of the client's worker.

        Raises
        ------
        ProtocolError, ProtocolVersionError, AuthenticationError, ConnectError
            As for `greet`.
        """
        proven, address = yield from self._dialogue.receive_proven(Kind.ATTACH, _ATTACH_LABEL)
        if not proven:
            yield from self._dialogue.refuse_secret()
        return address

    def ready(self, worker_address: bytes) -> bytes:
        """Return the last frame, for the caller to send once its endpoint exists."""
        return self._dialogue.proven(Kind.READY, _READY_LABEL, worker_address)


def join_mac(token: bytes) -> bytes:
    """Return the body of the JOIN of a client that was given this token."""
    return hmac.digest(token, _JOIN_LABEL, "sha256")


def joined(token: bytes) -> bytes:
    """Return the whole JOINED frame that answers it."""
    return encode(Kind.JOINED, hmac.digest(token, _JOINED_LABEL, "sha256"))


def client_join(token: bytes) -> Steps[bool]:
    """Join a session on its Unix socket; whether the other side is the server that gave the token.

    Nothing is raised: a client that cannot join goes on without.
    """
    yield Send(encode(Kind.JOIN, join_mac(token)))
    answer = joined(token)
    received = yield Receive(len(answer))
    return hmac.compare_digest(received.data, answer)


def server_join() -> Steps[bytes]:
    """Receive a JOIN, and return its MAC.

    Raises
    ------
    ProtocolError
        If it is anything else.
    """
    head = yield Receive(HEADER_BYTES)
    if decode_header(head.data) != Header(PROTOCOL_VERSION, Kind.JOIN, MAC_BYTES):
        raise ProtocolError(f"a client of this host sent {head.data!r} in place of JOIN")
    return (yield Receive(MAC_BYTES)).data


class _Dialogue(ABC):
    """One side of the handshake, with the transcript of frames that both sides have."""

    def __init__(self, secret: bytes, peer: str) -> None:
        self.peer = peer
        self._secret = secret
        self._transcript = b""

    @property
    def has_secret(self) -> bool:
        return bool(self._secret)

    def send(self, kind: Kind, body: bytes) -> Steps[None]:
        frame = encode(kind, body)
        self._transcript += frame
        yield Send(frame)

    def send_proven(self, kind: Kind, label: bytes, said: bytes = b"") -> Steps[None]:
        """Send `said`, behind a MAC of it and of all frames so far."""
        yield Send(self.proven(kind, label, said))

    def proven(self, kind: Kind, label: bytes, said: bytes) -> bytes:
        """Return the frame that `send_proven` sends."""
        frame = encode(kind, self._mac(label, self._transcript + said) + said)
        self._transcript += frame
        return frame

    def receive(self, kind: Kind) -> Steps[bytes]:
        """Receive the body of a frame that must be of this kind."""
        head = yield Receive(HEADER_BYTES)
        header = decode_header(head.data)
        if header is None:
            raise self.stranger(head)
        yield from self.check_sender(header)
        body = yield from self.receive_body(header, kind)
        self._transcript += head.data + body
        return body

    def receive_body(self, header: Header, kind: Kind) -> Steps[bytes]:
        least, greatest = BODY_BYTES[kind]
        if header.kind != kind:
            raise self.broken(f"sent a frame of kind {header.kind} in place of {kind.name}")
        if not least <= header.length <= greatest:
            raise self.broken(f"sent a {kind.name} of {header.length} bytes")
        if header.length == 0:
            return b""
        body = yield Receive(header.length)
        if len(body.data) != header.length:
            raise self.lost(body)
        return body.data

    def receive_proven(self, kind: Kind, label: bytes) -> Steps[tuple[bool, bytes]]:
        """Receive a frame of `send_proven`: whether the MAC is right, and what was said."""
        before = self._transcript
        body = yield from self.receive(kind)
        mac, said = body[:MAC_BYTES], body[MAC_BYTES:]
        return hmac.compare_digest(mac, self._mac(label, before + said)), said

    def _mac(self, label: bytes, message: bytes) -> bytes:
        return hmac.digest(self._secret, label + message, "sha256")

    def lost(self, received: Received) -> ConnectError:
        return ConnectError(f"{self.peer} {received.ended} in the middle of the handshake")

    @abstractmethod
    def check_sender(self, header: Header) -> Steps[None]:
        """Raise if the sender of this header does not go on with the handshake."""

    @abstractmethod
    def stranger(self, head: Received) -> Exception:
        """Return the error for bytes that are not a header of ours."""

    @abstractmethod
    def broken(self, what: str) -> Exception:
        """Return the error for a frame that breaks the handshake."""


class _ClientDialogue(_Dialogue):
    def receive_from_server(self, kind: Kind, label: bytes) -> Steps[bytes]:
        """Receive what only a server that knows the secret can have said."""
        proven, said = yield from self.receive_proven(kind, label)
        if not proven:
            raise AuthenticationError(f"{self.peer} could not prove that it knows the secret")
        return said

    def check_sender(self, header: Header) -> Steps[None]:
        if header.kind == Kind.REJECT:
            body = yield from self.receive_body(header, Kind.REJECT)
            code, reason = decode_reject(body)
            if code == RejectCode.AUTHENTICATION:
                raise AuthenticationError(f"{self.peer} refused this client: {reason}")
            if code != RejectCode.VERSION:
                raise ConnectError(f"{self.peer} refused this client: {reason}")
        if header.version != PROTOCOL_VERSION or header.kind == Kind.REJECT:
            raise ProtocolVersionError(
                f"{self.peer} speaks version {header.version} of the protocol, this client "
                f"version {PROTOCOL_VERSION}: install the same release of ucxstore on both"
            )

    def stranger(self, head: Received) -> Exception:
        if self._heard_nothing_yet():
            what = f"answered {head.data!r}" if head.data else "answered nothing"
            if head.ended:
                what += f" and {head.ended}"
            return NotAServerError(f"{self.peer} is not a ucxstore server: it {what}")
        return self.lost(head) if head.ended else self.broken(f"sent {head.data!r}")

    def broken(self, what: str) -> Exception:
        return NotAServerError(f"{self.peer} does not keep to the ucxstore handshake: it {what}")

    def _heard_nothing_yet(self) -> bool:
        return len(self._transcript) == HEADER_BYTES + NONCE_BYTES  # our HELLO alone


class _ServerDialogue(_Dialogue):
    def check_sender(self, header: Header) -> Steps[None]:
        if header.version != PROTOCOL_VERSION:
            text = (
                f"the client speaks version {header.version} of the protocol, this server "
                f"version {PROTOCOL_VERSION}"
            )
            yield Send(encode_reject(RejectCode.VERSION, text))
            raise ProtocolVersionError(f"{self.peer}: {text}")

    def refuse_secret(self) -> Steps[None]:
        yield Send(encode_reject(RejectCode.AUTHENTICATION, "the secret is wrong"))
        raise AuthenticationError(f"{self.peer} does not know the secret")

    def stranger(self, head: Received) -> Exception:
        if head.ended:
            return self.lost(head)
        return self.broken(f"sent {head.data!r}")

    def broken(self, what: str) -> Exception:
        return ProtocolError(f"{self.peer} does not keep to the ucxstore handshake: it {what}")
