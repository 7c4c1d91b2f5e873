"""The two sides of the handshake against each other, in memory, and against everything else."""

import struct
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ucxstore.base.errors import (
    AuthenticationError,
    ConnectError,
    NotAServerError,
    ProtocolError,
    ProtocolVersionError,
    UcxStoreError,
)
from ucxstore.protocol.frames import (
    BODY_BYTES,
    HEADER_BYTES,
    MAC_BYTES,
    MAX_BODY_BYTES,
    MAX_REASON_BYTES,
    MAX_RECORD_BYTES,
    MAX_SOCKET_BYTES,
    PROTOCOL_VERSION,
    Attach,
    FrameKind,
    RejectCode,
    Welcome,
    decode_header,
    encode,
    encode_reject,
)
from ucxstore.protocol.handshake import (
    ClientHandshake,
    Keep,
    PeerWish,
    Receive,
    ReceivedBytes,
    Send,
    ServerHandshake,
    Steps,
    digest,
)

SERVER = "127.0.0.1:7400"
CLIENT = "127.0.0.1:50000"
CLIENT_ADDRESS = b"<the client's UCX address>"
SERVER_ADDRESS = b"<the server's UCX address>"
WELCOME = Welcome(b"t" * 16, b"i" * 16, False, socket=b"\0ucxstore-name", record=b"<set>")

NEWER = PROTOCOL_VERSION + 1

# Those of a Unix socket and of records are not in this conversation.
OTHERS = (
    FrameKind.REJECT,
    FrameKind.JOIN,
    FrameKind.JOINED,
    FrameKind.KEEP,
    FrameKind.KEPT,
    FrameKind.PEER,
    FrameKind.PEERED,
    FrameKind.ENCRYPT,
    FrameKind.ENCRYPTED,
)
KINDS = [kind for kind in FrameKind if kind not in OTHERS]

type Tamper = Callable[[bytes], bytes]
type Client = Side[tuple[Welcome, bytes]]
type Server = Side[bytes]


@dataclass
class Side[T]:
    """One side of the handshake: what is waiting to be read, what it wrote, how it ended."""

    steps: Steps[T]
    inbox: bytes = b""
    sent: list[bytes] = field(default_factory=list)
    result: T | None = None
    error: UcxStoreError | None = None
    _request: Send | Receive | None = None

    def __post_init__(self) -> None:
        self._advance(None)

    @property
    def ended(self) -> bool:
        return self._request is None

    def _advance(self, received: ReceivedBytes | None) -> None:
        try:
            self._request = next(self.steps) if received is None else self.steps.send(received)
        except StopIteration as stop:
            self._request, self.result = None, stop.value
        except UcxStoreError as error:
            self._request, self.error = None, error

    def run(self) -> Iterator[bytes]:
        """Go on as far as the inbox allows; yield each frame that is sent."""
        while self._request is not None:
            if isinstance(self._request, Send):
                frame = self._request.data
                self.sent.append(frame)
                self._advance(ReceivedBytes())
                yield frame
            elif len(self.inbox) >= self._request.size:
                size = self._request.size
                assert size <= MAX_BODY_BYTES
                data, self.inbox = self.inbox[:size], self.inbox[size:]
                self._advance(ReceivedBytes(data))
            else:
                return

    def hang_up(self, ended: str = "closed the connection") -> None:
        """Let the peer end the conversation after what is in the inbox."""
        list(self.run())
        while self._request is not None:
            data, self.inbox = self.inbox, b""
            self._advance(ReceivedBytes(data, ended))
            list(self.run())


def untouched(frame: bytes) -> bytes:
    return frame


def client_steps(secret: bytes) -> Steps[tuple[Welcome, bytes]]:
    """Take both steps of the client; return what it was granted, and the server's address."""
    handshake = ClientHandshake(secret, SERVER)
    welcome = yield from handshake.greet()
    return welcome, (yield from handshake.attach(CLIENT_ADDRESS))


def server_steps(secret: bytes, welcome: Welcome, address: bytes) -> Steps[bytes]:
    """Take all steps of the server; return the client's address."""
    handshake = ServerHandshake(secret, CLIENT)
    yield from handshake.authenticate()
    yield from handshake.welcome(welcome)
    attached = yield from handshake.asked()
    assert isinstance(attached, Attach)
    yield Send(handshake.ready(address))
    return attached.address


