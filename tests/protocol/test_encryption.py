"""The keys of a session: agreed on by both sides, and by nobody who changes a bit."""

import hashlib

import pytest
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from tests.protocol.test_handshake import (
    CLIENT,
    CLIENT_ADDRESS,
    SERVER,
    SERVER_ADDRESS,
    WELCOME,
    Side,
    Tamper,
    converse,
    flip_body,
    kind_of,
    on,
    server_side,
    untouched,
)
from ucxstore import _core as core
from ucxstore.base import grants
from ucxstore.base.errors import AuthenticationError, ConnectError, ProtocolError
from ucxstore.protocol.frames import MAC_BYTES, FrameKind
from ucxstore.protocol.handshake import ClientHandshake, PeerWish, Send, ServerHandshake, Steps
from ucxstore.protocol.session_keys import KeyAgreement, SessionKeys

SECRET = b"correct horse battery staple"


class OthersAgreement:
    """The same by a library that is not ours."""

    def __init__(self) -> None:
        self._key = X25519PrivateKey.generate()
        self.public_key = self._key.public_key().public_bytes_raw()

    def secret_with(self, other: bytes) -> bytes:
        return self._key.exchange(X25519PublicKey.from_public_bytes(other))


type Way = type[core.Agreement] | type[OthersAgreement]


def client_steps(
    make_agreement: Way, *, peer: bool, encrypt: bool | None, secret: bytes = SECRET
) -> Steps[SessionKeys | None]:
    handshake = ClientHandshake(secret, SERVER, encrypt)
    yield from handshake.greet()
    keys = None
    if handshake.encrypts:
        agreement: KeyAgreement = make_agreement()
        keys = yield from handshake.agree(agreement)
    if peer:
        yield from handshake.peer()
    else:
        assert (yield from handshake.attach(CLIENT_ADDRESS)) == SERVER_ADDRESS
    return keys


def server_steps(make_agreement: Way | None) -> Steps[SessionKeys | None]:
    handshake = ServerHandshake(SECRET, CLIENT, make_agreement)
    yield from handshake.authenticate()
    yield from handshake.welcome(WELCOME)
    asked = yield from handshake.asked()
    if isinstance(asked, PeerWish):
        yield Send(handshake.peered())
    else:
        yield Send(handshake.ready(SERVER_ADDRESS))
    return handshake.keys


def talk(
    client: Way = core.Agreement,
    server: Way | None = core.Agreement,
    *,
    peer: bool = False,
    encrypt: bool | None = None,
    secret: bytes = SECRET,
    to_server: Tamper = untouched,
    to_client: Tamper = untouched,
) -> tuple[Side[SessionKeys | None], Side[SessionKeys | None]]:
    one = Side(client_steps(client, peer=peer, encrypt=encrypt, secret=secret))
    other = Side(server_steps(server))
    converse(one, other, to_server, to_client)
    return one, other


@pytest.mark.parametrize("peer", [False, True])
@pytest.mark.parametrize("client", [core.Agreement, OthersAgreement])
@pytest.mark.parametrize("server", [core.Agreement, OthersAgreement])
def test_both_have_the_same_keys(client: Way, server: Way, peer: bool) -> None:
    one, other = talk(client, server, peer=peer)
    assert one.result is not None
    assert other.result == one.result.turned
    assert len({*one.result}) == 2
    assert {len(key) for key in one.result} == {32}
    again, _ = talk(client, server, peer=peer)
    assert again.result is not None
    assert not {*again.result} & {*one.result}


def test_are_what_hkdf_makes_of_it() -> None:
    agreed, transcript = b"a" * 32, b"all that was said"
    keys = SessionKeys.of_client(agreed, SECRET, transcript)
    for key, info in zip(keys, ("client to server", "server to client"), strict=True):
        salt = hashlib.sha256(transcript).digest()
        hkdf = HKDF(hashes.SHA256(), 32, salt, f"ucxstore encryption: {info}".encode())
        assert hkdf.derive(agreed + SECRET) == key


def test_need_the_secret_and_not_what_was_sent_alone() -> None:
    one, other = talk(secret=b"another")
    assert isinstance(one.error, AuthenticationError)
    assert one.result is other.result is None


def test_a_grant_does() -> None:
    one, other = talk(secret=grants.narrow(SECRET, grants.caveats_of(None, read_only=True)))
    assert one.error is None
    assert one.result is not None
    assert other.result == one.result.turned


