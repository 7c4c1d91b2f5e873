"""Peers that take what a server has for all: none of them keeps the others out."""

import resource
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Literal

import pytest

from tests.adversity.conftest import StartServer
from tests.eventually import eventually, nothing_happens
from tests.values import as_buffer
from ucxstore import ConnectError, UcxStore
from ucxstore.base.address import Address
from ucxstore.base.native import core
from ucxstore.base.options import Local, Network
from ucxstore.client.connect import Greeting
from ucxstore.pipeline.access import access_to
from ucxstore.server import Server
from ucxstore.server.accepting.guests import Guest
from ucxstore.server.accepting.reception import HANDSHAKE_SECONDS
from ucxstore.server.accepting.shortage import RESERVED_FILES, RESERVED_FROM_LOCAL

SILENT = 300

# Seconds for a handshake: it takes some 0.05 s behind that many, who are waited for up to 30.
PROMPT = 5.0


@contextmanager
def silent_peers(server: Server, kind: str, count: int = SILENT) -> Iterator[list[socket.socket]]:
    """Connect that often, and say nothing."""
    [place] = Address.parse(server.address).servers
    family, name = socket.AF_INET, (place.host, place.port)
    if kind == "unix":
        with Greeting(place, None, 20.0) as greeting:
            family, name = socket.AF_UNIX, greeting.welcome.socket  # type: ignore[assignment]
    with ExitStack() as stack:
        peers = []
        for _ in range(count):
            peer = stack.enter_context(socket.socket(family, socket.SOCK_STREAM))
            peer.settimeout(20)
            peer.connect(name)
            peers.append(peer)
        yield peers


def goes_on(address: str, local: str) -> None:
    """A client is served, and its handshake waits for nobody."""
    [place] = Address.parse(address).servers
    begun = time.monotonic()
    with Greeting(place, None, PROMPT):
        assert time.monotonic() - begun < PROMPT
    # UCX, for which other peers do not matter, may take longer to start on a busy machine.
    patience = PROMPT if local == "auto" else HANDSHAKE_SECONDS / 2
    with UcxStore(address, local=local, connect_timeout=patience) as store:
        store.set_sync("k", as_buffer(b"value"))
        found = store.get_sync("k")
        assert found is not None
        assert found.to_bytes() == b"value"


@pytest.mark.parametrize("kind", ["tcp", "unix"])
@pytest.mark.parametrize("local", ["ucx", "auto"])
def test_silent_connections(kind: str, local: str) -> None:
    with Server("memory://", local=True) as server, silent_peers(server, kind):
        goes_on(server.address, local)
        eventually(lambda: server.stats()["turned_away"] >= SILENT - 256)


def test_the_most_silent_one_goes_and_is_told() -> None:
    with Server("memory://") as server, silent_peers(server, "tcp") as peers:
        eventually(lambda: server.stats()["turned_away"] >= SILENT - 256)
        assert b"silent for longest" in peers[0].recv(4096)
        assert peers[0].recv(4096) == b""
        peers[-1].setblocking(False)
        with pytest.raises(BlockingIOError):
            peers[-1].recv(1)