def client_side(secret: bytes = b"") -> Client:
    return Side(client_steps(secret))


def server_side(
    secret: bytes = b"", welcome: Welcome = WELCOME, address: bytes = SERVER_ADDRESS
) -> Server:
    return Side(server_steps(secret, welcome, address))


def converse(
    client: Client,
    server: Server,
    to_server: Tamper = untouched,
    to_client: Tamper = untouched,
) -> None:
    """Let both talk until neither has anything to say; then each sees the other's end."""
    moved = True
    while moved:
        moved = False
        for frame in client.run():
            server.inbox += to_server(frame)
            moved = True
        for frame in server.run():
            client.inbox += to_client(frame)
            moved = True
    client.hang_up()
    server.hang_up()


def talk(
    client_secret: bytes = b"s",
    server_secret: bytes = b"s",
    to_server: Tamper = untouched,
    to_client: Tamper = untouched,
) -> tuple[Client, Server]:
    """Let a client and a server talk; return both as they have ended."""
    client, server = client_side(client_secret), server_side(server_secret)
    converse(client, server, to_server, to_client)
    return client, server


def kind_of(frame: bytes) -> int:
    header = decode_header(frame[:HEADER_BYTES])
    assert header is not None
    return header.kind


def on(kind: FrameKind, change: Tamper) -> Tamper:
    return lambda frame: change(frame) if kind_of(frame) == kind else frame


def flip_body(position: int, mask: int = 1) -> Tamper:
    def flip(frame: bytes) -> bytes:
        at = position % (len(frame) - HEADER_BYTES) + HEADER_BYTES
        return frame[:at] + bytes([frame[at] ^ mask]) + frame[at + 1 :]

    return flip


def with_version(frame: bytes, version: int) -> bytes:
    return frame[:4] + struct.pack("<H", version) + frame[6:]


class TestAgreement:
    @pytest.mark.parametrize("secret", [b"", b"s", b"\0" * 100, bytes(range(1, 256)) * 9])
    @pytest.mark.parametrize("read_only", [False, True])
    @pytest.mark.parametrize(("shared", "volatile"), [(False, False), (True, False), (False, True)])
    def test_both_learn_of_each_other(
        self, secret: bytes, read_only: bool, shared: bool, volatile: bool
    ) -> None:
        address = b"a" * (MAX_BODY_BYTES - MAC_BYTES)
        name = b"n" * MAX_SOCKET_BYTES if shared else b""
        record = b"r" * MAX_RECORD_BYTES if volatile else b""
        granted = Welcome(b"T" * 16, b"I" * 16, read_only, shared, volatile, name, record)
        client, server = client_side(secret), server_side(secret, granted, address)
        converse(client, server)
        assert client.result == (granted, address)
        assert server.result == CLIENT_ADDRESS
        assert not client.inbox
        assert not server.inbox

    def test_the_sequence(self) -> None:
        client, server = talk()
        assert [kind_of(frame) for frame in client.sent] == [
            FrameKind.HELLO,
            FrameKind.PROOF,
            FrameKind.ATTACH,
        ]
        answers = [FrameKind.CHALLENGE, FrameKind.WELCOME, FrameKind.READY]
        assert [kind_of(frame) for frame in server.sent] == answers

    def test_no_two_are_alike(self) -> None:
        conversations = []
        for _ in range(2):
            client, server = talk()
            conversations.append(client.sent[:2] + server.sent[:1])
        assert not set(conversations[0]) & set(conversations[1])

    def test_the_secret_is_not_on_the_wire(self) -> None:
        secret = b"correct horse battery staple"
        client, server = talk(secret, secret)
        assert secret not in b"".join(client.sent + server.sent)


