"""A store that reaches something else than its server raises in bounded time."""

import asyncio
import socket
import threading
import time
from collections.abc import Iterator

import numpy as np
import pytest

from tests.adversity.conftest import OpenStore
from tests.adversity.fake_servers import (
    Behaviour,
    FakeServer,
    closes,
    relays_to,
    says,
    silent,
    welcomes,
)
from tests.adversity.servers import RemoteServer
from tests.adversity.transfers import (
    BLANK,
    VALUE,
    Background,
    filled,
    read_forever,
    until_begun,
)
from tests.adversity.ways import over_ucx
from tests.eventually import eventually
from tests.values import as_buffer
from ucxstore import (
    AuthenticationError,
    ConnectError,
    NotAServerError,
    ProtocolVersionError,
    ServerLostError,
    UcxStore,
)
from ucxstore.base.native import core
from ucxstore.protocol.frames import (
    PROTOCOL_VERSION,
    FrameKind,
    RejectCode,
    encode,
    encode_reject,
)
from ucxstore.server import Server

CONNECT = 0.5

# Seconds beyond `connect_timeout`, for a machine that is busy.
SLACK = 20.0


def fails(store: UcxStore, place: str) -> tuple[type[BaseException], str]:
    """Use the store in both its ways, and return the failure: the same one, and prompt."""
    requests = [
        lambda: store.get_sync("key"),
        lambda: store.set_sync("key", as_buffer(b"value")),
        lambda: asyncio.run(store.exists("key")),
    ]
    found = set()
    for request in requests:
        start = time.monotonic()
        with pytest.raises(ConnectError) as caught:
            request()
        assert time.monotonic() - start < CONNECT + SLACK
        assert place in str(caught.value)
        found.add(type(caught.value))
    (kind,) = found
    return kind, str(caught.value)


# ---- secrets ----


@pytest.mark.parametrize(
    ("theirs", "ours", "message"),
    [
        ("right", "wrong", "secret"),
        ("right", None, "requires a secret"),
        (None, "mine", "has no secret"),
    ],
)
def test_secrets(theirs: str | None, ours: str | None, message: str, native_clients: None) -> None:
    with Server("memory://", secret=theirs) as server:
        with UcxStore(server.address, secret=ours, connect_timeout=CONNECT + SLACK) as store:
            kind, text = fails(store, server.address.removeprefix("ucx://"))
        assert kind is AuthenticationError
        assert message in text
        assert "right" not in text
        assert "mine" not in text
        assert server.sessions == 0
        with UcxStore(server.address, secret=theirs) as store:
            assert store.get_sync("key") is None


def test_one_that_only_claims_to_know_the_secret(native_clients: None) -> None:
    behave = welcomes(b"its address", stays=True, secret=b"another")
    with (
        FakeServer(behave) as fake,
        UcxStore(fake.address, secret="mine", connect_timeout=CONNECT) as store,
    ):
        assert fails(store, fake.place)[0] is AuthenticationError


# ---- what is no server ----


def version(number: int) -> Behaviour:
    """Reject as a server of another version of the protocol does."""

    def behave(sock: socket.socket) -> None:
        sock.recv(4096)
        frame = bytearray(encode_reject(RejectCode.VERSION, f"this server speaks {number}"))
        frame[4:6] = number.to_bytes(2, "little")
        sock.sendall(frame)

    return behave


def challenges_in_version(number: int) -> Behaviour:
    def behave(sock: socket.socket) -> None:
        frame = bytearray(encode(FrameKind.CHALLENGE, bytes(36)))
        frame[4:6] = number.to_bytes(2, "little")
        sock.sendall(frame)

    return behave


HTTP = b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n"


@pytest.mark.parametrize(
    ("behave", "kind"),
    [
        pytest.param(silent, ConnectError, id="silent"),
        pytest.param(says(HTTP), NotAServerError, id="a web server"),
        pytest.param(says(b"\0" * 100_000), NotAServerError, id="zeros"),
        pytest.param(says(b"UCXS"), ConnectError, id="a beginning"),
        pytest.param(says(b"UCXS\1\0\2\0\xff\xff\xff\xff"), ConnectError, id="a length"),
        pytest.param(says(encode(FrameKind.READY, bytes(40))), ConnectError, id="another frame"),
        pytest.param(closes(0), ConnectError, id="closes at once"),
        pytest.param(closes(10), ConnectError, id="closes"),
        pytest.param(version(PROTOCOL_VERSION + 1), ProtocolVersionError, id="rejects our version"),
        pytest.param(
            challenges_in_version(PROTOCOL_VERSION + 1), ProtocolVersionError, id="a later version"
        ),
    ],
)
def test_no_server(behave: Behaviour, kind: type[ConnectError], native_clients: None) -> None:
    with FakeServer(behave) as fake, UcxStore(fake.address, connect_timeout=CONNECT) as store:
        found, message = fails(store, fake.place)
        assert issubclass(found, kind)
        if kind is ProtocolVersionError:
            assert "7" in message


