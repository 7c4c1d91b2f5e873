"""A client that starts before its server waits for it; what is lost later is not waited for."""

import logging
import pickle
import socket
import time
from collections.abc import Iterator
from contextlib import ExitStack

import pytest

from tests.adversity.fake_servers import FakeServer, relays_to
from tests.adversity.transfers import Background
from tests.eventually import eventually
from tests.values import as_buffer
from ucxstore import AuthenticationError, ConnectError, Secret, Server, ServerLostError, UcxStore
from ucxstore.base.errors import not_yet
from ucxstore.client import patience
from ucxstore.client.patience import Patience
from ucxstore.protocol.frames import RejectCode, encode_reject

SECONDS = 60.0


@pytest.fixture
def told(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Return what is said of waiting."""
    said: list[str] = []
    monkeypatch.setattr(patience, "tell", said.append)
    return said


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let nobody wait."""

    def wait(*_: object) -> None:
        raise AssertionError("waited")

    monkeypatch.setattr(Patience, "wait", wait)


@pytest.fixture
def places() -> list[str]:
    """Return ports of loopback that nobody listens at."""
    with ExitStack() as stack:
        listeners = [stack.enter_context(socket.create_server(("127.0.0.1", 0))) for _ in range(3)]
        return ["{}:{}".format(*each.getsockname()) for each in listeners]


@pytest.fixture
def servers() -> Iterator[ExitStack]:
    with ExitStack() as stack:
        yield stack


def use(store: UcxStore) -> bytes:
    store.set_sync("key", as_buffer(b"value"))
    value = store.get_sync("key")
    assert value is not None
    return value.to_bytes()


def test_a_client_waits_for_its_server(
    places: list[str], servers: ExitStack, told: list[str], caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING, "ucxstore.client")
    with UcxStore(f"ucx://{places[0]}", connect_timeout=SECONDS) as store:
        waiting = Background(lambda: use(store))
        eventually(lambda: told)
        servers.enter_context(Server("memory://", places[0]))
        waiting.join(SECONDS)
        assert waiting.error is None
    [text] = told
    assert text.startswith(f"cannot connect to {places[0]}: it does not answer: Connection refused")
    assert "trying again for up to" in text
    assert [one.getMessage() for one in caplog.records if hasattr(one, "event")] == [text]


def test_a_client_waits_for_all_servers_of_a_new_set(
    places: list[str], servers: ExitStack, told: list[str]
) -> None:
    with UcxStore(f"ucx://{','.join(places)}", connect_timeout=SECONDS) as store:
        waiting = Background(lambda: use(store))
        for place in places:
            eventually(lambda: told)
            assert waiting.running
            servers.enter_context(Server("memory://", place))
        waiting.join(SECONDS)
        assert waiting.error is None
        store.ping_sync()


def test_a_client_goes_on_with_one_of_several_that_share(
    places: list[str], servers: ExitStack, impatient: None, tmp_path: object
) -> None:
    servers.enter_context(Server(str(tmp_path), places[0], shared=True))
    with UcxStore(f"ucx://{places[0]},{places[1]}", connect_timeout=SECONDS) as store:
        assert use(store) == b"value"


def test_a_name_that_is_not_known_yet(
    servers: ExitStack, told: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    server = servers.enter_context(Server("memory://"))
    port = int(server.address.rpartition(":")[2])
    look_up = socket.getaddrinfo

    def resolve(host: str, *arguments: object, **options: object) -> object:
        if host == "soon.example":
            if not told:
                raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")
            host = "127.0.0.1"
        return look_up(host, *arguments, **options)

    monkeypatch.setattr(socket, "getaddrinfo", resolve)
    with UcxStore(f"ucx://soon.example:{port}", connect_timeout=SECONDS) as store:
        assert use(store) == b"value"
    assert "Name or service not known" in told[0]


@pytest.mark.parametrize("rejects", [True, False], ids=["ends", "hangs up"])
def test_a_server_that_ends_and_starts_again(
    servers: ExitStack, told: list[str], *, rejects: bool
) -> None:
    """Or a proxy, which takes connections for a server that is not there yet."""
    server = servers.enter_context(Server("memory://"))

    def behave(sock: socket.socket) -> None:
        if told:
            relays_to(server.address.removeprefix("ucx://"))(sock)
            return
        if rejects:
            sock.sendall(encode_reject(RejectCode.DRAINING, "the server is shutting down"))
        sock.shutdown(socket.SHUT_WR)
        sock.close()

    with (
        FakeServer(behave) as fake,
        UcxStore(fake.address, connect_timeout=SECONDS) as store,
    ):
        store.ping_sync()
    assert told


def test_the_wrong_secret_is_refused_at_once(servers: ExitStack, impatient: None) -> None:
    server = servers.enter_context(Server("memory://", secret="a secret of the server"))
    with (
        UcxStore(server.address, secret=Secret("another secret"), connect_timeout=SECONDS) as store,
        pytest.raises(AuthenticationError),
    ):
        store.ping_sync()


def test_one_wrong_server_of_several_is_refused_at_once(
    places: list[str], servers: ExitStack, impatient: None
) -> None:
    server = servers.enter_context(Server("memory://", secret="a secret of the server"))
    place = server.address.removeprefix("ucx://")
    with (
        UcxStore(f"ucx://{places[0]},{place}", connect_timeout=SECONDS) as store,
        pytest.raises(AuthenticationError),
    ):
        store.ping_sync()


def test_a_server_that_was_there_is_not_waited_for(places: list[str], impatient: None) -> None:
    with UcxStore(f"ucx://{places[0]}", connect_timeout=SECONDS) as store:
        with Server("memory://", places[0]):
            store.ping_sync()
            copy = pickle.dumps(store)
        for _ in range(2):
            with pytest.raises(ConnectionError, match=places[0]):
                store.ping_sync()
    # A copy has no connection, and knows that its server was there.
    with pickle.loads(copy) as other, pytest.raises(ServerLostError, match="refused"):
        other.ping_sync()


def test_nobody_is_waited_for_longer_than_connect_timeout(
    places: list[str], told: list[str]
) -> None:
    start = time.monotonic()
    with (
        UcxStore(f"ucx://{places[0]}", connect_timeout=1.0) as store,
        pytest.raises(ConnectError, match="Connection refused") as caught,
    ):
        store.ping_sync()
    assert caught.value.may_come
    assert told
    assert time.monotonic() - start < SECONDS


def test_pauses_grow_and_are_not_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    pauses: list[list[float]] = []
    monkeypatch.setattr(time, "sleep", lambda seconds: pauses[-1].append(seconds))
    for _ in range(20):
        pauses.append([])
        one = Patience(1000.0)
        for _ in range(12):
            assert one.wait(not_yet("not there"), one.deadline)
    assert all(0.05 <= each[0] <= 0.15 and 0.5 <= each[-1] <= 1.5 for each in pauses)
    assert len({tuple(each) for each in pauses}) == len(pauses)
    over = Patience(0.1)
    assert not over.wait(not_yet("not there"), over.deadline)