class TestAuthentication:
    def test_wrong_secret(self) -> None:
        client, server = talk(b"wrong", b"right")
        assert isinstance(client.error, AuthenticationError)
        assert f"{SERVER} refused this client: the secret is wrong" in str(client.error)
        assert isinstance(server.error, AuthenticationError)
        assert CLIENT in str(server.error)
        assert_no_address_was_sent(client, server)

    def test_client_without_a_secret(self) -> None:
        client, server = talk(b"", b"right")
        assert isinstance(client.error, AuthenticationError)
        assert f"{SERVER} requires a secret" in str(client.error)
        assert_no_address_was_sent(client, server)

    def test_a_client_with_a_secret_takes_no_server_without(self) -> None:
        client, server = talk(b"mine", b"")
        assert isinstance(client.error, AuthenticationError)
        assert f"{SERVER} has no secret" in str(client.error)
        assert_no_address_was_sent(client, server)

    def test_a_server_that_only_says_it_needs_the_secret_is_found_out(self) -> None:
        # It accepts any PROOF and answers with a MAC of another secret.
        client, server = client_side(b"mine"), server_side(b"theirs")
        [hello] = client.run()
        server.inbox += hello
        client.inbox += next(server.run())
        assert [kind_of(frame) for frame in client.run()] == [FrameKind.PROOF]
        size = MAC_BYTES + 16 + 16 + 4 + 10
        client.inbox += encode(FrameKind.WELCOME, b"\1" * size)
        list(client.run())
        assert isinstance(client.error, AuthenticationError)
        assert "could not prove" in str(client.error)
        assert_no_address_was_sent(client, server)

    def test_a_proof_cannot_be_reflected(self) -> None:
        client = client_side(b"mine")
        [hello] = client.run()
        # "Server" that echoes the client's own nonce and then its own proof.
        client.inbox += encode(FrameKind.CHALLENGE, struct.pack("<I", 1) + hello[HEADER_BYTES:])
        [proof] = client.run()
        rest = b"t" * 16 + b"i" * 16 + b"\0" * 4 + b"socket"
        client.inbox += encode(FrameKind.WELCOME, proof[HEADER_BYTES:] + rest)
        list(client.run())
        assert isinstance(client.error, AuthenticationError)

    def test_a_proof_cannot_be_replayed(self) -> None:
        client, _ = talk()
        replayed = server_side(b"s")
        replayed.inbox += b"".join(client.sent)
        replayed.hang_up()
        assert isinstance(replayed.error, AuthenticationError)
        assert kind_of(replayed.sent[-1]) == FrameKind.REJECT
        assert SERVER_ADDRESS not in b"".join(replayed.sent)

    @pytest.mark.parametrize("changed", [FrameKind.HELLO, FrameKind.PROOF, FrameKind.ATTACH])
    def test_a_server_makes_a_worker_only_for_a_client_that_it_knows(
        self, changed: FrameKind
    ) -> None:
        _, server = talk(to_server=on(changed, flip_body(0)))
        assert isinstance(server.error, AuthenticationError)
        assert SERVER_ADDRESS not in b"".join(server.sent)

    def test_a_grant_is_sent_only_to_a_client_that_is_known(self) -> None:
        server = server_side(b"right")
        converse(client_side(b"wrong"), server)
        assert [kind_of(frame) for frame in server.sent] == [FrameKind.CHALLENGE, FrameKind.REJECT]


class TestOtherServersOfTheSecret:
    """Somebody in the middle has what another server of the same secret has said."""

    def test_answers_cannot_be_replayed(self) -> None:
        client, server = talk()
        assert client.result is not None
        again = client_side(b"s")
        list(again.run())
        again.inbox += b"".join(server.sent)
        again.hang_up()
        assert isinstance(again.error, AuthenticationError)
        assert CLIENT_ADDRESS not in b"".join(again.sent)

    @pytest.mark.parametrize("kind", [FrameKind.CHALLENGE, FrameKind.WELCOME, FrameKind.READY])
    def test_no_answer_can_be_put_in_place_of_the_right_one(self, kind: FrameKind) -> None:
        other = server_side(b"s", WELCOME._replace(identity=b"O" * 16), b"another address")
        converse(client_side(b"s"), other)
        [said] = [frame for frame in other.sent if kind_of(frame) == kind]
        client, _ = talk(to_client=on(kind, lambda _: said))
        assert client.result is None
        assert isinstance(client.error, AuthenticationError)
        assert (CLIENT_ADDRESS in b"".join(client.sent)) == (kind == FrameKind.READY)

    def test_an_identity_cannot_be_put_in_place_of_the_right_one(self) -> None:
        def pretend(frame: bytes) -> bytes:
            at = HEADER_BYTES + MAC_BYTES + 16
            assert frame[at : at + 16] == WELCOME.identity
            return frame[:at] + b"O" * 16 + frame[at + 16 :]

        client, _ = talk(to_client=on(FrameKind.WELCOME, pretend))
        assert isinstance(client.error, AuthenticationError)


