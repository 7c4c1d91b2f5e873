"""The handshake of a client and a server, without any I/O.

::

    client                            server
    HELLO(nonce)              ->
                              <-      CHALLENGE(is a secret required, nonce)
    PROOF(mac, caveats)       ->      verifies: the client knows the secret, or has a grant
    verifies: so does         <-      WELCOME(mac, token, identity, flags, Unix socket, record)
    the server
    ATTACH(mac, flags,        ->      verifies, makes a worker for this client
           UCX address)
    verifies                  <-      READY(mac, UCX address)

At any point, the server may send REJECT(code, reason) instead. No side sends its UCX address before
it has verified the other.

A client of the same host, where the WELCOME names a Unix socket, joins the session there in place
of the last two frames, and then closes the first connection::

    JOIN(mac)                 ->      verifies: a client that it has just welcomed
    verifies                  <-      JOINED(mac)

A client that wants the server to keep another record of its set sends, in place of the last two::

    KEEP(mac, digest, record) ->      verifies; keeps it if it has the record of that digest now
    verifies                  <-      KEPT(mac, the record that it has then)

Another server of the same source sends, in place of the last two, and without a grant::

    PEER(mac)                 ->      verifies
    verifies                  <-      PEERED(mac)

A MAC is HMAC-SHA256, keyed with the secret (with nothing where there is none), of a label and of
every frame before it, and of the rest of its own frame: versions, flags, nonces, addresses. If one
of these is changed on the way, the next MAC is wrong. A client that has a grant
(`ucxstore.base.grants`) names its caveats in the clear, and both sides key all MACs with the
grant's key, which the server makes of the secret and the caveats. A client that has a secret
refuses a server that has none. The MACs of JOIN and JOINED are keyed with the session's token, of
labels alone: who sends them was told the token, or has given it.

Where the CHALLENGE says that the server encrypts, whoever wants to attach, or to go on as another
server, sends before that::

    ENCRYPT(mac, public key)  ->      verifies
    verifies                  <-      ENCRYPTED(mac, public key)

From these keys, the secret and all frames so far, both sides draw the keys of the session
(`ucxstore.protocol.session_keys`).

Each step of a side is a generator: it yields `Send` and `Receive`, is sent a `ReceivedBytes` for
each, returns its result, and raises one of our exceptions when the handshake fails. It may yield a
last `Send` before it raises.
"""

import hashlib
import hmac
import secrets
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Generator
from typing import NamedTuple, NoReturn

from ucxstore.base import grants
from ucxstore.base.errors import (
    AuthenticationError,
    ConnectError,
    NotAServerError,
    ProtocolError,
    ProtocolVersionError,
    not_yet,
)
from ucxstore.base.grants import Bounds
from ucxstore.protocol.frames import (
    BODY_BYTES,
    DIGEST_BYTES,
    HEADER_BYTES,
    MAC_BYTES,
    NONCE_BYTES,
    PROTOCOL_VERSION,
    Attach,
    Challenge,
    FrameKind,
    Header,
    RejectCode,
    Welcome,
    decode_attach,
    decode_challenge,
    decode_header,
    decode_reject,
    decode_welcome,
    encode,
    encode_attach,
    encode_challenge,
    encode_reject,
    encode_welcome,
)
from ucxstore.protocol.session_keys import KeyAgreement, SessionKeys

# The text that the MAC in a frame begins with.
_LABELS = {
    FrameKind.PROOF: b"ucxstore client",
    FrameKind.WELCOME: b"ucxstore server",
    FrameKind.ATTACH: b"ucxstore attach",
    FrameKind.READY: b"ucxstore ready",
    FrameKind.KEEP: b"ucxstore keep",
    FrameKind.KEPT: b"ucxstore kept",
    FrameKind.PEER: b"ucxstore peer",
    FrameKind.PEERED: b"ucxstore peered",
    FrameKind.ENCRYPT: b"ucxstore encrypt",
    FrameKind.ENCRYPTED: b"ucxstore encrypted",
}
_JOIN_LABEL = b"ucxstore join"
_JOINED_LABEL = b"ucxstore joined"
_AGAIN_LABEL = b"ucxstore again"


class ConnectAnewError(ConnectError):
    """The server has refused a handshake, and carries out one that is begun now."""


class Send(NamedTuple):
    """The step to send all of `data`."""

    data: bytes


class Receive(NamedTuple):
    """The step to receive exactly `size` bytes."""

    size: int