@pytest.mark.parametrize(
    ("plane", "network", "left"),
    [
        ("ucx", "ucx", RESERVED_FILES),
        ("off", "tcp", RESERVED_FROM_LOCAL),
        ("auto", "tcp", RESERVED_FROM_LOCAL),
    ],
)
def test_no_descriptors_for_another_client(
    start_server: StartServer, plane: Local, network: Network, left: int
) -> None:
    """It is told which limit it is, and the server goes on."""
    server = start_server()
    pid = server.process.pid
    _, hard = resource.prlimit(pid, resource.RLIMIT_NOFILE)
    with UcxStore(server.address, local=plane, network=network) as first:
        first.set_sync("k", as_buffer(b"value"))
        used = sum(1 for _ in Path(f"/proc/{pid}/fd").iterdir())
        resource.prlimit(pid, resource.RLIMIT_NOFILE, (used + left // 2, hard))
        with (
            UcxStore(
                server.address, local=plane, network=network, ucx={"TCP_TX_SEG_SIZE": "200K"}
            ) as other,
            pytest.raises(ConnectError, match=r"files .* may have open .*ulimit -n"),
        ):
            other.get_sync("k")
        assert first.get_sync("k") is not None
        resource.prlimit(pid, resource.RLIMIT_NOFILE, (hard, hard))
    goes_on(server.address, plane)


class Peers:
    """Clients of a server that come from wherever they say, each with a session of its own."""

    def __init__(self) -> None:
        self.origin = "many"
        self._local = core.LocalClient()
        self._ucx = core.Client({}, False)

    def connect(self, server: Server, plane: str) -> core.Connection:
        [place] = Address.parse(server.address).servers
        with Greeting(place, None, 20.0) as greeting:
            token = greeting.welcome.token
            if plane == "auto":
                fd = greeting.join()
                assert fd is not None
                return self._local.attach(fd, token, "peer")
            port = self._ucx.open(greeting.fileno())
            fd, address = greeting.attach(port.address)
            return port.attach(fd, token, address, "peer", 20.0)

    def close(self) -> None:
        self._local.close()
        self._ucx.close(5.0)


@pytest.fixture
def peers(monkeypatch: pytest.MonkeyPatch) -> Iterator[Peers]:
    peers = Peers()
    monkeypatch.setattr(Guest, "owner", property(lambda _: peers.origin))
    yield peers
    peers.close()


def another(server: Server, number: int, plane: Literal["auto", "ucx"] = "auto") -> UcxStore:
    """A store with a session of its own: stores of one process share those of equal options."""
    return UcxStore(server.address, local=plane, ucx={"TCP_TX_SEG_SIZE": f"{100 + number}K"})


PLANES = pytest.mark.parametrize("plane", ["ucx", "auto"])


def alive(connections: list[core.Connection]) -> list[bool]:
    return [each.alive for each in connections]


@PLANES
def test_the_most_silent_session_of_the_greatest_origin_ends(peers: Peers, plane: str) -> None:
    with Server("memory://", max_sessions=4) as server:
        peers.origin = "two"
        first = [peers.connect(server, plane) for _ in range(1)]
        peers.origin = "many"
        many = [peers.connect(server, plane) for _ in range(3)]
        many[0].ping(20.0).wait()
        peers.origin = "new"
        with UcxStore(server.address, local=plane) as store:
            store.set_sync("k", as_buffer(b"value"))
        assert alive(many) == [True, False, True]
        assert alive(first) == [True]
        stats = server.stats()
        assert (stats["sessions_ended"], stats["sessions_lost"], stats["turned_away"]) == (1, 0, 0)
        assert server.sessions <= 4


@PLANES
def test_one_that_was_ended_connects_anew(peers: Peers, plane: str) -> None:
    with Server("memory://", max_sessions=2) as server:
        with UcxStore(server.address, local=plane) as store:
            store.set_sync("k", as_buffer(b"value"))
            for round_ in range(3):
                others = [peers.connect(server, plane) for _ in range(3)]
                eventually(lambda: not access_to(store).channel.opened)
                found = store.get_sync("k")
                assert found is not None
                assert found.to_bytes() == b"value"
                store.set_sync("k", as_buffer(b"value"))
                assert sum(alive(others)) <= 1, round_
        assert server.stats()["sessions_lost"] == 0


@PLANES
def test_honest_clients_beyond_the_limit_lose_nothing(peers: Peers, plane: str) -> None:
    """Six take turns where there is room for three: each is ended again and again."""
    failures: list[BaseException] = []

    def work(number: int) -> None:
        try:
            with another(server, number, plane) as store:
                for round_ in range(10):
                    store.set_sync(f"{number}", as_buffer(f"{number} {round_}".encode() * 1000))
                    found = store.get_sync(f"{number}")
                    assert found is not None
                    assert found.to_bytes() == f"{number} {round_}".encode() * 1000
                    nothing_happens(0.05)
        except BaseException as error:
            failures.append(error)

    with Server("memory://", max_sessions=3) as server:
        threads = [threading.Thread(target=work, args=(number,)) for number in range(6)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        stats = server.stats()
    assert not failures
    assert stats["sessions_ended"] > 3
    assert stats["sessions_lost"] == 0


def test_views_keep_a_session(peers: Peers) -> None:
    """Who holds values where they lie keeps the place, and what lies there."""
    with Server("memory://", max_sessions=2) as server:
        value = bytes(range(256)) * 4096
        with UcxStore(server.address, local="auto") as store:
            store.set_sync("k", as_buffer(value))
            view = store.view_sync("k", map=True)
            assert view is not None
            array = view.array
            other = peers.connect(server, "auto")
            peers.origin = "new"
            goes_on(server.address, "ucx")
            assert not other.alive
            assert access_to(store).channel.opened
            last = peers.connect(server, "auto")
            assert access_to(store).channel.opened
            store.set_sync("k", as_buffer(b"another"))
            assert bytes(array) == value
            del view, array
            assert last.alive


def test_where_none_may_end_the_newcomer_is_told(peers: Peers) -> None:
    with Server("memory://", max_sessions=1) as server, another(server, 0) as store:
        store.set_sync("k", as_buffer(bytes(1 << 20)))
        view = store.view_sync("k", map=True)
        assert view is not None
        peers.origin = "new"
        for plane in ("auto", "ucx"):
            with (
                another(server, 1, plane) as other,
                pytest.raises(ConnectError, match=r"1 of the 1 sessions .*max_sessions"),
            ):
                other.get_sync("k")
        assert server.stats()["turned_away"] >= 2
        assert server.stats()["sessions_ended"] == 0


def test_what_is_kept_for_others(peers: Peers) -> None:
    """An origin that uses all its sessions does not keep others out."""
    with Server("memory://", max_sessions=8) as server, ExitStack() as stack:
        many = [stack.enter_context(another(server, number)) for number in range(7)]
        many[0].set_sync("k", as_buffer(bytes(1 << 20)))
        views = [each.view_sync("k", map=True) for each in many]
        with pytest.raises(
            ConnectError, match=r"7 of the 8 .* 7 of them by many.* kept for others"
        ):
            peers.connect(server, "ucx")
        peers.origin = "new"
        assert peers.connect(server, "auto").alive
        assert all(access_to(each).channel.opened for each in many)
        assert all(view is not None and view.mapped for view in views)


def test_one_that_does_not_hang_up_is_ended(peers: Peers) -> None:
    with Server("memory://", max_sessions=2) as server:
        [place] = Address.parse(server.address).servers
        with ExitStack() as stack:
            silent = []
            for _ in range(2):
                with Greeting(place, None, 20.0) as greeting:
                    fd = greeting.join()
                    assert fd is not None
                    silent.append(stack.enter_context(socket.socket(fileno=fd)))
            peers.origin = "new"
            goes_on(server.address, "auto")
            assert server.stats()["sessions_ended"] == 1
            silent[0].settimeout(20)
            while silent[0].recv(4096):
                pass