class TestTampering:
    """Somebody in the middle, who does not know the secret."""

    def test_the_secret_cannot_be_talked_away(self) -> None:
        no_secret = on(FrameKind.CHALLENGE, flip_body(0))
        client, server = talk(to_client=no_secret)
        assert isinstance(client.error, AuthenticationError)
        assert_no_address_was_sent(client, server)

    @given(st.data())
    def test_any_bit_of_any_frame_matters(self, data: st.DataObject) -> None:
        kind = data.draw(st.sampled_from(KINDS))
        change = on(kind, flip_body(data.draw(st.integers(0, 1000)), 1 << data.draw(bits)))
        client, server = talk(to_server=change, to_client=change)
        assert client.result is None
        assert isinstance(client.error, AuthenticationError)
        if (
            kind == FrameKind.READY
        ):  # the server's last word: only the client can tell what is wrong
            assert server.result == CLIENT_ADDRESS
            return
        assert isinstance(server.error, AuthenticationError | ConnectError)
        assert SERVER_ADDRESS not in b"".join(server.sent)
        if kind != FrameKind.ATTACH:
            assert CLIENT_ADDRESS not in b"".join(client.sent)
        if kind in (FrameKind.HELLO, FrameKind.CHALLENGE, FrameKind.PROOF):
            assert WELCOME.socket not in b"".join(server.sent)

    @pytest.mark.parametrize("kind", [FrameKind.ATTACH, FrameKind.READY])
    def test_no_byte_of_a_ucx_address_can_be_changed(self, kind: FrameKind) -> None:
        address = CLIENT_ADDRESS if kind == FrameKind.ATTACH else SERVER_ADDRESS
        for position in range(len(address)):
            change = on(kind, flip_body(MAC_BYTES + position))
            client, server = talk(to_server=change, to_client=change)
            refused = server if kind == FrameKind.ATTACH else client
            assert refused.result is None
            assert isinstance(refused.error, AuthenticationError)

    @pytest.mark.parametrize("kind", [FrameKind.ATTACH, FrameKind.READY])
    @pytest.mark.parametrize("change", [lambda f: f[:-1], lambda f: f + b"x"])
    def test_a_ucx_address_cannot_be_cut_or_made_longer(
        self, kind: FrameKind, change: Tamper
    ) -> None:
        def resized(frame: bytes) -> bytes:
            body = change(frame)[HEADER_BYTES:]
            return frame[: HEADER_BYTES - 4] + struct.pack("<I", len(body)) + body

        client, server = talk(to_server=on(kind, resized), to_client=on(kind, resized))
        refused = server if kind == FrameKind.ATTACH else client
        assert refused.result is None
        assert isinstance(refused.error, AuthenticationError)

    @pytest.mark.parametrize("kind", [FrameKind.ATTACH, FrameKind.READY])
    def test_a_ucx_address_of_another_session_is_refused(self, kind: FrameKind) -> None:
        """With the MAC that it had there, of the same secret."""
        earlier_client, earlier_server = client_side(b"s"), server_side(b"s")
        converse(earlier_client, earlier_server)
        earlier = earlier_client if kind == FrameKind.ATTACH else earlier_server
        replayed = on(kind, lambda _: earlier.sent[-1])
        client, server = talk(to_server=replayed, to_client=replayed)
        refused = server if kind == FrameKind.ATTACH else client
        assert refused.result is None
        assert isinstance(refused.error, AuthenticationError)

    @pytest.mark.parametrize("kind", [FrameKind.CHALLENGE, FrameKind.WELCOME])
    def test_a_flag_cannot_be_slipped_in(self, kind: FrameKind) -> None:
        position = 3 if kind == FrameKind.CHALLENGE else MAC_BYTES + 32
        client, _ = talk(to_client=on(kind, flip_body(position, 2)))
        assert isinstance(client.error, AuthenticationError)


