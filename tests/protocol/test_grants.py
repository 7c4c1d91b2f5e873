"""The handshake with a grant: it is proved and never sent, and no other caveats are believed."""

import struct
import time

import pytest

from tests.protocol.test_handshake import (
    CLIENT_ADDRESS,
    SERVER,
    SERVER_ADDRESS,
    WELCOME,
    Client,
    Server,
    Side,
    assert_no_address_was_sent,
    client_side,
    converse,
    flip_body,
    kind_of,
    on,
    server_side,
)
from ucxstore.base import grants
from ucxstore.base.errors import AuthenticationError
from ucxstore.base.grants import Bounds, Credentials
from ucxstore.base.secret import Secret
from ucxstore.protocol.frames import (
    HEADER_BYTES,
    MAC_BYTES,
    Attach,
    FrameKind,
    RejectCode,
    decode_reject,
)
from ucxstore.protocol.handshake import Send, ServerHandshake, Steps

SECRET = b"s"


def granted(prefix: str = "run-17/", *, read_only: bool = True) -> bytes:
    return Secret(SECRET).grant(prefix, read_only=read_only).reveal()


def with_caveats(caveats: bytes, secret: bytes = SECRET) -> bytes:
    """Return the grant of any caveats, properly chained."""
    return grants.text_of(Credentials(grants.key_of(secret, caveats), caveats))


def forged(text: bytes, caveats: bytes) -> bytes:
    """Return a grant's key with other caveats."""
    return grants.text_of(Credentials(grants.credentials_of(text).key, caveats))


def caveat(kind: int, body: bytes = b"") -> bytes:
    return struct.pack("<BH", kind, len(body)) + body


def told_steps(secret: bytes) -> Steps[tuple[Bounds, bytes]]:
    handshake = ServerHandshake(secret, "the client")
    bounds = yield from handshake.authenticate()
    yield from handshake.welcome(WELCOME)
    attached = yield from handshake.asked()
    assert isinstance(attached, Attach)
    yield Send(handshake.ready(SERVER_ADDRESS))
    return bounds, attached.address


def refusal(client: Client, server: Server) -> str:
    """Return what the client raises, once it was refused and nothing was given away."""
    assert isinstance(client.error, AuthenticationError)
    assert isinstance(server.error, AuthenticationError)
    assert_no_address_was_sent(client, server)
    assert [kind_of(frame) for frame in server.sent] == [FrameKind.CHALLENGE, FrameKind.REJECT]
    code, _ = decode_reject(server.sent[-1][HEADER_BYTES:])
    assert code == RejectCode.AUTHENTICATION
    assert SERVER in str(client.error)
    return str(client.error)


def test_both_sides_go_on_with_its_key() -> None:
    client, server = client_side(granted()), Side(told_steps(SECRET))
    converse(client, server)
    assert server.result == (Bounds("run-17/", True), CLIENT_ADDRESS)
    assert client.result == (WELCOME, SERVER_ADDRESS)


def test_the_secret_itself_has_no_bounds() -> None:
    client, server = client_side(SECRET), Side(told_steps(SECRET))
    converse(client, server)
    assert server.result == (grants.ALL, CLIENT_ADDRESS)


def test_it_is_not_on_the_wire() -> None:
    text = granted()
    client, server = client_side(text), server_side(SECRET)
    converse(client, server)
    assert client.result is not None
    key, caveats = grants.credentials_of(text)
    sent = b"".join(client.sent + server.sent)
    assert key not in sent
    assert caveats in sent
    assert text not in sent


def test_no_server_is_believed_that_only_repeats_the_caveats() -> None:
    """One that does not know the secret cannot make the key."""
    client, server = client_side(granted()), server_side(b"another")
    frames = client.run()
    server.inbox += next(frames)
    client.inbox += next(server.run())
    [proof] = client.run()
    impostor = server_side(grants.credentials_of(proof[HEADER_BYTES + MAC_BYTES :]).key)
    impostor.inbox += client.sent[0] + proof
    list(impostor.run())
    client.inbox += b"".join(impostor.sent[1:])
    client.hang_up()
    assert isinstance(client.error, AuthenticationError)
    assert CLIENT_ADDRESS not in b"".join(client.sent)


