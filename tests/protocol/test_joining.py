"""How a client of the same host joins its session: both sides in memory, and what is no JOIN."""

import struct
from io import BytesIO

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ucxstore.base.errors import ProtocolError
from ucxstore.protocol.driver import carry_out, without_waiting
from ucxstore.protocol.frames import (
    HEADER_BYTES,
    MAC_BYTES,
    PROTOCOL_VERSION,
    TOKEN_BYTES,
    FrameKind,
    RejectCode,
    encode,
    encode_reject,
)
from ucxstore.protocol.handshake import (
    ConnectAnewError,
    Steps,
    client_join,
    join_again,
    join_mac,
    joined,
    server_join,
)

TOKEN = b"t" * TOKEN_BYTES
OTHER = b"o" * TOKEN_BYTES
JOIN = encode(FrameKind.JOIN, join_mac(TOKEN))
JOINED = joined(TOKEN)


def talk[T](steps: Steps[T], heard: bytes) -> tuple[bytes, T]:
    """Let one side hear these bytes, then the end; return what it said and its result."""
    said, rest = BytesIO(), BytesIO(heard)

    async def send(data: bytes) -> None:
        said.write(data)

    async def receive(size: int) -> bytes:
        return rest.read(size)

    result = without_waiting(carry_out(steps, send, receive))
    return said.getvalue(), result


def flipped(frame: bytes, bit: int) -> bytes:
    at = bit // 8
    return frame[:at] + bytes([frame[at] ^ 1 << bit % 8]) + frame[at + 1 :]


def server_takes(frame: bytes, token: bytes = TOKEN) -> bool:
    """Whether a server that has welcomed one client, with this token, lets the sender join."""
    try:
        said, mac = talk(server_join(), frame)
    except ProtocolError:
        return False
    assert said == b""  # nothing before it has looked at the MAC
    return mac == join_mac(token)


def test_both_sides_agree() -> None:
    said, is_server = talk(client_join(TOKEN), JOINED)
    assert said == JOIN
    assert is_server
    assert server_takes(said)


def test_the_token_is_not_on_the_wire() -> None:
    assert TOKEN not in JOIN + JOINED
    assert JOIN[HEADER_BYTES:] != JOINED[HEADER_BYTES:]


def test_a_client_with_another_token() -> None:
    said, is_server = talk(client_join(OTHER), JOINED)
    assert not is_server
    assert not server_takes(said)


def test_any_bit_matters() -> None:
    for bit in range(8 * len(JOIN)):
        assert not server_takes(flipped(JOIN, bit)), bit
    for bit in range(8 * len(JOINED)):
        assert not talk(client_join(TOKEN), flipped(JOINED, bit))[1], bit


def test_what_is_cut_off_is_nothing() -> None:
    for length in range(len(JOIN)):
        assert not server_takes(JOIN[:length])
        assert not talk(client_join(TOKEN), JOINED[:length])[1]


def test_a_client_that_is_to_connect_anew() -> None:
    with pytest.raises(ConnectAnewError):
        talk(client_join(TOKEN), join_again(TOKEN))
    assert not talk(client_join(TOKEN), join_again(OTHER))[1]


@pytest.mark.parametrize(
    "answer",
    [
        JOIN,  # sent back
        encode_reject(RejectCode.BUSY, "too many clients are connecting at once"),
        encode(FrameKind.JOINED, bytes(MAC_BYTES)),
        encode(FrameKind.JOINED, join_mac(TOKEN)),
    ],
    ids=["an echo", "a refusal", "zeros", "the MAC of JOIN"],
)
def test_no_answer_of_the_server(answer: bytes) -> None:
    assert not talk(client_join(TOKEN), answer)[1]


@pytest.mark.parametrize(
    "frame",
    [
        JOINED,
        encode(FrameKind.PROOF, join_mac(TOKEN)),
        encode(FrameKind.HELLO, join_mac(TOKEN)),
        b"UCXS"
        + struct.pack("<HHI", PROTOCOL_VERSION, FrameKind.JOIN, 2**32 - 1)
        + join_mac(TOKEN),
        b"UCXS"
        + struct.pack("<HHI", PROTOCOL_VERSION + 1, FrameKind.JOIN, MAC_BYTES)
        + join_mac(TOKEN),
        b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n" + join_mac(TOKEN),
    ],
    ids=["JOINED", "PROOF", "HELLO", "a length", "another version", "HTTP"],
)
def test_no_join(frame: bytes) -> None:
    with pytest.raises(ProtocolError, match="in place of JOIN"):
        talk(server_join(), frame)


@given(st.binary(max_size=100))
def test_a_server_survives_anything(data: bytes) -> None:
    assert server_takes(data) == data.startswith(JOIN)


@given(st.binary(max_size=100))
def test_a_client_survives_anything(data: bytes) -> None:
    said, is_server = talk(client_join(TOKEN), data)
    assert said == JOIN
    assert is_server == data.startswith(JOINED)