class TestVersions:
    def test_a_newer_client_is_told(self) -> None:
        client, server = talk(b"", b"", to_server=lambda frame: with_version(frame, NEWER))
        assert isinstance(server.error, ProtocolVersionError)
        for word in (CLIENT, f"version {NEWER}", f"version {PROTOCOL_VERSION}"):
            assert word in str(server.error)
        assert isinstance(client.error, ProtocolVersionError)  # by the server's REJECT
        assert SERVER in str(client.error)

    @pytest.mark.parametrize(
        "answer",
        [
            with_version(encode_reject(RejectCode.VERSION, "no"), NEWER),
            with_version(encode(FrameKind.CHALLENGE, b"\0" * 36), NEWER),
            b"UCXS" + struct.pack("<HHI", NEWER, 99, 2**32 - 1),
        ],
    )
    def test_a_newer_server_is_named_with_both_versions(self, answer: bytes) -> None:
        client = client_side()
        client.inbox += answer
        list(client.run())
        assert isinstance(client.error, ProtocolVersionError)
        for word in (SERVER, f"version {NEWER}", f"version {PROTOCOL_VERSION}", "install"):
            assert word in str(client.error)

    def test_a_newer_clients_body_is_not_read(self) -> None:
        server = server_side()
        server.inbox += b"UCXS" + struct.pack("<HHI", NEWER, FrameKind.HELLO, 2**32 - 1)
        [reject] = server.run()
        assert kind_of(reject) == FrameKind.REJECT
        assert isinstance(server.error, ProtocolVersionError)


class TestRejection:
    @pytest.mark.parametrize("when", range(3))
    @pytest.mark.parametrize(
        ("code", "error"),
        [
            (RejectCode.BUSY, ConnectError),
            (RejectCode.DRAINING, ConnectError),
            (RejectCode.FAILED, ConnectError),
            (RejectCode.AUTHENTICATION, AuthenticationError),
            (RejectCode.VERSION, ProtocolVersionError),
        ],
    )
    def test_at_any_point(self, when: int, code: RejectCode, error: type[Exception]) -> None:
        kind = (FrameKind.CHALLENGE, FrameKind.WELCOME, FrameKind.READY)[when]
        client, _ = talk(to_client=on(kind, lambda _: encode_reject(code, "go away")))
        assert type(client.error) is error
        assert SERVER in str(client.error)
        assert code == RejectCode.VERSION or "go away" in str(client.error)

    def test_a_code_of_the_future_is_still_a_refusal(self) -> None:
        client = client_side()
        client.inbox += encode(
            FrameKind.REJECT, struct.pack("<H", 999) + b"mercury is in retrograde"
        )
        list(client.run())
        assert type(client.error) is ConnectError
        assert "mercury" in str(client.error)

    def test_a_reason_cannot_play_with_the_terminal(self) -> None:
        client = client_side()
        client.inbox += encode_reject(RejectCode.BUSY, "\x1b[2J\r\n\0" + "ä" * 10_000)
        list(client.run())
        assert client.error is not None
        assert str(client.error).isprintable()
        assert len(str(client.error)) < 2 * MAX_REASON_BYTES