class ReceivedBytes(NamedTuple):
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


class Keep(NamedTuple):
    """What a client asks a server to keep.

    Parameters
    ----------
    digest : bytes
        Of the record that the server is to have until then.
    record : bytes
    """

    digest: bytes
    record: bytes


class PeerWish(NamedTuple):
    """The wish of another server to go on as such."""


type Steps[T] = Generator[Send | Receive, ReceivedBytes, T]


class ClientHandshake:
    """The client's side.

    Parameters
    ----------
    secret : bytes
        The text of the shared secret, or of a grant; empty for none.
    peer : str
        The server's "host:port", for messages.
    encrypt : bool or None
        Whether the server must encrypt, or must not; ``None`` leaves it to the server.

    Attributes
    ----------
    encrypts : bool
        Once it has greeted: whether the server encrypts what goes over a network.
    """

    def __init__(self, secret: bytes, peer: str, encrypt: bool | None = None) -> None:
        credentials = grants.credentials_of(secret)
        self._dialogue = _ClientDialogue(credentials.key, peer)
        self._dialogue.caveats = credentials.caveats
        self._encrypt = encrypt
        self.encrypts = False

    def greet(self) -> Steps[Welcome]:
        """Authenticate both sides, and return what the server grants.

        Raises
        ------
        NotAServerError, ProtocolVersionError, AuthenticationError, ConnectError
            If the other side is not a ucxstore server, or refuses the client, or stops answering.
        """
        dialogue = self._dialogue
        yield from dialogue.send(FrameKind.HELLO, secrets.token_bytes(NONCE_BYTES))

        challenge = decode_challenge((yield from dialogue.receive(FrameKind.CHALLENGE)))
        if challenge.secret_required and not dialogue.has_secret:
            raise AuthenticationError(f"{dialogue.peer} requires a secret, and none was given here")
        if dialogue.has_secret and not challenge.secret_required:
            raise AuthenticationError(
                f"{dialogue.peer} has no secret, but one was given here: refusing to connect"
            )
        if self._encrypt and not challenge.encrypts:
            raise ConnectError(
                f"{dialogue.peer} does not encrypt, and encrypt=True was given here: start it with "
                "encrypt=True (--encrypt)"
            )
        self.encrypts = challenge.encrypts

        granted = yield from dialogue.ask(FrameKind.PROOF, dialogue.caveats, FrameKind.WELCOME)
        return decode_welcome(granted)

    def agree(self, agreement: KeyAgreement) -> Steps[SessionKeys]:
        """Agree on the keys of the session.

        Raises
        ------
        NotAServerError, AuthenticationError, ConnectError
            As for `greet`; also if the server encrypts, and must not.
        """
        dialogue = self._dialogue
        if self._encrypt is False:
            raise ConnectError(
                f"{dialogue.peer} encrypts what goes over a network, and encrypt=False was given "
                "here"
            )
        public_key = agreement.public_key
        other = yield from dialogue.ask(FrameKind.ENCRYPT, public_key, FrameKind.ENCRYPTED)
        return dialogue.keys(agreement, other)

    def attach(self, worker_address: bytes, *, shares_memory: bool = False) -> Steps[bytes]:
        """Exchange UCX addresses.

        Parameters
        ----------
        worker_address : bytes
            That of the client's worker.
        shares_memory : bool
            Whether to use UCX's shared memory, as the server has said that it may be.

        Returns
        -------
        bytes
            That of the server's worker for this client, whose endpoint exists by now.

        Raises
        ------
        NotAServerError, AuthenticationError, ConnectError
            As for `greet`.
        """
        said = encode_attach(Attach(worker_address, shares_memory))
        return (yield from self._dialogue.ask(FrameKind.ATTACH, said, FrameKind.READY))

    def stay(self, *, checked: bool) -> Steps[None]:
        """Go on over this connection, with checksums or without.

        Raises
        ------
        NotAServerError, AuthenticationError, ConnectError
            As for `greet`.
        """
        said = encode_attach(Attach(b"", stays=True, checked=checked))
        yield from self._dialogue.ask(FrameKind.ATTACH, said, FrameKind.READY)

    def keep(self, expected: bytes, record: bytes) -> Steps[bytes]:
        """Ask the server to keep another record of its set, if it has `expected` now.

        Parameters
        ----------
        expected, record : bytes

        Returns
        -------
        bytes
            The record that it keeps after that.

        Raises
        ------
        NotAServerError, AuthenticationError, ConnectError
            As for `greet`.
        """
        said = digest(expected) + record
        return (yield from self._dialogue.ask(FrameKind.KEEP, said, FrameKind.KEPT))

    def peer(self) -> Steps[None]:
        """Go on as another server of the same source.

        Raises
        ------
        NotAServerError, AuthenticationError, ConnectError
            As for `greet`.
        """
        yield from self._dialogue.ask(FrameKind.PEER, b"", FrameKind.PEERED)