@pytest.mark.parametrize(
    "caveats",
    [
        pytest.param(caveat(1, b"run-17/"), id="the last one left out"),
        pytest.param(caveat(2), id="the first one left out"),
        pytest.param(b"", id="all left out"),
        pytest.param(caveat(1, b"run-1/") + caveat(2), id="another prefix"),
        pytest.param(caveat(2) + caveat(1, b"run-17/"), id="turned round"),
        pytest.param(caveat(1, b"run-17/") + caveat(2) + caveat(2), id="one more"),
        pytest.param(caveat(1, b"run-17/") + caveat(2) + caveat(9, b"x"), id="an unknown one more"),
    ],
)
def test_other_caveats_than_its_own(caveats: bytes) -> None:
    text = granted()
    if caveats:
        client = client_side(forged(text, caveats))
    else:  # the key as if it were the secret
        client = client_side(grants.credentials_of(text).key.strip() or b"k")
    server = server_side(SECRET)
    converse(client, server)
    message = refusal(client, server)
    assert ("is of another secret, or was changed" if caveats else "secret is wrong") in message


@pytest.mark.parametrize("position", [0, MAC_BYTES, MAC_BYTES + 5, -1])
def test_caveats_that_are_changed_on_the_way(position: int) -> None:
    client, server = client_side(granted()), server_side(SECRET)
    converse(client, server, to_server=on(FrameKind.PROOF, flip_body(position)))
    assert isinstance(client.error, AuthenticationError)
    assert isinstance(server.error, AuthenticationError)
    assert_no_address_was_sent(client, server)


def test_one_of_another_secret() -> None:
    client, server = client_side(granted()), server_side(b"another")
    converse(client, server)
    message = refusal(client, server)
    assert "has a grant ('run-17/', read-only)" in message
    assert "of another secret" in message


def test_an_unknown_caveat_may_forbid_anything() -> None:
    text = with_caveats(caveat(1, b"run-17/") + caveat(77, b"only on Sundays"))
    client, server = client_side(text), server_side(SECRET)
    converse(client, server)
    assert "a caveat of an unknown kind, 77" in refusal(client, server)


@pytest.mark.parametrize("prefix", [b"", b"/", b"../", b"a", b"a/../", b"\xff/"])
def test_a_prefix_that_is_no_folder(prefix: bytes) -> None:
    client, server = client_side(with_caveats(caveat(1, prefix))), server_side(SECRET)
    converse(client, server)
    assert "the grant has a prefix" in refusal(client, server)


def test_caveats_that_are_cut() -> None:
    """Whoever has no key learns nothing but that."""
    client, server = client_side(granted()), server_side(SECRET)

    def cut(frame: bytes) -> bytes:
        body = frame[HEADER_BYTES:-1]
        return frame[: HEADER_BYTES - 4] + struct.pack("<I", len(body)) + body

    converse(client, server, to_server=on(FrameKind.PROOF, cut))
    assert "the caveats of the grant are cut" in refusal(client, server)


def test_one_that_has_expired() -> None:
    text = with_caveats(caveat(1, b"run-17/") + caveat(3, struct.pack("<Q", int(time.time()) - 1)))
    client, server = client_side(text), server_side(SECRET)
    converse(client, server)
    message = refusal(client, server)
    assert "the grant has expired: it opened 'run-17/', until " in message


def test_the_end_is_told_to_nobody_without_the_key() -> None:
    caveats = caveat(3, struct.pack("<Q", int(time.time()) - 1))
    client, server = client_side(forged(granted(), caveats)), server_side(SECRET)
    converse(client, server)
    assert "expired" not in refusal(client, server).partition(": ")[2]


def test_a_server_without_a_secret_gets_none() -> None:
    client, server = client_side(granted()), server_side()
    converse(client, server)
    assert isinstance(client.error, AuthenticationError)
    assert "has no secret" in str(client.error)
    assert len(client.sent) == 1