class TestStrangers:
    @pytest.mark.parametrize(
        "answer",
        [
            b"HTTP/1.1 400 Bad Request\r\n\r\n",
            b"SSH-2.0-OpenSSH_9.6\r\n",
            b"UCXT" + b"\0" * 100,
            b"\0" * 100,
        ],
    )
    def test_a_client_names_the_first_bytes(self, answer: bytes) -> None:
        client = client_side()
        client.inbox += answer
        client.hang_up()
        assert isinstance(client.error, NotAServerError)
        assert SERVER in str(client.error)
        assert repr(answer[:HEADER_BYTES]) in str(client.error)

    @pytest.mark.parametrize("ended", ["closed the connection", "sent nothing within 5 s"])
    @pytest.mark.parametrize("answer", [b"220 ", b"UCXS"])
    def test_a_client_names_how_it_ended(self, answer: bytes, ended: str) -> None:
        client = client_side()
        client.inbox += answer
        client.hang_up(ended)
        assert isinstance(client.error, NotAServerError)
        for word in (SERVER, ended, repr(answer)):
            assert word in str(client.error)

    @pytest.mark.parametrize("ended", ["closed the connection", "sent nothing within 5 s"])
    def test_one_that_says_nothing_may_be_a_server(self, ended: str) -> None:
        client = client_side()
        client.hang_up(ended)
        assert type(client.error) is ConnectError
        assert str(client.error) == f"{SERVER} does not answer: it {ended}"

    def test_a_server_that_is_gone_half_way_was_one(self) -> None:
        client, _ = talk(to_client=on(FrameKind.WELCOME, lambda frame: frame[:30]))
        assert type(client.error) is ConnectError
        assert f"{SERVER} closed the connection in the middle" in str(client.error)

    @pytest.mark.parametrize("data", [b"GET / HTTP/1.1\r\nHost: x\r\n\r\n", b"\x16\x03\x01" * 9])
    def test_a_server_answers_a_stranger_nothing(self, data: bytes) -> None:
        server = server_side()
        server.inbox += data
        server.hang_up()
        assert isinstance(server.error, ProtocolError)
        assert CLIENT in str(server.error)
        assert not server.sent

    @pytest.mark.parametrize("kind", KINDS)
    @pytest.mark.parametrize("too", ["short", "long", "huge"])
    def test_a_length_is_checked_before_the_body_is_read(self, kind: FrameKind, too: str) -> None:
        least, greatest = BODY_BYTES[kind]
        length = {"short": least - 1, "long": greatest + 1, "huge": 2**32 - 1}[too]
        if length < 0:
            return
        header = b"UCXS" + struct.pack("<HHI", PROTOCOL_VERSION, kind, length)
        client, server = client_side(b"s"), server_side(b"s")
        change = on(kind, lambda _: header)
        converse(client, server, to_server=change, to_client=change)
        error = (
            server.error
            if kind in (FrameKind.HELLO, FrameKind.PROOF, FrameKind.ATTACH)
            else client.error
        )
        assert isinstance(error, NotAServerError | ProtocolError)
        assert f"sent a {kind.name} of {length} bytes" in str(error)

    def test_a_frame_out_of_turn(self) -> None:
        client, server = client_side(), server_side()
        ready = encode(FrameKind.READY, bytes(MAC_BYTES) + SERVER_ADDRESS)
        converse(client, server, to_client=on(FrameKind.WELCOME, lambda _: ready))
        assert isinstance(client.error, NotAServerError)
        assert f"{SERVER} does not keep to the ucxstore handshake" in str(client.error)
        assert "kind 6 in place of WELCOME" in str(client.error)


class Ending(NamedTuple):
    """What may stand in place of the last two frames: what the client asks, the server's answer."""

    ask: Callable[[ClientHandshake], Steps[Any]]
    answer: Callable[[ServerHandshake], bytes]
    kinds: tuple[FrameKind, FrameKind]

    def client(self, secret: bytes) -> "Side[Any]":
        def steps() -> Steps[Any]:
            handshake = ClientHandshake(secret, SERVER)
            yield from handshake.greet()
            return (yield from self.ask(handshake))

        return Side(steps())

    def server(self, secret: bytes) -> "Side[Any]":
        """Return one that takes the usual frames, too."""

        def steps() -> Steps[object]:
            handshake = ServerHandshake(secret, CLIENT)
            yield from handshake.authenticate()
            yield from handshake.welcome(WELCOME)
            asked = yield from handshake.asked()
            is_usual = isinstance(asked, Attach)
            yield Send(handshake.ready(SERVER_ADDRESS) if is_usual else self.answer(handshake))
            return asked

        return Side(steps())


RECORD = Ending(
    lambda client: client.keep(b"old", b"new"),
    lambda server: server.kept(b"kept"),
    (FrameKind.KEEP, FrameKind.KEPT),
)
PEER = Ending(ClientHandshake.peer, ServerHandshake.peered, (FrameKind.PEER, FrameKind.PEERED))


class TestOtherEndings:
    """A client that wants a record to be kept, and another server."""

    @pytest.mark.parametrize("secret", [b"", b"s"])
    @pytest.mark.parametrize(
        ("ending", "asked", "answer"),
        [(RECORD, Keep(digest(b"old"), b"new"), b"kept"), (PEER, PeerWish(), None)],
        ids=["record", "peer"],
    )
    def test_it_is_answered(
        self, ending: Ending, asked: object, answer: object, secret: bytes
    ) -> None:
        client, server = ending.client(secret), ending.server(secret)
        converse(client, server)
        assert server.result == asked
        assert client.ended
        assert client.error is None
        assert client.result == answer
        assert digest(b"old") != digest(b"new")

    @pytest.mark.parametrize("ending", [RECORD, PEER], ids=["record", "peer"])
    def test_a_server_takes_the_usual_frames_too(self, ending: Ending) -> None:
        client, server = client_side(b"s"), ending.server(b"s")
        converse(client, server)
        assert server.result == Attach(CLIENT_ADDRESS)
        assert client.result == (WELCOME, SERVER_ADDRESS)

    @pytest.mark.parametrize("ending", [RECORD, PEER], ids=["record", "peer"])
    @given(st.data())
    def test_any_bit_matters(self, ending: Ending, data: st.DataObject) -> None:
        kind = data.draw(st.sampled_from(ending.kinds))
        change = on(kind, flip_body(data.draw(st.integers(0, 1000)), 1 << data.draw(bits)))
        client, server = ending.client(b"s"), ending.server(b"s")
        converse(client, server, to_server=change, to_client=change)
        assert isinstance(client.error, AuthenticationError)
        if kind is ending.kinds[0]:
            assert isinstance(server.error, AuthenticationError)