class ServerHandshake:
    """The server's side.

    Parameters
    ----------
    secret : bytes
        The shared secret; empty for none.
    peer : str
        The client's "host:port", for messages.
    make_agreement : callable or None
        Makes what the keys are agreed on with, if the server encrypts.

    Attributes
    ----------
    keys : SessionKeys or None
        Once `asked` has returned: the keys of the session, if it is encrypted.
    """

    def __init__(
        self, secret: bytes, peer: str, make_agreement: Callable[[], KeyAgreement] | None = None
    ) -> None:
        self._dialogue = _ServerDialogue(secret, peer)
        self._make_agreement = make_agreement
        self.keys: SessionKeys | None = None

    def authenticate(self) -> Steps[Bounds]:
        """Verify the client, and return what it may do.

        Raises
        ------
        ProtocolError, ProtocolVersionError, AuthenticationError, ConnectError
            If the other side is not a ucxstore client, or neither knows the secret nor has a grant
            that still holds, or stops answering.
        """
        dialogue = self._dialogue
        yield from dialogue.receive(FrameKind.HELLO)
        encrypts = self._make_agreement is not None
        challenge = Challenge(dialogue.has_secret, secrets.token_bytes(NONCE_BYTES), encrypts)
        yield from dialogue.send(FrameKind.CHALLENGE, encode_challenge(challenge))

        return (yield from dialogue.receive_credentials())

    def welcome(self, welcome: Welcome) -> Steps[None]:
        """Tell the client this. From then on it may join on the Unix socket."""
        said = encode_welcome(welcome)
        yield Send(self._dialogue.proven(FrameKind.WELCOME, said))

    def asked(self) -> Steps[Attach | Keep | PeerWish]:
        """Return what the client, or another server, wants.

        Mostly that is to attach: then it is the UCX address of the client's worker, and what it is
        to use.

        Raises
        ------
        ProtocolError, ProtocolVersionError, AuthenticationError, ConnectError
            As for `authenticate`.
        """
        dialogue = self._dialogue
        kinds = [FrameKind.ATTACH, FrameKind.KEEP, FrameKind.PEER]
        kind, said = yield from dialogue.receive_asked([*kinds, FrameKind.ENCRYPT])
        if kind is FrameKind.ENCRYPT:
            yield from self._agree(said)
            kind, said = yield from dialogue.receive_asked(kinds)
        if self._make_agreement is not None and self.keys is None and kind is not FrameKind.KEEP:
            yield from dialogue.refuse(
                "this server encrypts what goes over a network, and the client does not "
                "(encrypt=False, or a release that cannot)"
            )
        if kind is FrameKind.ATTACH:
            asked = decode_attach(said)
            if asked.stays == bool(asked.address):
                yield from dialogue.refuse("a client needs either UCX or this connection")
            return asked
        if kind is FrameKind.PEER:
            return PeerWish()
        return Keep(said[:DIGEST_BYTES], said[DIGEST_BYTES:])

    def _agree(self, other: bytes) -> Steps[None]:
        dialogue = self._dialogue
        if self._make_agreement is None:
            yield from dialogue.refuse("this server does not encrypt")
        else:
            agreement = self._make_agreement()
            yield Send(dialogue.proven(FrameKind.ENCRYPTED, agreement.public_key))
            self.keys = dialogue.keys(agreement, other).turned

    def kept(self, record: bytes) -> bytes:
        """Return the frame that answers a `Keep`."""
        return self._dialogue.proven(FrameKind.KEPT, record)

    def peered(self) -> bytes:
        """Return the frame that answers a `PeerWish`."""
        return self._dialogue.proven(FrameKind.PEERED)

    def ready(self, worker_address: bytes) -> bytes:
        """Return the last frame, for the caller to send once its endpoint exists."""
        return self._dialogue.proven(FrameKind.READY, worker_address)


def digest(record: bytes) -> bytes:
    """Return what tells a record from others."""
    return hashlib.blake2b(record, digest_size=DIGEST_BYTES).digest()