def test_nobody_there(native_clients: None) -> None:
    with socket.socket() as sock:  # bound, so that nobody else is, but not listening
        sock.bind(("127.0.0.1", 0))
        place = "{}:{}".format(*sock.getsockname())
        with UcxStore(f"ucx://{place}", connect_timeout=CONNECT) as store:
            assert fails(store, place)[0] is ConnectError


def test_a_drip(native_clients: None) -> None:
    """A peer that sends a byte now and then: the deadline is for the whole handshake."""
    done = threading.Event()

    def behave(sock: socket.socket) -> None:
        for byte in encode(FrameKind.CHALLENGE, bytes(36)):
            sock.sendall(bytes([byte]))
            if done.wait(0.1):
                return

    with FakeServer(behave) as fake, UcxStore(fake.address, connect_timeout=CONNECT) as store:
        start = time.monotonic()
        with pytest.raises(ConnectError, match=fake.place):
            store.get_sync("key")
        assert time.monotonic() - start < CONNECT + SLACK
        done.set()


# ---- past the handshake ----


@pytest.fixture
def idle_worker(ucx: dict[str, str]) -> Iterator[bytes]:
    """The UCX address of a worker that exists, and answers no request."""
    client = core.Client(ucx, False)
    port = client.open()
    yield port.address
    client.close(5.0)


@over_ucx
@pytest.mark.parametrize("stays", [True, False])
def test_one_that_shakes_hands_only(open_store: OpenStore, idle_worker: bytes, stays: bool) -> None:
    with FakeServer(welcomes(idle_worker, stays=stays)) as fake:
        store = open_store(fake, connect_timeout=CONNECT)
        for request in (lambda: store.get_sync("key"), lambda: asyncio.run(store.exists("key"))):
            attempt = Background(request)
            error, message = attempt.failure(CONNECT + SLACK)
            assert issubclass(error, ConnectError if stays else (ConnectError, ServerLostError))
            assert fake.place in message


@over_ucx
def test_a_worker_that_is_no_more(open_store: OpenStore, ucx: dict[str, str]) -> None:
    client = core.Client(ucx, False)
    address = client.open().address
    client.close(5.0)
    with FakeServer(welcomes(address, stays=True)) as fake:
        attempt = Background(lambda: open_store(fake, connect_timeout=CONNECT).get_sync("key"))
        error, message = attempt.failure(CONNECT + SLACK)
        assert issubclass(error, (ConnectError, ServerLostError))
        assert fake.place in message


@over_ucx
@pytest.mark.parametrize("address", [b"\0", b"garbage", bytes(200), b"\xff" * 200])
def test_a_malformed_ucx_address(open_store: OpenStore, address: bytes) -> None:
    with FakeServer(welcomes(address, stays=True)) as fake:
        store = open_store(fake, connect_timeout=CONNECT)
        attempt = Background(lambda: store.get_sync("key"))
        error, message = attempt.failure(CONNECT + SLACK)
        assert issubclass(error, ConnectError)
        assert fake.place in message


def test_a_man_in_the_middle_hangs_up(server: RemoteServer, open_store: OpenStore) -> None:
    """The control connection ends in mid-transfer, while UCX has its own ways."""
    with FakeServer(relays_to(server.place)) as relay:
        store = open_store(relay)
        store.set_sync("key", as_buffer(filled(VALUE)))
        out = filled(BLANK)
        reading = read_forever(store, out)
        until_begun(out)
        relay.hang_up()
        reading.mark()
        error, message = reading.failure()
        assert error is ServerLostError
        assert relay.place in message
        before = out.copy()
        eventually(lambda: server.sessions == 0)
        direct = open_store(server)
        assert direct.get_into_sync("key", filled(BLANK)) == out.size
        assert store.get_into_sync("key", filled(BLANK)) == out.size  # by a new connection
        assert np.array_equal(out, before)


def test_a_man_in_the_middle_speaks(server: RemoteServer, open_store: OpenStore) -> None:
    """Bytes where there should be none, or no such ones, end the connection on either side."""
    spoken: list[socket.socket] = []

    def behave(sock: socket.socket) -> None:
        spoken.append(sock)
        relays_to(server.place)(sock)

    with FakeServer(behave) as relay:
        store = open_store(relay)
        store.set_sync("key", as_buffer(b"value"))
        spoken[0].sendall(b"boo" * 8)
        eventually(lambda: not store.stats()["lanes"])
        eventually(lambda: server.sessions == 0)
        assert store.get_sync("key") is not None