bits = st.integers(0, 7)
frames = st.one_of(
    st.binary(max_size=80),
    st.builds(
        lambda version, kind, length, body: (
            b"UCXS" + struct.pack("<HHI", version, kind, length) + body
        ),
        st.sampled_from([PROTOCOL_VERSION, 0, 1, PROTOCOL_VERSION - 1, 65535]),
        st.integers(0, max(FrameKind) + 2),
        st.one_of(st.integers(0, 200), st.integers(0, 2**32 - 1)),
        st.binary(max_size=200),
    ),
    st.sampled_from(
        [FrameKind.CHALLENGE, FrameKind.HELLO, FrameKind.PROOF, FrameKind.READY]
    ).flatmap(
        lambda kind: st.binary(min_size=BODY_BYTES[kind][0], max_size=BODY_BYTES[kind][0]).map(
            lambda body: encode(kind, body)
        )
    ),
    st.binary(min_size=MAC_BYTES + 38, max_size=MAC_BYTES + 38 + MAX_SOCKET_BYTES).map(
        lambda body: encode(FrameKind.WELCOME, body)
    ),
    st.text(max_size=50).map(lambda text: encode_reject(RejectCode.BUSY, text)),
)


@given(st.lists(frames, max_size=5), st.sampled_from([b"", b"s"]))
def test_a_client_survives_anything_and_keeps_its_address(
    answers: list[bytes], secret: bytes
) -> None:
    client = client_side(secret)
    client.inbox += b"".join(answers)
    client.hang_up()
    assert isinstance(client.error, ConnectError)
    assert str(client.error).startswith(SERVER)
    assert CLIENT_ADDRESS not in b"".join(client.sent)


@given(st.lists(frames, max_size=5), st.sampled_from([b"", b"s"]))
def test_a_server_survives_anything_and_keeps_its_address(
    messages: list[bytes], secret: bytes
) -> None:
    server = server_side(secret)
    server.inbox += b"".join(messages)
    server.hang_up()
    assert isinstance(server.error, ProtocolError | ConnectError)
    assert CLIENT in str(server.error)
    assert SERVER_ADDRESS not in b"".join(server.sent)


@given(st.data(), st.sampled_from([b"", b"s"]))
def test_mutated_conversations_end_in_our_errors(data: st.DataObject, secret: bytes) -> None:
    def mutate(frame: bytes) -> bytes:
        match data.draw(st.sampled_from(["keep", "keep", "cut", "flip", "twice", "drop", "grow"])):
            case "cut":
                return frame[: data.draw(st.integers(0, len(frame)))]
            case "flip":
                at = data.draw(st.integers(0, len(frame) - 1))
                return frame[:at] + bytes([frame[at] ^ 1 << data.draw(bits)]) + frame[at + 1 :]
            case "twice":
                return frame + frame
            case "drop":
                return b""
            case "grow":
                return frame + data.draw(st.binary(max_size=20))
        return frame

    client, server = talk(secret, secret, to_server=mutate, to_client=mutate)
    assert client.ended
    assert server.ended
    assert client.error is None or isinstance(client.error, ConnectError)
    assert server.error is None or isinstance(server.error, ProtocolError | ConnectError)
    if client.result is not None:
        assert client.result == (WELCOME, SERVER_ADDRESS)
        assert server.result == CLIENT_ADDRESS


def assert_no_address_was_sent(client: Client, server: Server) -> None:
    assert CLIENT_ADDRESS not in b"".join(client.sent)
    assert SERVER_ADDRESS not in b"".join(server.sent)