def join_mac(token: bytes) -> bytes:
    """Return the body of the JOIN of a client that was given this token."""
    return hmac.digest(token, _JOIN_LABEL, "sha256")


def joined(token: bytes) -> bytes:
    """Return the whole JOINED frame that answers it."""
    return encode(FrameKind.JOINED, hmac.digest(token, _JOINED_LABEL, "sha256"))


def join_again(token: bytes) -> bytes:
    """Return the JOINED frame for a client that is to connect anew."""
    return encode(FrameKind.JOINED, hmac.digest(token, _AGAIN_LABEL, "sha256"))


def client_join(token: bytes) -> Steps[bool]:
    """Join a session on its Unix socket; whether the other side is the server that gave the token.

    A client that cannot join goes on without.

    Raises
    ------
    ConnectAnewError
        If that server asks for it.
    """
    yield Send(encode(FrameKind.JOIN, join_mac(token)))
    answer = joined(token)
    received = yield Receive(len(answer))
    if hmac.compare_digest(received.data, join_again(token)):
        raise ConnectAnewError("the server of this host asks to connect anew")
    return hmac.compare_digest(received.data, answer)


def server_join() -> Steps[bytes]:
    """Receive a JOIN, and return its MAC.

    Raises
    ------
    ProtocolError
        If it is anything else.
    """
    head = yield Receive(HEADER_BYTES)
    if decode_header(head.data) != Header(PROTOCOL_VERSION, FrameKind.JOIN, MAC_BYTES):
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

    def send(self, kind: FrameKind, body: bytes) -> Steps[None]:
        frame = encode(kind, body)
        self._transcript += frame
        yield Send(frame)

    def proven(self, kind: FrameKind, said: bytes = b"") -> bytes:
        """Return the frame with `said`, behind a MAC of it and of all frames so far."""
        frame = encode(kind, self._mac(kind, self._transcript + said) + said)
        self._transcript += frame
        return frame

    def receive(self, kind: FrameKind) -> Steps[bytes]:
        """Receive the body of a frame that must be of this kind."""
        _, body = yield from self.receive_any([kind])
        return body

    def receive_any(self, kinds: Collection[FrameKind]) -> Steps[tuple[FrameKind, bytes]]:
        """Receive a frame that must be of one of these kinds; return its kind and body."""
        head = yield Receive(HEADER_BYTES)
        header = decode_header(head.data)
        if header is None:
            raise self.stranger(head)
        yield from self.check_sender(header)
        body = yield from self.receive_body(header, kinds)
        self._transcript += head.data + body
        return FrameKind(header.kind), body

    def receive_body(self, header: Header, kinds: Collection[FrameKind]) -> Steps[bytes]:
        if header.kind not in kinds:
            wanted = " or ".join(kind.name for kind in kinds)
            raise self.broken(f"sent a frame of kind {header.kind} in place of {wanted}")
        kind = FrameKind(header.kind)
        least, greatest = BODY_BYTES[kind]
        if not least <= header.length <= greatest:
            raise self.broken(f"sent a {kind.name} of {header.length} bytes")
        if header.length == 0:
            return b""
        body = yield Receive(header.length)
        if len(body.data) != header.length:
            raise self.lost(body)
        return body.data

    def receive_proven(self, kinds: Collection[FrameKind]) -> Steps[tuple[FrameKind, bool, bytes]]:
        """Receive a frame of `proven`: its kind, whether the MAC is right, and what was said."""
        before = self._transcript
        kind, body = yield from self.receive_any(kinds)
        mac, said = body[:MAC_BYTES], body[MAC_BYTES:]
        return kind, hmac.compare_digest(mac, self._mac(kind, before + said)), said

    def _mac(self, kind: FrameKind, message: bytes) -> bytes:
        return hmac.digest(self._secret, _LABELS[kind] + message, "sha256")

    def keys(self, agreement: KeyAgreement, other: bytes) -> SessionKeys:
        """Return the client's keys of the session; `other` is the other side's public key."""
        agreed = agreement.secret_with(other)
        return SessionKeys.of_client(agreed, self._secret, self._transcript)

    def lost(self, received: ReceivedBytes) -> ConnectError:
        return ConnectError(f"{self.peer} {received.ended} in the middle of the handshake")

    @abstractmethod
    def check_sender(self, header: Header) -> Steps[None]:
        """Raise if the sender of this header does not go on with the handshake."""

    @abstractmethod
    def stranger(self, head: ReceivedBytes) -> Exception:
        """Return the error for bytes that are not a header of ours."""

    @abstractmethod
    def broken(self, what: str) -> Exception:
        """Return the error for a frame that breaks the handshake."""