@pytest.mark.parametrize("kind", [FrameKind.CHALLENGE, FrameKind.ENCRYPT, FrameKind.ENCRYPTED])
@pytest.mark.parametrize("position", [0, MAC_BYTES, -1])
def test_none_are_had_where_a_bit_was_changed(kind: FrameKind, position: int) -> None:
    flip = on(kind, flip_body(position))
    one, other = talk(to_server=flip, to_client=flip)
    assert isinstance(one.error, ConnectError)
    assert other.error is not None
    assert one.result is other.result is None


def test_an_offer_cannot_be_taken_away() -> None:
    """The bit of the CHALLENGE that says so, cleared on its way."""
    one, other = talk(to_client=on(FrameKind.CHALLENGE, flip_body(0, mask=2)))
    assert isinstance(one.error, AuthenticationError)
    assert isinstance(other.error, AuthenticationError)


def test_a_client_that_must_encrypt_takes_no_server_that_does_not() -> None:
    one, _ = talk(server=None, encrypt=True)
    assert isinstance(one.error, ConnectError)
    assert f"{SERVER} does not encrypt" in str(one.error)
    assert [kind_of(frame) for frame in one.sent] == [FrameKind.HELLO]


def test_a_client_that_must_not_encrypt_takes_no_server_that_does() -> None:
    one, _ = talk(encrypt=False)
    assert isinstance(one.error, ConnectError)
    assert f"{SERVER} encrypts" in str(one.error)


@pytest.mark.parametrize("peer", [False, True])
def test_a_server_that_encrypts_serves_nobody_who_does_not(peer: bool) -> None:
    def steps() -> Steps[None]:
        handshake = ClientHandshake(SECRET, SERVER)
        yield from handshake.greet()
        if peer:
            yield from handshake.peer()
        else:
            yield from handshake.attach(CLIENT_ADDRESS)

    client, server = Side(steps()), Side(server_steps(core.Agreement))
    converse(client, server)
    assert isinstance(client.error, AuthenticationError)
    assert "encrypts what goes over a network" in str(client.error)
    assert isinstance(server.error, AuthenticationError)
    assert SERVER_ADDRESS not in b"".join(server.sent)


def test_no_agreement_where_the_server_does_not_encrypt() -> None:
    def steps() -> Steps[SessionKeys]:
        handshake = ClientHandshake(SECRET, SERVER)
        yield from handshake.greet()
        return (yield from handshake.agree(core.Agreement()))

    client, server = Side(steps()), Side(server_steps(None))
    converse(client, server)
    assert isinstance(client.error, AuthenticationError)
    assert isinstance(server.error, AuthenticationError)


def test_a_key_that_tells_the_secret_is_refused() -> None:
    with pytest.raises(ConnectError, match="X25519"):
        core.Agreement().secret_with(bytes(32))


class TestSealedStream:
    """The frames between servers, opened by a library that is not ours."""

    KEYS = SessionKeys(bytes(range(32)), bytes(range(32, 64)))

    def test_is_aes_gcm_under_the_frames_number(self) -> None:
        stream = core.SealedStream(*self.KEYS)
        for number in range(3):
            sealed = stream.seal(b"frame %d" % number)
            counted = number.to_bytes(8, "little")
            assert sealed[:8] == counted
            beside = (1).to_bytes(8, "little") + bytes(8)
            opened = AESGCM(self.KEYS.send).decrypt(counted + bytes(4), sealed[8:], beside)
            assert opened == b"frame %d" % number

    def test_opens_each_frame_once_and_in_order(self) -> None:
        one, other = core.SealedStream(*self.KEYS), core.SealedStream(*self.KEYS.turned)
        frames = [one.seal(bytes([number])) for number in range(4)]
        assert other.open(frames[0]) == b"\0"
        for wrong in (frames[0], frames[1][:-1], b"", b"x" * 100, one.seal(b"")[:24]):
            with pytest.raises(ProtocolError):
                core.SealedStream(*self.KEYS.turned).open(frames[2])
            with pytest.raises(ProtocolError):
                other.open(wrong)

    def test_takes_no_frame_of_its_own(self) -> None:
        one = core.SealedStream(*self.KEYS)
        with pytest.raises(ProtocolError):
            one.open(one.seal(b"frame"))


def test_a_server_that_does_not_encrypt_speaks_as_before() -> None:
    server = server_side(SECRET)
    one = Side(client_steps(core.Agreement, peer=False, encrypt=None))
    converse(one, server)
    assert one.error is None
    assert one.result is None
    assert [kind_of(frame) for frame in one.sent] == [
        FrameKind.HELLO,
        FrameKind.PROOF,
        FrameKind.ATTACH,
    ]