class _ClientDialogue(_Dialogue):
    caveats: bytes = b""

    def ask(self, kind: FrameKind, said: bytes, answer: FrameKind) -> Steps[bytes]:
        """Say something, and receive what only a server that knows the secret can answer."""
        yield Send(self.proven(kind, said))
        _, proven, answered = yield from self.receive_proven([answer])
        if not proven:
            raise AuthenticationError(f"{self.peer} could not prove that it knows the secret")
        return answered

    def check_sender(self, header: Header) -> Steps[None]:
        if header.kind == FrameKind.REJECT:
            body = yield from self.receive_body(header, [FrameKind.REJECT])
            code, reason = decode_reject(body)
            if code == RejectCode.AUTHENTICATION:
                raise AuthenticationError(f"{self.peer} refused {self._client}: {reason}")
            if code == RejectCode.AGAIN:
                raise ConnectAnewError(f"{self.peer} refused this client: {reason}")
            if code == RejectCode.DRAINING:  # it may start again
                raise not_yet(f"{self.peer} refused this client: {reason}")
            if code != RejectCode.VERSION:
                raise ConnectError(f"{self.peer} refused this client: {reason}")
        if header.version != PROTOCOL_VERSION or header.kind == FrameKind.REJECT:
            raise ProtocolVersionError(
                f"{self.peer} speaks version {header.version} of the protocol, this client "
                f"version {PROTOCOL_VERSION}: install the same release of ucxstore on both"
            )

    def stranger(self, head: ReceivedBytes) -> Exception:
        if self._heard_nothing_yet():
            # As one that is stopped, ends, or has too much to do; or a proxy of one not there yet.
            if head.ended and not head.data:
                return not_yet(f"{self.peer} does not answer: it {head.ended}")
            what = f"answered {head.data!r}"
            if head.ended:
                what += f" and {head.ended}"
            return NotAServerError(f"{self.peer} is not a ucxstore server: it {what}")
        return self.lost(head) if head.ended else self.broken(f"sent {head.data!r}")

    def broken(self, what: str) -> Exception:
        return NotAServerError(f"{self.peer} does not keep to the ucxstore handshake: it {what}")

    @property
    def _client(self) -> str:
        if not self.caveats:
            return "this client"
        return f"this client, which has a grant ({grants.describe(self.caveats)})"

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

    def receive_credentials(self) -> Steps[Bounds]:
        """Receive the client's PROOF, and go on with the key that it has proved to know."""
        before = self._transcript
        body = yield from self.receive(FrameKind.PROOF)
        mac, caveats = body[:MAC_BYTES], body[MAC_BYTES:]
        try:
            self._secret = grants.key_of(self._secret, caveats)
        except ValueError as error:
            yield from self.refuse(str(error))
        if not hmac.compare_digest(mac, self._mac(FrameKind.PROOF, before + caveats)):
            wrong = "the grant is of another secret, or was changed"
            yield from self.refuse(wrong if caveats else "the secret is wrong")
        # Of who has no grant, no caveat is read.
        try:
            bounds = grants.bounds_of(caveats)
        except ValueError as error:
            yield from self.refuse(str(error))
        if bounds.have_expired():
            now = grants.utc_text(time.time())
            yield from self.refuse(
                f"the grant has expired: it opened {bounds}; the server's clock says {now}"
            )
        return bounds

    def receive_asked(self, kinds: Collection[FrameKind]) -> Steps[tuple[FrameKind, bytes]]:
        """Receive what only a client that knows the secret can have said."""
        kind, proven, said = yield from self.receive_proven(kinds)
        if not proven:
            yield from self.refuse("the secret is wrong")
        return kind, said

    def refuse(self, reason: str) -> Steps[NoReturn]:
        yield Send(encode_reject(RejectCode.AUTHENTICATION, reason))
        raise AuthenticationError(f"{self.peer} has not proved that it may connect: {reason}")

    def stranger(self, head: ReceivedBytes) -> Exception:
        if head.ended:
            return self.lost(head)
        return self.broken(f"sent {head.data!r}")

    def broken(self, what: str) -> Exception:
        return ProtocolError(f"{self.peer} does not keep to the ucxstore handshake: it {what}")
